# SPDX-License-Identifier: MIT
# touchstone_check_emulator()
#
# In a cross build, runs a small program under CMAKE_CROSSCOMPILING_EMULATOR and refuses an emulator that
# keeps running old code after a dual-mapped page was rewritten: every test of the code cache would then
# fail, or pass, for the wrong reason. (QEMU's user mode did so in 7.2 and does not in 10.0.) Asked anew at
# every configure, as the emulator may have been replaced since.
function(touchstone_check_emulator)
  if(NOT CMAKE_CROSSCOMPILING OR NOT TOUCHSTONE_TARGET_ARCH STREQUAL "aarch64")
    return()
  endif()
  if(NOT CMAKE_CROSSCOMPILING_EMULATOR)
    message(FATAL_ERROR
      "The arm64 tests need a user-mode emulator (qemu-aarch64-static or qemu-aarch64), and none was "
      "found. `.ci/deps arm64` installs one; -DTOUCHSTONE_BUILD_TESTS=OFF builds without tests.")
  endif()
  unset(TOUCHSTONE_EMULATOR_RESULT CACHE)
  unset(TOUCHSTONE_EMULATOR_COMPILED CACHE)
  try_run(TOUCHSTONE_EMULATOR_RESULT TOUCHSTONE_EMULATOR_COMPILED
    "${PROJECT_BINARY_DIR}/emulator-probe"
    "${PROJECT_SOURCE_DIR}/.cmake/emulator-probe/stale_code.c"
    COMPILE_OUTPUT_VARIABLE compile_output
    RUN_OUTPUT_VARIABLE run_output)
  list(GET CMAKE_CROSSCOMPILING_EMULATOR 0 emulator)
  string(STRIP "${run_output}" run_output)
  if(NOT TOUCHSTONE_EMULATOR_COMPILED)
    message(FATAL_ERROR "The emulator probe does not compile:\n${compile_output}")
  elseif(NOT TOUCHSTONE_EMULATOR_RESULT EQUAL 0)
    message(FATAL_ERROR
      "${emulator} cannot run the arm64 tests. The probe rewrites code in a dual-mapped page, maintains "
      "the caches and calls it; it said \"${run_output}\" and ended with ${TOUCHSTONE_EMULATOR_RESULT}. "
      "QEMU 10 or later does it right; `.ci/deps arm64` installs one, and -DTOUCHSTONE_QEMU_USER=PATH "
      "names another.")
  endif()
  message(STATUS "Emulator ${emulator}: ${run_output}")
endfunction()
