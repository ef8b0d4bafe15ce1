# A man page bears a date: that of the version by its heading in the changes, or of the one before while it is open.
set(months January February March April May June July August September October November December)
file(STRINGS ${PROJECT_SOURCE_DIR}/CHANGELOG.md dated REGEX "^## [0-9.]+ .[0-9]+-[0-9]+-[0-9]+.$" LIMIT_COUNT 1)
string(REGEX MATCH "([0-9]+)-0*([0-9]+)-0*([0-9]+)" dated "${dated}")
math(EXPR month "${CMAKE_MATCH_2} - 1")
list(GET months ${month} month)
set(DISTAG_MAN_DATE "${month} ${CMAKE_MATCH_3}, ${CMAKE_MATCH_1}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
