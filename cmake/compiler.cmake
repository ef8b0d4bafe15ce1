# How every translation unit is compiled. Targets take it by linking distag_compile.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, RelWithDebInfo (asserts stay on) or Release" FORCE)
endif()
# RelWithDebInfo is what the tests run: optimised, with asserts, and with line tables only, which compile faster.
set(distag_optimisation -O2)
if(DISTAG_SANITIZE)
  set(distag_optimisation -Og)
endif()
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "${distag_optimisation} -g1")
  set(CMAKE_${language}_FLAGS_DEBUG "-O0 -g1")
  set(CMAKE_${language}_FLAGS_RELEASE "-O2 -DNDEBUG")
  set(CMAKE_${language}_VISIBILITY_PRESET hidden)
endforeach()
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported()  # programs are linked as such, whatever the compiler does by itself
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Checkouts in other folders find the same objects in the cache; their line tables may name one another's files.
find_program(DISTAG_CCACHE ccache)
mark_as_advanced(DISTAG_CCACHE)
if(DISTAG_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(distag_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${DISTAG_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${distag_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${distag_launcher})
endif()

# With DISTAG_UNITY, several sources of a target as one: most of the time of each goes into the same headers.
function(distag_compile_in_batches target)
  if(DISTAG_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

find_package(Threads REQUIRED)
add_library(distag_compile INTERFACE)
target_compile_options(distag_compile INTERFACE -Wall -Wextra -Wshadow -Wconversion)
if(DISTAG_WERROR)
  target_compile_options(distag_compile INTERFACE -Werror)
endif()
# Results must not depend on which multiplications the compiler fuses.
target_compile_options(distag_compile INTERFACE -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 takes alternatives of a std::variant that is moved for used uninitialized; whether it does so changes with
  # inlining. Clang's analysis stays on.
  target_compile_options(distag_compile INTERFACE -Wno-maybe-uninitialized)
  # A unique symbol keeps its library mapped for ever; libdistag.so has to go when it is unloaded.
  target_compile_options(distag_compile INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
else()
  target_compile_options(distag_compile INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
endif()
target_link_libraries(distag_compile INTERFACE Threads::Threads)

if(DISTAG_SANITIZE STREQUAL "address")
  # A null pointer that is read ends the program here as well; the checks for it are a fifth of the time to compile.
  set(distag_sanitize_flags -fsanitize=address,undefined -fno-sanitize=null -fno-sanitize-recover=all
                            -fno-omit-frame-pointer)
elseif(DISTAG_SANITIZE STREQUAL "thread")
  set(distag_sanitize_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(DISTAG_SANITIZE)
  message(FATAL_ERROR "DISTAG_SANITIZE is \"${DISTAG_SANITIZE}\": use address, thread, or leave it empty")
endif()
if(DISTAG_SANITIZE)
  add_compile_options(${distag_sanitize_flags})
  add_link_options(${distag_sanitize_flags})
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  if(DISTAG_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_definitions(__SANITIZE_ADDRESS__)  # as gcc does
  endif()
endif()
if(DISTAG_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "DISTAG_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
