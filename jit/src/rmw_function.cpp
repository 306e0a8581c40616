// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <touchstone/jit/rmw_function.h>

namespace touchstone::jit {

const arch::CpuFeatures& host_features() noexcept {
  static const arch::CpuFeatures features = arch::cpu_features();
  return features;
}

RmwTarget best_rmw_target(const arch::CpuFeatures& features,
                          InstructionSet instruction_set) noexcept {
  using arch::CpuFeature;
  if (instruction_set == InstructionSet::kX86_64) {
    return features.has(CpuFeature::kCx16) ? RmwTarget::kX86_64Cx16 : RmwTarget::kX86_64;
  }
  if (!features.has(CpuFeature::kLse)) return RmwTarget::kA64Llsc;
  return features.has(CpuFeature::kLse128) ? RmwTarget::kA64Lse128 : RmwTarget::kA64Lse;
}

bool can_run(RmwTarget target, const arch::CpuFeatures& features,
             InstructionSet instruction_set) noexcept {
  using arch::CpuFeature;
  if (is_a64(target) != (instruction_set == InstructionSet::kA64)) return false;
  switch (target) {
    case RmwTarget::kA64Llsc:
    case RmwTarget::kX86_64:
      return true;
    case RmwTarget::kA64Lse:
      return features.has(CpuFeature::kLse);
    case RmwTarget::kA64Lse128:
      return features.has(CpuFeature::kLse) && features.has(CpuFeature::kLse128);
    case RmwTarget::kX86_64Cx16:
      return features.has(CpuFeature::kCx16);
  }
  return false;
}

Result<RmwFunction> RmwFunction::create(CodeCache& cache, const RmwShape& shape) {
  std::array<std::byte, kMaxRmwFunctionSize> code{};
  const Result<std::size_t> size = emit_rmw_function(shape, code);
  if (!size) return std::unexpected(size.error());
  if (!can_run(shape.target, host_features())) {
    return std::unexpected(Error{.code = ErrorCode::kUnsupported,
                                 .operation = "RmwFunction::create",
                                 .detail = "this CPU does not run the target's instructions"});
  }
  const Result<const void*> address =
      cache.add(std::span(code).first(*size), "touchstone rmw " + to_string(shape));
  if (!address) return std::unexpected(address.error());
  return RmwFunction(&cache, shape, *address);
}

Result<RmwFunction> RmwFunction::create_for_host(CodeCache& cache, RmwShape shape) {
  shape.target = best_rmw_target(host_features());
  return create(cache, shape);
}

RmwFunction::RmwFunction(RmwFunction&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      shape_(other.shape_),
      address_(std::exchange(other.address_, nullptr)) {}

RmwFunction& RmwFunction::operator=(RmwFunction&& other) noexcept {
  if (this != &other) {
    reset();
    cache_ = std::exchange(other.cache_, nullptr);
    shape_ = other.shape_;
    address_ = std::exchange(other.address_, nullptr);
  }
  return *this;
}

RmwFunction::~RmwFunction() {
  reset();
}

void RmwFunction::reset() noexcept {
  if (cache_ == nullptr) return;
  // The only way this fails is in a forked child, whose cache is frozen: then the code stays.
  static_cast<void>(cache_->release(address_));
  cache_ = nullptr;
}

Result<RmwValue> RmwFunction::operator()(void* address, RmwValue operand,
                                         RmwValue expected) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at == 0 || at % shape_.width != 0) {
    return std::unexpected(Error{
        .code = at == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kMisaligned,
        .operation = "RmwFunction",
        .address = at,
        .length = shape_.width,
        .detail = at == 0 ? "the address is null" : "the address is no multiple of the width"});
  }
  if (shape_.width == 16) return entry16()(address, operand, expected);
  return RmwValue{.low = entry()(address, operand.low, expected.low), .high = 0};
}

RmwEntry RmwFunction::entry() const noexcept {
  return shape_.width == 16 ? nullptr : std::bit_cast<RmwEntry>(address_);
}

RmwEntry16 RmwFunction::entry16() const noexcept {
  return shape_.width == 16 ? std::bit_cast<RmwEntry16>(address_) : nullptr;
}

}  // namespace touchstone::jit
