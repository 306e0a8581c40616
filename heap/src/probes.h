// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_HEAP_SRC_PROBES_H_
#define TOUCHSTONE_HEAP_SRC_PROBES_H_

/// USDT probes of the provider "touchstone", where sys/sdt.h was there when this was built. One
/// costs a nop until a tracer is attached.
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define TOUCHSTONE_PROBE2(name, a, b) DTRACE_PROBE2(touchstone, name, a, b)
#define TOUCHSTONE_PROBE4(name, a, b, c, d) DTRACE_PROBE4(touchstone, name, a, b, c, d)
#else
#define TOUCHSTONE_PROBE2(name, a, b) ((void)(a), (void)(b))
#define TOUCHSTONE_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif  // TOUCHSTONE_HEAP_SRC_PROBES_H_
