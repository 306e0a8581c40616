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

apt_folder=/etc/apt
# The source file that .ci/deps adds where a release's own packages are too old.
extra_source=$apt_folder/sources.list.d/touchstone.sources

# own_source SUITE...: prints "URI<tab>options" of the machine's own apt source for the first of these
# suites that it has; options are deb822 lines. Reads both forms of source files, but not extra_source.
own_source() {
  local file uri="" suites="" signed="" types="" disabled=false line
  for file in "$apt_folder"/sources.list.d/*.sources; do
    [[ -e $file && $file != "$extra_source" ]] || continue
    while IFS= read -r line || [[ -n $line ]]; do
      case $line in
        '#'*) ;;
        Types:*) types=${line#*:} ;;
        Enabled:*no*) disabled=true ;;
        URIs:*) uri=${line#*:} ;;
        Suites:*) suites=${line#*:} ;;
        Signed-By:*) signed=${line#*:} ;;
        '')
          ! $disabled && own_source_matches "$@" && return 0
          uri="" suites="" signed="" types="" disabled=false
          ;;
      esac
    done < <(cat "$file" && echo)
  done
  for file in "$apt_folder"/sources.list "$apt_folder"/sources.list.d/*.list; do
    [[ -e $file ]] || continue
    while IFS= read -r line || [[ -n $line ]]; do
      if [[ $line =~ ^deb[[:space:]]+(\[([^]]*)\][[:space:]]+)?([^[:space:]]+)[[:space:]]+([^[:space:]]+)[[:space:]]+main ]]; then
        local bracket=${BASH_REMATCH[2]}
        types=deb uri=${BASH_REMATCH[3]} suites=${BASH_REMATCH[4]} signed=""
        [[ $bracket =~ signed-by=([^[:space:]]+) ]] && signed=${BASH_REMATCH[1]}
        own_source_matches "$@" && return 0
      fi
    done <"$file"
  done
  return 1
}
own_source_matches() {
  [[ " $types " == *" deb "* && -n $uri ]] || return 1
  local wanted
  for wanted in "$@"; do
    if [[ " $suites " == *" $wanted "* ]]; then
      read -r uri _ <<<"$uri"
      read -r signed _ <<<"$signed"
      printf '%s\t%s' "$uri" "${signed:+Signed-By: $signed}"
      return 0
    fi
  done
  return 1
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
