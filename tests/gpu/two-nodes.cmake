# validation/two-nodes with all its ranks on this machine. Its programs are made in tests/loopback.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
  foreach(case IN ITEMS stand-in launcher fault usage channels)
    add_test(NAME standin:two-nodes/${case}
             COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/two-nodes ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${case})
    set_tests_properties(
      standin:two-nodes/${case}
      PROPERTIES LABELS gpu-standin TIMEOUT 300
                 ENVIRONMENT "G_DEBUG=fatal-criticals;G_SLICE=always-malloc;REFIT_DATA=${PROJECT_SOURCE_DIR}")
  endforeach()
endif()
