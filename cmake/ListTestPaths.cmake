# Run after a test program was linked: asks PROGRAM for its paths and writes OUTPUT, a file for
# ctest with one test per path. GLib ends a run in which everything was skipped with status 0, so a
# skip is recognised by its TAP line.
set(ENV{ASAN_OPTIONS} detect_leaks=0)
execute_process(COMMAND ${PROGRAM} -l OUTPUT_VARIABLE paths RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} -l: ${status}")
endif()
string(REGEX MATCHALL "/[^\n]*" paths "${paths}")
if(NOT paths)
  message(FATAL_ERROR "${PROGRAM} has no tests")
endif()

set(tests "")
foreach(path IN LISTS paths)
  set(test "[==[${NAME}:${path}]==]")
  string(APPEND tests
         "add_test(${test} [==[${PROGRAM}]==] --tap --seed ${SEED} -p [==[${path}]==])\n"
         "set_tests_properties(${test} PROPERTIES LABELS ${LABEL} TIMEOUT 300\n"
         "  ENVIRONMENT \"G_DEBUG=fatal-criticals;G_SLICE=always-malloc\"\n"
         "  SKIP_REGULAR_EXPRESSION \"# SKIP\")\n")
endforeach()
file(WRITE ${OUTPUT} "${tests}")
