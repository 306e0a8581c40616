# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the tests of kernel-patch. Arguments of each: the kernel-patch folder, a folder to work in.
set -euo pipefail
export LC_ALL=C
patch_dir=$1
work=$2
shift 2
lab=$patch_dir/lab
rm -rf "$work"
mkdir -p "$work"

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}
skip() {
  printf 'skipped: %s\n' "$*" >&2
  exit 77
}
# tarball VERSION: the kernel source, or a skip that says what is missing.
tarball() {
  local file=${TOUCHSTONE_KERNEL_SOURCES:-/usr/src}/linux-source-$1.tar.xz
  [ -r "$file" ] || skip "$file is not there"
  echo "$file"
}
