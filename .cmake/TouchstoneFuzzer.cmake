# SPDX-License-Identifier: MIT
# touchstone_add_fuzzer(NAME SOURCES ... [LIBRARIES ...] [CORPUS folder])
#
# A libFuzzer target: one of the sources defines LLVMFuzzerTestOneInput. In every build it is also linked
# with a main that runs each file of CORPUS once (test NAME.corpus, label fast), so that what a fuzzer
# once found stays tested by every compiler and sanitizer. In a build with TOUCHSTONE_BUILD_FUZZERS (preset
# fuzz) the fuzzer itself is made, part of the target touchstone_fuzzers, and its test NAME.fuzz (label
# fuzz) runs for TOUCHSTONE_FUZZ_SECONDS (environment, default 30). What it finds is left in
# fuzzers/NAME.found of the build folder.
set(TOUCHSTONE_FUZZ_CORPUS_MAIN "${CMAKE_CURRENT_LIST_DIR}/../tests/fuzzing/corpus_main.cpp")
if(TOUCHSTONE_BUILD_FUZZERS)
  add_custom_target(touchstone_fuzzers)
endif()

function(touchstone_add_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS" "SOURCES;LIBRARIES")
  set(corpus "")
  if(arg_CORPUS)
    cmake_path(ABSOLUTE_PATH arg_CORPUS BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE corpus)
  endif()

  add_executable(${name}_corpus ${arg_SOURCES} "${TOUCHSTONE_FUZZ_CORPUS_MAIN}")
  target_link_libraries(${name}_corpus PRIVATE touchstone_build_flags ${arg_LIBRARIES})
  set_target_properties(${name}_corpus PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name}.corpus COMMAND ${name}_corpus ${corpus})
  set_tests_properties(${name}.corpus PROPERTIES LABELS fast)

  if(TOUCHSTONE_BUILD_FUZZERS)
    set(folder "${CMAKE_BINARY_DIR}/fuzzers")
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE touchstone_build_flags ${arg_LIBRARIES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${folder}")
    add_dependencies(touchstone_fuzzers ${name})
    file(MAKE_DIRECTORY "${folder}/${name}.found")
    # A shell, as the time is the environment's when the test runs.
    add_test(NAME ${name}.fuzz COMMAND sh -c
      "exec \"$@\" -max_total_time=\"\${TOUCHSTONE_FUZZ_SECONDS:-30}\"" sh
      $<TARGET_FILE:${name}> "-artifact_prefix=${folder}/${name}.found/" -print_final_stats=1 -timeout=10
      "${folder}/${name}.found" ${corpus})
    set_tests_properties(${name}.fuzz PROPERTIES LABELS fuzz TIMEOUT 86400)
  endif()
endfunction()
