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
  touchstone_use_precompiled(${name} tests)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  set(properties LABELS ${arg_LABEL})
  if(arg_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${name}
    TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES ${properties})
endfunction()

# touchstone_compile_readme(NAME FILE README [LIBRARIES ...])
#
# Compiles each ```cpp and each ```c block of a Markdown file as a source file of its own, so that what
# it shows stays true. A block is whole: includes, then functions. Blocks must not contain backquotes.
function(touchstone_compile_readme name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILE" "LIBRARIES")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${arg_FILE}")
  set(sources)
  foreach(language cpp c)
    file(READ "${arg_FILE}" rest)
    # By position and not as a list: code is full of semicolons and brackets.
    string(FIND "${rest}" "```${language}\n" begin)
    while(NOT begin EQUAL -1)
      string(LENGTH "```${language}\n" mark)
      math(EXPR begin "${begin} + ${mark}")
      string(SUBSTRING "${rest}" ${begin} -1 rest)
      string(FIND "${rest}" "```" end)
      if(end EQUAL -1)
        message(FATAL_ERROR "${arg_FILE}: a ${language} block has no end")
      endif()
      string(SUBSTRING "${rest}" 0 ${end} block)
      math(EXPR end "${end} + 3")
      string(SUBSTRING "${rest}" ${end} -1 rest)
      list(LENGTH sources number)
      set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}/block_${number}.${language}")
      file(CONFIGURE OUTPUT "${source}" CONTENT "${block}" @ONLY)
      list(APPEND sources "${source}")
      string(FIND "${rest}" "```${language}\n" begin)
    endwhile()
  endforeach()
  if(NOT sources)
    message(FATAL_ERROR "${arg_FILE}: no cpp and no c blocks")
  endif()
  add_library(${name} OBJECT ${sources})
  target_link_libraries(${name} PRIVATE touchstone_build_flags ${arg_LIBRARIES})
endfunction()
