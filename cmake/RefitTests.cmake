# How the tests reach ctest: one entry per path of each GLib test program, so that a failure (which
# ends the whole program) costs no other result and every path shows under its own name.

# Fixed, so that a run can be repeated; a program run by hand draws its own seed and prints it.
set(REFIT_TEST_SEED R02S00000000000000000000000000000001)

# refit_add_unit_test(NAME [LABEL label] [PREFIX prefix] [SOURCES file...] [LIBRARIES target...]): the
# tests are named PREFIX:PATH, the prefix being the program's name unless stated.
function(refit_add_unit_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;PREFIX" "SOURCES;LIBRARIES")
  if(NOT arg_SOURCES)
    set(arg_SOURCES unit/${name}.c)
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(NOT arg_PREFIX)
    set(arg_PREFIX ${name})
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_compile_definitions(
    ${name} PRIVATE REFIT_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}/tests"
                    REFIT_SOURCE_DATA_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE refit-disk refit-model ${arg_LIBRARIES} PkgConfig::JANSSON m)

  set(list ${CMAKE_CURRENT_BINARY_DIR}/${name}-paths.cmake)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}-include.cmake)
  add_custom_command(
    TARGET ${name} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}> -D NAME=${arg_PREFIX} -D
            LABEL=${arg_LABEL} -D SEED=${REFIT_TEST_SEED} -D OUTPUT=${list} -P
            ${PROJECT_SOURCE_DIR}/cmake/ListTestPaths.cmake
    BYPRODUCTS ${list}
    VERBATIM)
  # A program that was not built must show as a failure, not as tests that do not exist.
  file(WRITE ${include} "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n"
                        "  add_test(\"${name} is not built\" false)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
