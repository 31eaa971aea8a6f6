# The C API and the NCCL M2N ABI.

refit_add_unit_test(test-api LABEL gpu SOURCES test-api.c LIBRARIES refit-api)
refit_add_unit_test(test-api-run LABEL gpu-standin PREFIX standin SOURCES test-api-run.c
                    ${PROJECT_SOURCE_DIR}/tests/unit/tsan-glib.c LIBRARIES refit-api)
target_compile_definitions(test-api-run
                           PRIVATE REFIT_TEST_EXECUTOR="$<TARGET_FILE:refit-standin-plugin>")
add_dependencies(test-api-run refit-standin-plugin)

# The NCCL M2N interface on the stand-in, and a program written for it.
add_library(refit-standin-m2n STATIC ${REFIT_M2N})
target_include_directories(refit-standin-m2n PRIVATE ${PROJECT_BINARY_DIR})
target_link_libraries(refit-standin-m2n PUBLIC refit-standin-executor)
foreach(name test-m2n-abi test-m2n-calls)
  refit_add_standin_test(${name} SOURCES m2n-tensor.c ${PROJECT_SOURCE_DIR}/tests/unit/tsan-glib.c)
  target_link_libraries(${name} PRIVATE refit-standin-m2n)
endforeach()
target_sources(test-m2n-abi PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit/m2n-rows.c)
target_include_directories(test-m2n-abi PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit)

# Plans that would never end, in both; see damage-plan.c.
list(TRANSFORM REFIT_API PREPEND ${PROJECT_SOURCE_DIR}/lib/ OUTPUT_VARIABLE api)
refit_add_standin_test(test-damaged-plans SOURCES damage-plan.c m2n-tensor.c ${api}
                       ${PROJECT_SOURCE_DIR}/tests/unit/tsan-glib.c)
target_compile_definitions(test-damaged-plans PRIVATE REFIT_API_LIBRARY_VERSION="test" REFIT_GPU_PLUGIN="none"
                                                      REFIT_API_DATA_DIR="none")
target_link_libraries(test-damaged-plans PRIVATE refit-disk refit-standin-m2n refit-launch ${CMAKE_DL_LIBS})
target_link_options(test-damaged-plans PRIVATE -Wl,--wrap=refit_plan_new)

# The installed libraries, as other projects use them.
set(package ${CMAKE_CURRENT_SOURCE_DIR}/package)
set(flags "")
if(REFIT_SANITIZE)
  set(flags -fsanitize=${REFIT_SANITIZE})
endif()
add_test(NAME standin:package-example
         COMMAND ${package} example ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}
                 $<TARGET_FILE:refit-standin-plugin> ${CMAKE_C_COMPILER} ${flags})
add_test(NAME package:symbols COMMAND ${package} symbols ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}
                                      ${CMAKE_CXX_COMPILER})
set_tests_properties(standin:package-example package:symbols PROPERTIES LABELS gpu-standin TIMEOUT 300
                     ENVIRONMENT "G_DEBUG=fatal-criticals;G_SLICE=always-malloc")
