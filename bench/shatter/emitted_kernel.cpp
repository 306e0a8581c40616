// SPDX-License-Identifier: MIT
#include "emitted_kernel.h"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <touchstone/jit/disassembly.h>

namespace touchstone::shatter {

EmittedKernel::EmittedKernel(std::unique_ptr<jit::CodeCache> cache, jit::TouchKernel kernel,
                             std::string instruction, std::string listing)
    : cache_(std::move(cache)),
      kernel_(std::move(kernel)),
      instruction_(std::make_unique<std::string>(std::move(instruction))),
      listing_(std::move(listing)),
      named_(kernel_.for_pretouch()) {
  named_.name = instruction_->c_str();
}

Result<EmittedKernel> EmittedKernel::create(const jit::TouchShape& shape) {
  auto cache = jit::CodeCache::create({.capacity = std::size_t{64} << 10U});
  if (!cache) return std::unexpected(cache.error());
  auto kernel = jit::TouchKernel::create(**cache, shape);
  if (!kernel) return std::unexpected(kernel.error());

  // The same bytes once more: code in the cache may be execute-only.
  std::array<std::byte, jit::kMaxTouchKernelSize> code{};
  const auto size = jit::emit_touch_kernel(shape, code);
  if (!size) return std::unexpected(size.error());
  const auto instructions =
      jit::disassemble(jit::kHostInstructionSet, std::span(code).first(*size));
  if (!instructions) return std::unexpected(instructions.error());
  std::string accesses;
  std::string listing;
  for (const jit::DisassembledInstruction& each : *instructions) {
    listing += "    " + each.text() + "\n";
    // Both assembly languages put an address in brackets; LEA and padding only look like it.
    const bool accesses_memory = each.operands.find('[') != std::string::npos &&
                                 each.mnemonic != "lea" && each.mnemonic != "nop";
    if (!accesses_memory && each.mnemonic != "dc") continue;
    if (!accesses.empty()) accesses += "; ";
    accesses += each.text();
  }
  return EmittedKernel(std::move(*cache), std::move(*kernel), std::move(accesses),
                       std::move(listing));
}

}  // namespace touchstone::shatter
