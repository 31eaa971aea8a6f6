# Compiler settings that hold for every target of the project.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # g_autoptr needs GNU C
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Programmer mistakes are caught by g_assert, in every kind of build; nothing here uses assert().
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")

# nvcc hands warnings to the host compiler, and what that makes of nvcc's own code is not ours to mend.
set(host "$<COMPILE_LANGUAGE:C,CXX>")
add_compile_options(
  "$<${host}:-Wall;-Wextra;-Wshadow;-Wconversion;-Wformat=2;-Wvla;-Wundef>"
  "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
if(REFIT_WERROR)
  add_compile_options("$<${host}:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()

add_compile_definitions(GLIB_VERSION_MIN_REQUIRED=GLIB_VERSION_2_74
                        GLIB_VERSION_MAX_ALLOWED=GLIB_VERSION_2_74
                        G_LOG_DOMAIN="refit")

if(REFIT_SANITIZE)
  add_compile_options("$<${host}:-fsanitize=${REFIT_SANITIZE};-fno-sanitize-recover=all>"
                      "$<${host}:-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${REFIT_SANITIZE})
  # GCC warns of fences in the headers of C++ libraries, which ThreadSanitizer does not follow.
  if(REFIT_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()
if(REFIT_COVERAGE)
  add_compile_options("$<${host}:--coverage;-fprofile-update=atomic>")
  add_link_options(--coverage)
endif()
