# Two small cases on networks of shaped links, one of them in chunks: their bytes. Times are looked at by hand, as in
# docs/validation.md. Not under ThreadSanitizer: sockets order more than a GPU does.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND AND NOT REFIT_SANITIZE MATCHES thread)
  add_test(NAME standin:shaped
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/validation/shaped/measure
                   $<TARGET_FILE:refit-run-standin> two-replicas chunks --strategy refit --bytes-only)
  set_tests_properties(
    standin:shaped
    PROPERTIES LABELS gpu-standin TIMEOUT 300 SKIP_RETURN_CODE 77
               ENVIRONMENT "G_DEBUG=fatal-criticals;G_SLICE=always-malloc;REFIT_DATA=${PROJECT_SOURCE_DIR}")
endif()
