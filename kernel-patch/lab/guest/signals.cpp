// SPDX-License-Identifier: GPL-2.0-only
#include "signals.h"

#include <cstdint>
#include <cstdio>
#include <span>

#include <asm/sigcontext.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "fault_handler.h"
#include "machine.h"
#include "report.h"
#include "touch.h"

namespace lab {
namespace {

sigjmp_buf escape;
siginfo_t seen;
uint64_t seen_esr;

void on_fault(int, siginfo_t* info, void* context) {
  seen = *info;
  seen_esr = 0;
  auto* record =
      reinterpret_cast<_aarch64_ctx*>(static_cast<ucontext_t*>(context)->uc_mcontext.__reserved);
  while (record->magic != 0) {
    if (record->magic == ESR_MAGIC) seen_esr = reinterpret_cast<esr_context*>(record)->esr;
    record = reinterpret_cast<_aarch64_ctx*>(reinterpret_cast<char*>(record) + record->size);
  }
  siglongjmp(escape, 1);
}

void touch_forbidden(const Touch& touch, const char* memory, int protection, bool is_resident,
                     LoopPage::Text text) {
  const LoopPage page(touch, text);
  Mapping region(page_size(), 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (is_resident) *reinterpret_cast<volatile uint64_t*>(region.begin()) = 0;
  mprotect(region.begin(), region.size(), protection);
  seen = {};
  seen_esr = 0;
  if (sigsetjmp(escape, 1) == 0) page.loop()(region.begin(), region.end(), page_size(), 0, 0);
  Line("signal")
      .add("touch", touch.name)
      .add("memory", memory)
      .add("text", text == LoopPage::Text::kNormal ? "normal" : "execute-only")
      .add("signal", seen.si_signo)
      .add("code", seen.si_code)
      .add("at_address", seen.si_signo != 0 && seen.si_addr == region.begin())
      .add("esr", seen_esr)
      .print();
}

}  // namespace

void run_signals() {
  const std::span<const LoopPage::Text> texts = texts_to_run();
  for (const Touch& touch : all_touches()) {
    if (touch.kind == TouchKind::kPopulate || !touch.headline || !executes(touch)) continue;
    const FaultHandler handler(on_fault);
    for (const LoopPage::Text text : texts) {
      touch_forbidden(touch, "none", PROT_NONE, false, text);
      touch_forbidden(touch, "none-resident", PROT_NONE, true, text);
      touch_forbidden(touch, "read-only", PROT_READ, false, text);
      touch_forbidden(touch, "read-only-resident", PROT_READ, true, text);
    }
  }
}

}  // namespace lab
