# What distag is built from; scripts/setup.sh installs all of it.
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(xtensor REQUIRED)
find_package(xsimd REQUIRED)
pkg_check_modules(libzmq REQUIRED IMPORTED_TARGET libzmq>=4.3.4)
pkg_check_modules(libsodium REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(libisal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)
find_path(DISTAG_CURL_INCLUDE_DIR curl/curl.h REQUIRED)  # the headers alone: libcurl is loaded where it is used
find_path(DISTAG_PMIX_INCLUDE_DIR pmix.h REQUIRED  # likewise
          PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/include)
find_path(DISTAG_FLATBUFFERS_INCLUDE_DIR flatbuffers/flatbuffers.h REQUIRED)
find_program(DISTAG_FLATC flatc REQUIRED)
mark_as_advanced(DISTAG_CURL_INCLUDE_DIR DISTAG_FLATBUFFERS_INCLUDE_DIR DISTAG_FLATC
                 DISTAG_PMIX_INCLUDE_DIR)

if(DISTAG_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(benchmark REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

# The header alone: OpenBLAS is loaded with distag, not linked (base/threaded_library.h).
add_library(distag_cblas INTERFACE)
target_include_directories(distag_cblas SYSTEM INTERFACE ${openblas_INCLUDE_DIRS})

# Others' headers are no place for our warnings.
add_library(distag_xtensor INTERFACE)
target_link_libraries(distag_xtensor INTERFACE xtensor xsimd)

# Headers made from schemas/*.fbs, in the build tree, for wire alone.
file(GLOB distag_schemas CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/schemas/*.fbs)
set(distag_generated_dir ${PROJECT_BINARY_DIR}/generated)
set(distag_generated_headers "")
foreach(schema IN LISTS distag_schemas)
  get_filename_component(name ${schema} NAME_WE)
  set(header ${distag_generated_dir}/${name}_generated.h)
  add_custom_command(
    OUTPUT ${header}
    COMMAND ${DISTAG_FLATC} --cpp --cpp-std c++17 --scoped-enums -I ${PROJECT_SOURCE_DIR}/schemas
            -o ${distag_generated_dir} ${schema}
    DEPENDS ${distag_schemas}
    COMMENT "Schema ${name}.fbs")
  list(APPEND distag_generated_headers ${header})
endforeach()
add_custom_target(distag_schema_headers DEPENDS ${distag_generated_headers})
