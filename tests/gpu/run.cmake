# `refit run` on the stand-in: the program of this build with another executor. Never installed.
add_executable(refit-run-standin cli-executor-standin.c damage-plan.c ${unit}/tsan-glib.c)
target_link_options(refit-run-standin PRIVATE -Wl,--wrap=refit_plan_new)
target_link_libraries(refit-run-standin PRIVATE refit-cli refit-standin-executor)
set_target_properties(refit-run-standin PROPERTIES OUTPUT_NAME refit-standin LINKER_LANGUAGE CXX
                                                   RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

# refit_add_run_test(NAME PROCESSES|THREADS CASE RANKS [OPTION...]): by every strategy, or as the options
# say. Every byte is right, and the bytes counted are those planned.
function(refit_add_run_test name as case ranks)
  string(TOLOWER ${as} as)
  if(ARGN)
    set(command refit-run-standin run ${case} --ranks ${ranks} --verify --timeout 120s ${ARGN})
  else()
    set(command ${CMAKE_CURRENT_SOURCE_DIR}/run-cases $<TARGET_FILE:refit-run-standin> every-strategy ${case}
                ${ranks})
  endif()
  add_test(NAME standin:run/${name}/${as} COMMAND ${command})
  set_tests_properties(
    standin:run/${name}/${as}
    PROPERTIES LABELS gpu-standin TIMEOUT 300
               ENVIRONMENT "G_DEBUG=fatal-criticals;G_SLICE=always-malloc;REFIT_STANDIN_DEVICES=64;\
REFIT_STANDIN_RANKS=${as};REFIT_STANDIN_TIMEOUT_MS=60000;REFIT_DATA=${PROJECT_SOURCE_DIR}")
endfunction()

set(cases ${PROJECT_SOURCE_DIR}/tests/data/run)
foreach(case IN ITEMS one=1 four=4 idle=8 wide=8 colocated=4 fsdp=8 pools=8)
  string(REPLACE "=" ";" case ${case})
  list(GET case 0 name)
  list(GET case 1 n)
  refit_add_run_test(${name} THREADS ${cases}/${name}.yaml ${n})
endforeach()
refit_add_run_test(tiny PROCESSES tiny 8)
refit_add_run_test(many PROCESSES ${cases}/many.yaml 64 --strategy refit)
refit_add_run_test(many THREADS ${cases}/many.yaml 64 --strategy refit)

# What can go wrong, and under launchers: see run-cases.
foreach(case IN ITEMS text example-scripts counts byte-wrong count-wrong memory-copy child-signals-ignored descriptors
                      few-descriptors killed refused stalled silent launched launched-without-token
                      launched-world-differs launched-fails
                      launched-on-hosts launched-rank-0-dies launched-rank-0-hangs one-host hosts-in-turns shared-gpu no-peer-access
                      fabrics plan-differs plan-damaged no-driver too-few-gpus threads-agree
                      stages-as-json traces traces-in-pieces trace-of-some trace-exists)
  add_test(NAME standin:run/${case}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run-cases $<TARGET_FILE:refit-run-standin> ${case})
  set_tests_properties(standin:run/${case} PROPERTIES LABELS gpu-standin TIMEOUT 300 ENVIRONMENT
                       "G_DEBUG=fatal-criticals;G_SLICE=always-malloc;REFIT_DATA=${PROJECT_SOURCE_DIR}")
endforeach()
