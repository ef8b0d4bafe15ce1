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
                    -Wl,--gc-sections -Wl,--as-needed -Wl,--wrap=_Znwm -Wl,--wrap=_Znam)  # src/capi/operator_new.cpp
if(NOT DISTAG_SANITIZE)
  target_link_options(distag PRIVATE -Wl,-z,defs)
endif()

# libdistag.a: the same as one object whose only global symbols are distag_*, so that nothing of it (the modules' names)
# meets the host's. Position independent, as everything here is. A sanitizer's build has none.
if(DISTAG_SANITIZE)
  return()
endif()
set(distag_archives $<TARGET_FILE:distag_capi>)
foreach(module IN LISTS distag_seen_capi)
  list(APPEND distag_archives $<TARGET_FILE:${module}>)
endforeach()
set(distag_object ${PROJECT_BINARY_DIR}/distag_static.o)
find_program(DISTAG_GNU_LD NAMES ld.bfd ld REQUIRED)  # also where the compiler brings another linker
mark_as_advanced(DISTAG_GNU_LD)
add_custom_command(
  OUTPUT ${distag_object}
  COMMAND ${DISTAG_GNU_LD} -r --force-group-allocation --wrap=_Znwm --wrap=_Znam -o ${distag_object} --whole-archive ${distag_archives}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=distag_* ${distag_object}
  DEPENDS distag_capi ${distag_seen_capi}
  COMMENT "One object of all modules"
  VERBATIM COMMAND_EXPAND_LISTS)
set_source_files_properties(${distag_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(distag_static STATIC ${distag_object})
add_library(distag::distag_static ALIAS distag_static)
set_target_properties(distag_static PROPERTIES OUTPUT_NAME distag LINKER_LANGUAGE CXX)
target_compile_definitions(distag_static INTERFACE DISTAG_STATIC)
target_include_directories(distag_static INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Whoever links it links these as well, from C too.
set(distag_system_libraries stdc++ m pthread)
target_link_libraries(distag_static INTERFACE ${libzmq_LIBRARIES} ${libsodium_LIBRARIES} ${libisal_LIBRARIES} fmt
                                              ${distag_system_libraries})
