# Mutation tests: see mutations/run. They build what they need themselves, for mutants are other sources;
# a few run always, all of them with REFIT_LONG=1 in the environment.
if(TARGET refit-standin-tsan AND NOT REFIT_SANITIZE AND NOT REFIT_COVERAGE)
  list(JOIN REFIT_GPU_INCLUDE_DIRS ":" include)
  foreach(list IN ITEMS short all)
    set(name standin:mutations)
    if(list STREQUAL short)
      set(name standin:mutations-short)
    endif()
    add_test(NAME ${name}
             COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/mutations/run ${PROJECT_SOURCE_DIR}
                     ${CMAKE_CURRENT_BINARY_DIR}/mutants-${list} $<TARGET_FILE:refit-model> ${list})
    set_tests_properties(
      ${name}
      PROPERTIES LABELS gpu-standin TIMEOUT 1500 SKIP_RETURN_CODE 77 COST 1000 # long: first
                 ENVIRONMENT
                 "CC=${CMAKE_C_COMPILER_LAUNCHER} ${CMAKE_C_COMPILER} ${CMAKE_C_COMPILER_ARG1};\
CXX=${CMAKE_CXX_COMPILER_LAUNCHER} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_ARG1};REFIT_GPU_INCLUDE=${include}")
  endforeach()
endif()
