# SPDX-License-Identifier: MIT
# Language level, warnings, sanitizers and output folders that every target of the project shares.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(TOUCHSTONE_STATIC)
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-static>)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "Touchstone runs on Linux only; this is ${CMAKE_SYSTEM_NAME}.")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(TOUCHSTONE_TARGET_ARCH x86_64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(TOUCHSTONE_TARGET_ARCH aarch64)
else()
  message(FATAL_ERROR
    "Touchstone runs on x86-64 and arm64 only; this is ${CMAKE_SYSTEM_PROCESSOR}.")
endif()

if(TOUCHSTONE_DEVELOPER)
  find_program(TOUCHSTONE_CCACHE ccache)
  mark_as_advanced(TOUCHSTONE_CCACHE)
  if(TOUCHSTONE_CCACHE)
    # The second word and the options below are what it asks for to keep what uses precompiled headers.
    set(CMAKE_C_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${TOUCHSTONE_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_C_COMPILER_LAUNCHER}")
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

# Properties every target of the project carries, and no consumer sees.
add_library(touchstone_build_flags INTERFACE)
if(TOUCHSTONE_DEVELOPER)
  target_compile_options(touchstone_build_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wundef -Wvla
    # Designated initialisers leave out, on purpose, what keeps its default.
    -Wno-missing-field-initializers
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast>
    -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns falsely where strings are added to temporary ones (GCC bug 105651 and its like).
    target_compile_options(touchstone_build_flags INTERFACE
      -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
  endif()
endif()
if(TOUCHSTONE_CCACHE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(touchstone_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  else()
    target_compile_options(touchstone_build_flags INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()
if(TOUCHSTONE_SANITIZE)
  target_compile_options(touchstone_build_flags INTERFACE
    -fsanitize=${TOUCHSTONE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(touchstone_build_flags INTERFACE -fsanitize=${TOUCHSTONE_SANITIZE})
endif()
if(TOUCHSTONE_BUILD_FUZZERS)
  target_compile_options(touchstone_build_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(touchstone_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
