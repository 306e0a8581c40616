# SPDX-License-Identifier: MIT
# touchstone_add_test(NAME SOURCES ... [LIBRARIES ...] [LABEL fast|slow|soak|kernel] [SERIAL])
#
# A GoogleTest program whose cases become ctest tests, found when ctest starts (so that a cross build
# needs no emulator). fast: seconds, in `tests/run`. slow: minutes, in `tests/run --all`. soak and
# kernel are left out of the test presets and run by name. SERIAL keeps cases that count system-wide
# things or use most of memory from running beside others.
include(GoogleTest)
function(touchstone_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "LABEL" "SOURCES;LIBRARIES")
  if(NOT arg_LABEL)
    set(arg_LABEL fast)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE
    touchstone_build_flags ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  set(properties LABELS ${arg_LABEL})
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${name}
    TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES ${properties})
endfunction()
