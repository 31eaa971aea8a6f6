# How other projects find the libraries: headers, pkg-config files and a CMake package, all of the
# component "library".
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Refit)
set(libraries refit-api)
install(FILES ${PROJECT_SOURCE_DIR}/lib/refit.h TYPE INCLUDE COMPONENT library)
if(TARGET refit-m2n)
  list(APPEND libraries refit-m2n)
  install(FILES ${PROJECT_SOURCE_DIR}/lib/nccl_m2n.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/refit-m2n
          COMPONENT library)
endif()
install(TARGETS ${libraries} EXPORT RefitTargets LIBRARY COMPONENT library
                                                 NAMELINK_COMPONENT library)
install(EXPORT RefitTargets NAMESPACE Refit:: DESTINATION ${package} COMPONENT library)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/RefitConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/RefitConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/RefitConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/RefitConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/RefitConfigVersion.cmake
        DESTINATION ${package} COMPONENT library)

# refit_install_pc(FILE LIBRARY FOLDER DESCRIPTION): FILE.pc for -lLIBRARY and headers in FOLDER.
function(refit_install_pc file library folder description)
  set(pc_name ${file})
  set(pc_library ${library})
  set(pc_folder "${folder}")
  set(pc_description "${description}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/refit.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${file}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT library)
endfunction()

refit_install_pc(refit refit "" "Plans and carries out the move of model weights")
if(TARGET refit-m2n)
  refit_install_pc(refit-m2n refit_m2n /refit-m2n "The interface of NCCL M2N, on Refit")
endif()
