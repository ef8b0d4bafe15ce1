# The ABI is numbered in one place, the header: DISTAG_ABI_MAJOR is what the soname ends in.
function(distag_set_soname target header)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(STRINGS ${header} line REGEX "^#define DISTAG_ABI_MAJOR [0-9]+")
  if(NOT line MATCHES "^#define DISTAG_ABI_MAJOR ([0-9]+)")
    message(FATAL_ERROR "${header} does not define DISTAG_ABI_MAJOR")
  endif()
  set_target_properties(${target} PROPERTIES SOVERSION ${CMAKE_MATCH_1})
endfunction()
