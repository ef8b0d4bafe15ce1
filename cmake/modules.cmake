# One static library distag_<folder> per folder of src/, linked to exactly what src/layers.txt lets it see. A folder
# without source files has no library.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/layers.txt)
file(STRINGS ${PROJECT_SOURCE_DIR}/src/layers.txt distag_layer_lines REGEX "^([0-9]+|deny) ")

set(distag_modules "") # lowest layer first
foreach(line IN LISTS distag_layer_lines)
  separate_arguments(words UNIX_COMMAND "${line}")
  list(POP_FRONT words number)
  if(number STREQUAL "deny")
    list(POP_FRONT words module)
    set(distag_denied_${module} ${words})
    continue()
  endif()
  list(PREPEND distag_modules ${words})
  foreach(module IN LISTS words)
    set(distag_layer_${module} ${number})
  endforeach()
endforeach()

# What each folder uses from outside, beside the standard library.
set(distag_public_base fmt::fmt)
set(distag_private_tensor distag_xtensor)
set(distag_private_ops distag_xtensor distag_cblas)
set(distag_private_transport PkgConfig::libzmq PkgConfig::libsodium)
set(distag_private_wire PkgConfig::libisal)
set(distag_private_store PkgConfig::libisal)

# tests/faults has its own object of the first. Paths of this checkout are for the sources that need them: the others
# compile alike everywhere.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/worker/threaded_worker.cpp
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
if(DISTAG_LONG_TASKS_FILE)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/worker/long_tasks.cpp PROPERTIES COMPILE_DEFINITIONS
                              "DISTAG_LONG_TASKS_FILE=\"${DISTAG_LONG_TASKS_FILE}\"")
endif()

foreach(module IN LISTS distag_modules)
  set(distag_seen_${module} "")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${module}/*.cpp
       ${PROJECT_SOURCE_DIR}/src/${module}/*/*.cpp)
  foreach(lower IN LISTS distag_modules)
    if(distag_layer_${lower} LESS distag_layer_${module} AND TARGET distag_${lower} AND NOT lower IN_LIST distag_denied_${module})
      list(PREPEND distag_seen_${module} distag_${lower})
    endif()
  endforeach()
  if(NOT sources)
    continue()
  endif()
  add_library(distag_${module} STATIC ${sources})
  # Rules of optim and engines of transport name their parts alike on purpose, each in its own source.
  if(NOT module MATCHES "^(optim|transport)$")
    distag_compile_in_batches(distag_${module})
  endif()
  target_include_directories(distag_${module} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(distag_${module} PUBLIC distag_compile ${distag_seen_${module}} ${distag_public_${module}}
                        PRIVATE ${distag_private_${module}})
endforeach()

# Headers that fences keep in source files may still be found by everybody: tests/layers is what refuses them.
# Kernels are loops that the compiler vectorises, which square roots that set errno would prevent.
foreach(module ops optim)
  if(TARGET distag_${module} AND NOT DISTAG_SANITIZE)
    target_compile_options(distag_${module} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3> -fno-math-errno -fno-trapping-math)
  endif()
endforeach()
if(TARGET distag_wire)
  target_include_directories(distag_wire SYSTEM PRIVATE ${distag_generated_dir} ${DISTAG_FLATBUFFERS_INCLUDE_DIR})
  add_dependencies(distag_wire distag_schema_headers)
endif()
if(TARGET distag_group)
  target_include_directories(distag_group SYSTEM PRIVATE ${DISTAG_PMIX_INCLUDE_DIR})
endif()
# The ABI gate (tests/abi) reads the types of the interface in the debug information of the build that the tests run.
set(DISTAG_HAS_TYPES OFF)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT DISTAG_SANITIZE)
  set(DISTAG_HAS_TYPES ON)
endif()
if(TARGET distag_capi)
  target_compile_options(distag_capi PRIVATE $<$<BOOL:${DISTAG_HAS_TYPES}>:-g>)
  target_include_directories(distag_capi PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(distag_capi PRIVATE DISTAG_BUILD)
endif()
