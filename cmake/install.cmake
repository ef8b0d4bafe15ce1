# What an install prefix holds: the library, the header, and how find_package and pkg-config find them.
if(NOT TARGET distag)
  return()
endif()
include(CMakePackageConfigHelpers)
set(distag_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/distag)

install(TARGETS distag EXPORT distagTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET distag_static)
  install(TARGETS distag_static EXPORT distagTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# What `cmake --install` wants to be there, for builds that want no more.
add_custom_target(installables DEPENDS distag)
if(TARGET distag_static)
  add_dependencies(installables distag_static)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/include/distag.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/bindings/cpp/distag.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/bindings/cpp/distag DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp")
# For those who make bindings, or read the protocol: the header as data, and the schemas.
install(FILES ${PROJECT_SOURCE_DIR}/bindings/api.json DESTINATION ${CMAKE_INSTALL_DATADIR}/distag)
install(FILES ${distag_schemas} DESTINATION ${CMAKE_INSTALL_DATADIR}/distag/schemas)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT distagTargets NAMESPACE distag:: DESTINATION ${distag_package_dir})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/distagConfig.cmake.in ${PROJECT_BINARY_DIR}/distagConfig.cmake
                              INSTALL_DESTINATION ${distag_package_dir})
# Before 1.0 a minor version may break what the one before promised.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/distagConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/distagConfig.cmake ${PROJECT_BINARY_DIR}/distagConfigVersion.cmake
        DESTINATION ${distag_package_dir})

# The prefix is found from the place of the file, so that an installed tree can be moved.
file(RELATIVE_PATH distag_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" distag_pc_prefix "${distag_pc_prefix}")
list(TRANSFORM distag_system_libraries PREPEND -l OUTPUT_VARIABLE distag_pc_system_libraries)
list(JOIN distag_pc_system_libraries " " distag_pc_system_libraries)
configure_file(${CMAKE_CURRENT_LIST_DIR}/distag.pc.in ${PROJECT_BINARY_DIR}/distag.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/distag.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
