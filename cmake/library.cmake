# libdistag.so: the C API and what it needs of the modules, exporting distag_* and nothing else.
if(NOT TARGET distag_capi)
  return()
endif()
add_library(distag SHARED $<TARGET_OBJECTS:distag_capi>)
add_library(distag::distag ALIAS distag)
set_target_properties(distag PROPERTIES VERSION ${PROJECT_VERSION} LINKER_LANGUAGE CXX
                      LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/distag.map)
distag_set_soname(distag ${PROJECT_SOURCE_DIR}/include/distag.h)
target_include_directories(distag INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(distag PRIVATE ${distag_seen_capi} distag_compile)
target_link_options(distag PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/distag.map -Wl,--exclude-libs,ALL
                    -Wl,--gc-sections -Wl,--as-needed)
if(NOT DISTAG_SANITIZE)
  target_link_options(distag PRIVATE -Wl,-z,defs)
endif()
