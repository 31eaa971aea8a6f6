# The executor on the stand-in: as a library for the tests, and as a plugin for programs that load one.

# refit_add_standin_executor(NAME STANDIN [OBJECTS target]): the executor with its kernels as C++, its
# host code taken from the target or compiled anew.
function(refit_add_standin_executor name standin)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "OBJECTS" "")
  set(sources ${PROJECT_SOURCE_DIR}/gpu/executor/refit-pack.cu)
  if(arg_OBJECTS)
    list(APPEND sources $<TARGET_OBJECTS:${arg_OBJECTS}>)
  else()
    list(APPEND sources ${REFIT_GPU_EXECUTOR})
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${standin} refit-model)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

if(TARGET refit-gpu-host)
  refit_add_standin_executor(refit-standin-executor refit-standin OBJECTS refit-gpu-host)
else()
  refit_add_standin_executor(refit-standin-executor refit-standin)
endif()

# The plugin of this build, on the stand-in; for tests only.
set(host ${REFIT_GPU_EXECUTOR})
if(TARGET refit-gpu-host)
  set(host $<TARGET_OBJECTS:refit-gpu-host>)
endif()
add_library(refit-standin-plugin MODULE ${PROJECT_SOURCE_DIR}/gpu/executor/refit-pack.cu ${host})
target_link_libraries(refit-standin-plugin PRIVATE refit-standin refit-model)
target_link_options(refit-standin-plugin PRIVATE ${REFIT_GPU_EXPORTS})
set_target_properties(refit-standin-plugin PROPERTIES PREFIX "" OUTPUT_NAME refit-gpu LINKER_LANGUAGE CXX)

# The programs of plans, as in the tests of the core.
set(unit ${PROJECT_SOURCE_DIR}/tests/unit)
set(runs executor-events.c executor-meet.c executor-run.c fault-runs.c ${unit}/program-run.c ${unit}/random-case.c)

function(refit_add_executor_test name)
  refit_add_standin_test(${name} SOURCES ${runs} ${ARGN})
  target_link_libraries(${name} PRIVATE refit-standin-executor refit-test-helpers)
endfunction()

refit_add_executor_test(test-executor)
refit_add_executor_test(test-executor-connect)
refit_add_executor_test(test-executor-events)
refit_add_executor_test(test-executor-faults)
refit_add_executor_test(test-executor-mutants)
refit_add_executor_test(test-executor-sections)
refit_add_executor_test(test-executor-shipped)
refit_add_executor_test(test-executor-stages)
refit_add_standin_test(test-executor-agree)
target_link_libraries(test-executor-agree PRIVATE refit-standin-executor)
refit_add_standin_test(test-executor-place)
target_link_libraries(test-executor-place PRIVATE refit-standin-executor -Wl,--no-as-needed refit-standin-nvml)
refit_add_standin_test(test-executor-calls)
target_link_libraries(test-executor-calls PRIVATE refit-standin-executor)
refit_add_executor_test(test-executor-matrix ${unit}/m2n-rows.c)

# Reports, as case-runner reads them.
get_target_property(reports case-runner SOURCES)
list(FILTER reports INCLUDE REGEX "^report-")
list(TRANSFORM reports PREPEND ${PROJECT_SOURCE_DIR}/validation/)
add_library(refit-test-reports STATIC EXCLUDE_FROM_ALL ${reports})
target_link_libraries(refit-test-reports PUBLIC refit-counts refit-model PkgConfig::JANSSON m)
foreach(name test-executor-checks test-executor-reports)
  refit_add_executor_test(${name} report-files.c)
  target_link_libraries(${name} PRIVATE refit-test-reports)
endforeach()

# The executor and the simulator on the same schedules.
set(same same-events.c ${unit}/event-sets.c)
refit_add_executor_test(test-same-events ${same} ${unit}/m2n-rows.c)
refit_add_executor_test(test-planted-events ${same})
foreach(name test-same-events test-planted-events)
  target_link_libraries(${name} PRIVATE refit-sim)
endforeach()
