# SPDX-License-Identifier: MIT
# Cross-compile for arm64 Linux with Debian's multiarch libraries; tests run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_IGNORE_PREFIX_PATH /usr/local)
# There is no pkg-config binary for the target: point the host's one at the target's files.
set(ENV{PKG_CONFIG_LIBDIR} "/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig")

find_program(TOUCHSTONE_QEMU_USER NAMES qemu-aarch64-static qemu-aarch64)
if(TOUCHSTONE_QEMU_USER)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${TOUCHSTONE_QEMU_USER};-L;/")
endif()
