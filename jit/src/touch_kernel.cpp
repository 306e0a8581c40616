// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <asmjit/arm/a64assembler.h>
#include <asmjit/core.h>
#include <asmjit/x86.h>

#include <touchstone/arch/machine.h>
#include <touchstone/jit/rmw_assembler.h>
#include <touchstone/jit/rmw_function.h>
#include <touchstone/jit/touch_kernel.h>

#include "emission.h"

namespace touchstone::jit {
namespace {

constexpr const char* kEmit = "emit_touch_kernel";
constexpr std::array<const char*, kTouchAccessCount> kNames{"add",
                                                            "clear",
                                                            "set",
                                                            "eor",
                                                            "smax",
                                                            "smin",
                                                            "umax",
                                                            "umin",
                                                            "compare_swap",
                                                            "write_back",
                                                            "swap",
                                                            "store",
                                                            "load_then_store",
                                                            "zero_block"};

Error unsupported(const char* detail) noexcept {
  return {.code = ErrorCode::kUnsupported, .operation = kEmit, .detail = detail};
}

bool is_rmw(TouchAccess access) noexcept {
  return access <= TouchAccess::kCompareSwap || access == TouchAccess::kSwap;
}

RmwOp rmw_op(TouchAccess access) noexcept {
  switch (access) {
    case TouchAccess::kSwap:
      return RmwOp::kSwap;
    case TouchAccess::kCompareSwap:
      return RmwOp::kCompareSwap;
    default:
      // The rest are named and ordered alike.
      return static_cast<RmwOp>(access);
  }
}
static_assert(static_cast<int>(TouchAccess::kAdd) == static_cast<int>(RmwOp::kAdd) &&
              static_cast<int>(TouchAccess::kUmin) == static_cast<int>(RmwOp::kUmin));

/// The operand that leaves every value as it is (for kSwap, zero), by halves.
RmwValue neutral_operand(const TouchShape& shape) noexcept {
  const std::uint64_t ones = ~std::uint64_t{0};
  const std::uint64_t sign = std::uint64_t{1} << (shape.width >= 8 ? 63U : shape.width * 8U - 1U);
  switch (shape.access) {
    case TouchAccess::kUmin:
      return {.low = ones, .high = ones};
    case TouchAccess::kSmax:
      return shape.width == 16 ? RmwValue{.low = 0, .high = sign}
                               : RmwValue{.low = sign, .high = 0};
    case TouchAccess::kSmin:
      return shape.width == 16 ? RmwValue{.low = ones, .high = sign - 1}
                               : RmwValue{.low = sign - 1, .high = 0};
    default:
      return {};
  }
}

Result<> check(const TouchShape& shape) noexcept {
  if (static_cast<std::size_t>(shape.access) >= kTouchAccessCount) {
    return std::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                 .operation = kEmit,
                                 .detail = "the access is unknown"});
  }
  const RmwShape rmw{.op = rmw_op(shape.access),
                     .width = shape.width,
                     .order = RmwOrder::kRelaxed,
                     .result = shape.result,
                     .target = shape.target};
  const bool a64 = is_a64(shape.target);
  if (shape.access == TouchAccess::kZeroBlock) {
    if (!a64) return std::unexpected(unsupported("DC ZVA is an arm64 instruction"));
    return {};
  }
  if (shape.access == TouchAccess::kWriteBack && !a64) {
    return std::unexpected(unsupported("load-exclusives are arm64 instructions"));
  }
  RmwShape probe = rmw;
  // Plain accesses of 16 bytes are two of 8, which every CPU has.
  if (!is_rmw(shape.access)) {
    probe.op = RmwOp::kSwap;
    if (probe.target == RmwTarget::kX86_64) probe.target = RmwTarget::kX86_64Cx16;
  }
  const Result<RmwRequirements> needs = rmw_requirements(probe);
  if (!needs) return std::unexpected(needs.error());
  return {};
}

Result<> emit_access(asmjit::a64::Assembler& as, Emission<asmjit::a64::Assembler>& emit,
                     const TouchShape& shape) noexcept {
  using namespace asmjit::a64;
  const auto reg = [&](std::uint32_t number) -> Gp {
    if (shape.width <= 4) return GpW(number);
    return GpX(number);
  };
  const Mem at = ptr(x0);
  const bool pair = shape.width == 16;
  switch (shape.access) {
    case TouchAccess::kWriteBack: {
      const asmjit::Label again = as.newLabel();
      emit(as.bind(again));
      switch (shape.width) {
        case 1:
          emit(as.ldxrb(w8, at));
          emit(as.stxrb(w10, w8, at));
          break;
        case 2:
          emit(as.ldxrh(w8, at));
          emit(as.stxrh(w10, w8, at));
          break;
        case 16:
          emit(as.ldxp(x8, x9, at));
          emit(as.stxp(w10, x8, x9, at));
          break;
        default:
          emit(as.ldxr(reg(8), at));
          emit(as.stxr(w10, reg(8), at));
          break;
      }
      emit(as.cbnz(w10, again));
      return {};
    }
    case TouchAccess::kLoadThenStore:
    case TouchAccess::kStore: {
      const bool loads = shape.access == TouchAccess::kLoadThenStore;
      const std::uint32_t from = loads ? 8 : std::uint32_t{Gp::kIdZr};
      const std::uint32_t high = loads ? 9 : std::uint32_t{Gp::kIdZr};
      switch (shape.width) {
        case 1:
          if (loads) emit(as.ldrb(w8, at));
          emit(as.strb(GpW(from), at));
          break;
        case 2:
          if (loads) emit(as.ldrh(w8, at));
          emit(as.strh(GpW(from), at));
          break;
        default:
          if (pair) {
            if (loads) emit(as.ldp(x8, x9, at));
            emit(as.stp(GpX(from), GpX(high), at));
          } else {
            if (loads) emit(as.ldr(reg(8), at));
            emit(as.str(reg(from), at));
          }
          break;
      }
      return {};
    }
    case TouchAccess::kZeroBlock:
      emit.word(0xD50B7420);  // DC ZVA, X0
      return {};
    default:
      break;
  }
  const RmwShape rmw{.op = rmw_op(shape.access),
                     .width = shape.width,
                     .order = RmwOrder::kRelaxed,
                     .result = shape.result,
                     .target = shape.target};
  return emit_rmw(as, rmw,
                  {.address = 0,
                   .operand = {4, 5},
                   .expected = {4, 5},
                   .result = {6, 7},
                   .scratch = {8, 9, 10, 11, 12, 13}});
}

/// Loads a constant, zero included, in the fewest instructions AsmJit finds.
void emit_constant(asmjit::a64::Assembler& as, Emission<asmjit::a64::Assembler>& emit,
                   std::uint32_t number, std::uint64_t value) noexcept {
  emit(as.mov(asmjit::a64::GpX(number), value));
}

Result<> emit_kernel(asmjit::a64::Assembler& as, const TouchShape& shape) noexcept {
  using namespace asmjit::a64;
  Emission emit(as);
  emit.word(0xD503245F);  // BTI c
  if (is_rmw(shape.access)) {
    const RmwValue operand = neutral_operand(shape);
    emit_constant(as, emit, 4, operand.low);
    if (shape.width == 16) emit_constant(as, emit, 5, operand.high);
  }
  const asmjit::Label again = as.newLabel();
  const asmjit::Label done = as.newLabel();
  emit(as.cmp(x0, x1));
  emit(as.b_hs(done));
  emit(as.bind(again));
  const Result<> body = emit_access(as, emit, shape);
  emit(as.add(x0, x0, x2));
  emit(as.cmp(x0, x1));
  emit(as.b_lo(again));
  emit(as.bind(done));
  emit(as.ret(x30));
  return body ? emit.finish(kEmit) : body;
}

Result<> emit_access(asmjit::x86::Assembler& as, Emission<asmjit::x86::Assembler>& emit,
                     const TouchShape& shape) noexcept {
  using namespace asmjit::x86;
  if (is_rmw(shape.access)) {
    const RmwShape rmw{.op = rmw_op(shape.access),
                       .width = shape.width,
                       .order = RmwOrder::kRelaxed,
                       .result = shape.result,
                       .target = shape.target};
    return emit_rmw(
        as, rmw,
        {.address = Gp::kIdDi,
         .operand = {9, 10},
         .expected = {9, 10},
         .result = {Gp::kIdAx, Gp::kIdDx},
         .scratch = {11, Gp::kIdCx, kNoRegister, kNoRegister, kNoRegister, kNoRegister}});
  }
  const bool loads = shape.access == TouchAccess::kLoadThenStore;
  const auto access = [&](std::uint32_t size, std::int32_t offset) {
    const Mem at(rdi, offset, size);
    const Gp value = size == 1 ? Gp(al) : size == 2 ? Gp(ax) : size == 4 ? Gp(eax) : Gp(rax);
    if (loads) emit(as.mov(value, at));
    emit(as.mov(at, value));
  };
  if (shape.width == 16) {
    access(8, 0);
    access(8, 8);
  } else {
    access(shape.width, 0);
  }
  return {};
}

Result<> emit_kernel(asmjit::x86::Assembler& as, const TouchShape& shape) noexcept {
  using namespace asmjit::x86;
  Emission emit(as);
  const bool pair = shape.width == 16 && is_rmw(shape.access);
  emit(as.mov(r8, rdx));  // the stride; RDX is CMPXCHG16B's
  if (pair) emit(as.push(rbx));
  if (is_rmw(shape.access)) {
    const RmwValue operand = neutral_operand(shape);
    emit(operand.low == 0 ? as.xor_(r9d, r9d) : as.mov(r9, operand.low));
    if (pair) emit(operand.high == 0 ? as.xor_(r10d, r10d) : as.mov(r10, operand.high));
  } else if (shape.access == TouchAccess::kStore) {
    emit(as.xor_(eax, eax));
  }
  const asmjit::Label again = as.newLabel();
  const asmjit::Label done = as.newLabel();
  emit(as.cmp(rdi, rsi));
  emit(as.jae(done));
  emit(as.bind(again));
  const Result<> body = emit_access(as, emit, shape);
  emit(as.add(rdi, r8));
  emit(as.cmp(rdi, rsi));
  emit(as.jb(again));
  emit(as.bind(done));
  if (pair) emit(as.pop(rbx));
  emit(as.ret());
  return body ? emit.finish(kEmit) : body;
}

/// What the kernel's instructions need of the CPU.
RmwTarget needed_target(const TouchShape& shape) noexcept {
  if (is_rmw(shape.access)) return shape.target;
  return is_a64(shape.target) ? RmwTarget::kA64Llsc : RmwTarget::kX86_64;
}

}  // namespace

const char* to_string(TouchAccess access) noexcept {
  const auto index = static_cast<std::size_t>(access);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::optional<TouchAccess> parse_touch_access(std::string_view name) noexcept {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<TouchAccess>(found - kNames.begin());
}

std::string to_string(const TouchShape& shape) {
  return std::string(to_string(shape.target)) + " " + to_string(shape.access) + " " +
         std::to_string(shape.width);
}

Result<std::size_t> emit_touch_kernel(const TouchShape& shape,
                                      std::span<std::byte> buffer) noexcept {
  if (Result<> possible = check(shape); !possible) return std::unexpected(possible.error());
  const auto emit = [&](auto& assembler) { return emit_kernel(assembler, shape); };
  return is_a64(shape.target) ? emit_to_buffer<asmjit::a64::Assembler>(kEmit, buffer, emit)
                              : emit_to_buffer<asmjit::x86::Assembler>(kEmit, buffer, emit);
}

struct TouchKernel::State {
  State(CodeCache& given_cache, const TouchShape& given) : cache(given_cache), shape(given) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    // Fails in a forked child alone, whose cache is frozen: then the code stays.
    if (address != nullptr) static_cast<void>(cache.release(address));
  }

  CodeCache& cache;
  TouchShape shape;
  const void* address = nullptr;
  std::string name;
  heap::TouchKernel for_pretouch;
};

TouchKernel::TouchKernel(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
TouchKernel::TouchKernel(TouchKernel&&) noexcept = default;
TouchKernel& TouchKernel::operator=(TouchKernel&&) noexcept = default;
TouchKernel::~TouchKernel() = default;

Result<TouchKernel> TouchKernel::create(CodeCache& cache, const TouchShape& shape) {
  std::array<std::byte, kMaxTouchKernelSize> code{};
  const Result<std::size_t> size = emit_touch_kernel(shape, code);
  if (!size) return std::unexpected(size.error());
  if (!can_run(needed_target(shape), host_features())) {
    return std::unexpected(unsupported("this CPU does not run the target's instructions"));
  }
  if (shape.access == TouchAccess::kZeroBlock && arch::zva_block_size() == 0) {
    return std::unexpected(unsupported("this CPU or kernel prohibits DC ZVA"));
  }
  try {
    auto state = std::make_unique<State>(cache, shape);
    state->name = "emitted " + to_string(shape);
    const Result<const void*> address =
        cache.add(std::span(code).first(*size), "touchstone touch " + to_string(shape));
    if (!address) return std::unexpected(address.error());
    state->address = *address;
    state->for_pretouch = {.touch = std::bit_cast<TouchEntry>(*address),
                           .name = state->name.c_str(),
                           .value_preserving = is_value_preserving(shape.access)};
    return TouchKernel(std::move(state));
  } catch (const std::bad_alloc&) {
    return std::unexpected(
        Error{.code = ErrorCode::kOutOfMemory, .operation = "TouchKernel::create"});
  }
}

const TouchShape& TouchKernel::shape() const noexcept {
  return state_->shape;
}

std::size_t TouchKernel::alignment() const noexcept {
  return state_->shape.access == TouchAccess::kZeroBlock ? arch::zva_block_size()
                                                         : state_->shape.width;
}

TouchEntry TouchKernel::entry() const noexcept {
  return state_->for_pretouch.touch;
}

const heap::TouchKernel& TouchKernel::for_pretouch() const noexcept {
  return state_->for_pretouch;
}

Result<> TouchKernel::touch(void* begin, void* end, std::size_t stride,
                            TouchedMemory memory) const noexcept {
  return touch_in_chunks(begin, end, stride, memory, 0, {});
}

Result<> TouchKernel::touch_in_chunks(void* begin, void* end, std::size_t stride,
                                      TouchedMemory memory, std::size_t chunk,
                                      const std::stop_token& stop) const noexcept {
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const auto to = reinterpret_cast<std::uintptr_t>(end);
  const std::size_t unit = alignment();
  const auto refuse = [&](ErrorCode code, const char* detail) {
    return std::unexpected(Error{.code = code,
                                 .operation = "TouchKernel::touch",
                                 .address = from,
                                 .length = to > from ? to - from : 0,
                                 .detail = detail});
  };
  if (from == 0) return refuse(ErrorCode::kInvalidArgument, "the address is null");
  if (from > to) return refuse(ErrorCode::kInvalidArgument, "the begin lies above the end");
  if (stride == 0) return refuse(ErrorCode::kInvalidArgument, "the stride is 0");
  if (chunk % stride != 0) {
    return refuse(ErrorCode::kInvalidArgument, "the chunk is no multiple of the stride");
  }
  if (from % unit != 0) return refuse(ErrorCode::kMisaligned, "the begin, to the access's width");
  if (stride % unit != 0)
    return refuse(ErrorCode::kMisaligned, "the stride, to the access's width");
  if (memory == TouchedMemory::kInUse && !is_value_preserving(state_->shape.access)) {
    return refuse(ErrorCode::kBusy, "this access changes values, and the memory is in use");
  }
  const std::size_t length = to - from;
  if (length == 0) return {};
  const std::size_t last = (length - 1) / stride * stride;
  if (length - last < unit) {
    return refuse(ErrorCode::kOutOfRange, "the last access would pass the end");
  }
  auto* at = static_cast<std::byte*>(begin);
  std::size_t done = 0;
  while (done < length) {
    if (stop.stop_requested()) {
      return std::unexpected(Error{.code = ErrorCode::kCancelled,
                                   .operation = "TouchKernel::touch",
                                   .address = from,
                                   .length = length,
                                   .progress = done});
    }
    const std::size_t part = chunk == 0 ? length : std::min(chunk, length - done);
    entry()(at + done, at + done + part, stride);
    done += part;
  }
  return {};
}

// ---- Registration ----

TouchKernelRegistration::TouchKernelRegistration(TouchKernel kernel) noexcept
    : kernel_(std::move(kernel)),
      before_(heap::register_touch_kernel(&kernel_.for_pretouch())),
      registered_(true) {}

TouchKernelRegistration::TouchKernelRegistration(TouchKernelRegistration&& other) noexcept
    : kernel_(std::move(other.kernel_)),
      before_(other.before_),
      registered_(std::exchange(other.registered_, false)) {}

TouchKernelRegistration::~TouchKernelRegistration() {
  if (registered_) heap::register_touch_kernel(before_);
}

Result<TouchKernelRegistration> TouchKernelRegistration::create(CodeCache& cache) {
  return create(
      cache, {.access = TouchAccess::kAdd, .width = 8, .target = best_rmw_target(host_features())});
}

Result<TouchKernelRegistration> TouchKernelRegistration::create(CodeCache& cache,
                                                                const TouchShape& shape) {
  if (!is_value_preserving(shape.access)) {
    return std::unexpected(Error{.code = ErrorCode::kBusy,
                                 .operation = "TouchKernelRegistration::create",
                                 .detail = "pre-touch may run beside mutators, and this access "
                                           "changes values"});
  }
  Result<TouchKernel> kernel = TouchKernel::create(cache, shape);
  if (!kernel) return std::unexpected(kernel.error());
  return TouchKernelRegistration(*std::move(kernel));
}

}  // namespace touchstone::jit
