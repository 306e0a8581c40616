# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What .ci/deps, tests/run and bench/run share. Sourced by bash; sets `top` to the checkout's root.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# say TEXT...: a line of progress, on standard output.
say() { printf '== %s\n' "$*"; }

# complain TEXT...: one line on standard error, with the name of the script that was started.
complain() { printf '%s: %s\n' "${script_name:-${0##*/}}" "$*" >&2; }

# usage_error TEXT...: what was wrong and what is accepted, on one line; leaves with 2.
usage_error() {
  complain "$*"
  exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# minutes SECONDS: as M:SS.
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# A folder for small probes, removed when the script ends.
scratch_folder() {
  if [[ -z ${scratch:-} ]]; then
    scratch=$(mktemp -d) || return 1
    trap 'rm -rf "$scratch"' EXIT
  fi
}

# compiles_cxx23 COMPILER: builds a program that needs C++23's std::expected.
compiles_cxx23() {
  have "$1" && scratch_folder || return 1
  cat >"$scratch/expected.cpp" <<'CPP'
#include <expected>
int main() {
  std::expected<int, int> value{0};
  return value.value();
}
CPP
  "$1" -std=c++23 -o "$scratch/expected" "$scratch/expected.cpp" >/dev/null 2>&1
}

# find_compiler: the first C++ compiler here that will do, with its C companion, in `cxx` and `cc`.
# $CXX is taken at its word: a compiler that was asked for is not replaced by another.
find_compiler() {
  local candidate
  if [[ -n ${CXX:-} ]]; then
    cxx=$CXX cc=${CC:-cc}
    compiles_cxx23 "$cxx"
    return
  fi
  for candidate in c++ g++ g++-{16,15,14,13,12} clang++ clang++-{22,21,20,19}; do
    if compiles_cxx23 "$candidate"; then
      cxx=$candidate
      case $candidate in
        c++) cc=cc ;;
        g++*) cc=gcc${candidate#g++} ;;
        clang++*) cc=clang${candidate#clang++} ;;
      esac
      return 0
    fi
  done
  return 1
}

# use_compiler: exports CXX and CC when the one CMake would take by itself will not do.
use_compiler() {
  find_compiler || { complain "no C++ compiler here builds a program with std::expected"; return 1; }
  if [[ $cxx != c++ ]]; then
    export CXX=$cxx CC=$cc
  fi
}

# configure_and_build PRESET [TARGET...]
configure_and_build() {
  local preset=$1 targets=()
  shift
  (($# == 0)) || targets=(--target "$@")
  say "configure ($preset)"
  (cd "$top" && cmake --preset "$preset") || return
  say "build ($preset)"
  (cd "$top" && cmake --build --preset "$preset" "${targets[@]}")
}
