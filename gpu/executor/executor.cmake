# The executor: a plugin that programs load, so that nothing else links CUDA or NCCL. Its host code is
# compiled once, for the plugin and for the tests on the CPU stand-in.
set(executor
  refit-gpu-agree.c
  refit-gpu-boxes.c
  refit-gpu-comm.c
  refit-gpu-connect.c
  refit-gpu-fabric.c
  refit-gpu-flow.c
  refit-gpu-place.c
  refit-gpu-prepare.c
  refit-gpu-result.c
  refit-gpu-run.c
  refit-gpu.c
  refit-host.c
  refit-strided.c)
list(TRANSFORM executor PREPEND ${CMAKE_CURRENT_LIST_DIR}/ OUTPUT_VARIABLE REFIT_GPU_EXECUTOR)
set(REFIT_GPU_EXECUTOR ${REFIT_GPU_EXECUTOR} PARENT_SCOPE)
set(REFIT_GPU_EXPORTS -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/refit-gpu.map
                      -Wl,--exclude-libs,ALL)
set(REFIT_GPU_EXPORTS ${REFIT_GPU_EXPORTS} PARENT_SCOPE)

if(REFIT_NVCC)
  find_package(CUDAToolkit REQUIRED)
  add_library(refit-gpu-host OBJECT ${REFIT_GPU_EXECUTOR})
  target_include_directories(refit-gpu-host SYSTEM PUBLIC ${REFIT_GPU_INCLUDE_DIRS})
  target_link_libraries(refit-gpu-host PUBLIC refit-model)
  set_target_properties(refit-gpu-host PROPERTIES POSITION_INDEPENDENT_CODE ON)

  add_library(refit-gpu MODULE)
  target_link_libraries(refit-gpu PRIVATE refit-gpu-host refit-gpu-kernels refit-model ${NCCL_LIBRARY}
                                          CUDA::cudart_static)
  target_link_options(refit-gpu PRIVATE ${REFIT_GPU_EXPORTS} -Wl,--no-undefined)
  set_target_properties(
    refit-gpu PROPERTIES PREFIX "" LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY Static
                         LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  install(TARGETS refit-gpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/refit)
endif()
