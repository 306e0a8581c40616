# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What the lab's scripts share. Sourced, not run.

# Exit codes, the same in every script of the lab.
readonly EXIT_FAILED=1    # a measurement or a check failed
readonly EXIT_USAGE=2     # the command line makes no sense
readonly EXIT_MISSING=3   # a tool, a kernel source or a feature is missing
readonly EXIT_SPACE=4     # not enough disk space
readonly EXIT_PATCH=5     # a patch does not apply
readonly EXIT_BUILD=6     # the compiler or the kernel's build failed
readonly EXIT_PANIC=7     # the guest's kernel died
readonly EXIT_TIMEOUT=8   # the guest did not finish in time

lab_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
patch_dir=$(dirname "$lab_dir")
cache_dir=${TOUCHSTONE_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/touchstone/kernels}

readonly all_kernels="6.1 6.12"
readonly all_series="stock v5 ours ours+exclusives mm-fix ours+mm-fix"
# Those that switch one thing off or on which a seed is about; Linux 6.12 only.
readonly seed_series="protect-faults unsealed self-madvise one-lock"

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { local code=$1; shift; say "$*"; exit "$code"; }

# need TOOL PACKAGE: the tool, or a message that says where it comes from.
need() {
	command -v "$1" >/dev/null ||
		die $EXIT_MISSING "$1 is missing (Debian package: $2)"
}

# The prefix of the cross compiler, empty on arm64 itself.
cross_prefix() {
	if [ "$(uname -m)" = aarch64 ]; then echo ""; else echo aarch64-linux-gnu-; fi
}

# need_space DIRECTORY MIB: dies unless that much is free.
need_space() {
	local free
	mkdir -p "$1" || die $EXIT_SPACE "cannot make $1"
	free=$(df --output=avail -m "$1" | tail -n 1)
	[ "$free" -ge "$2" ] ||
		die $EXIT_SPACE "$1 has $free MiB free, $2 MiB are needed"
}

contains() { case " $1 " in *" $2 "*) return 0 ;; esac; return 1; }
