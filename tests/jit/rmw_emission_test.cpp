// SPDX-License-Identifier: MIT
// Every combination's every word against Capstone and arch's table. Both instruction sets are
// emitted and decoded on either host.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <touchstone/arch/a64/classify.h>
#include <touchstone/jit/disassembly.h>
#include <touchstone/jit/rmw.h>
#include <touchstone/jit/rmw_assembler.h>

#include "rmw_shapes.h"

namespace touchstone::jit {
namespace {

namespace a64 = arch::a64;

using Lines = std::vector<std::string>;

std::vector<DisassembledInstruction> emit_and_decode(const RmwShape& shape,
                                                     const RmwRegisters& registers) {
  std::array<std::byte, kMaxRmwSize> buffer{};
  const Result<std::size_t> size = emit_rmw(shape, registers, buffer);
  if (!size) {
    ADD_FAILURE() << to_string(shape) << ": " << size.error().message();
    return {};
  }
  const auto decoded =
      disassemble(is_a64(shape.target) ? InstructionSet::kA64 : InstructionSet::kX86_64,
                  std::span(buffer).first(*size));
  if (!decoded) {
    ADD_FAILURE() << decoded.error().message();
    return {};
  }
  return *decoded;
}

bool acquires(const RmwShape& shape) {
  return shape.order == RmwOrder::kAcquire || shape.order == RmwOrder::kAcqRel ||
         shape.order == RmwOrder::kSeqCst;
}
bool releases(const RmwShape& shape) {
  return shape.order == RmwOrder::kRelease || shape.order == RmwOrder::kAcqRel ||
         shape.order == RmwOrder::kSeqCst;
}

std::uint32_t word_of(const DisassembledInstruction& instruction) {
  std::uint32_t word = 0;
  std::memcpy(&word, instruction.bytes.data(), sizeof word);
  return word;
}

// ---- arm64 ----

struct A64Names {
  const RmwShape& shape;
  [[nodiscard]] std::string reg(std::uint8_t number) const {
    return (shape.width <= 4 ? "w" : "x") + std::to_string(number);
  }
  [[nodiscard]] static std::string address(const RmwRegisters& registers) {
    return registers.address == 31 ? "[sp]" : "[x" + std::to_string(registers.address) + "]";
  }
  [[nodiscard]] std::string order() const {
    return std::string(acquires(shape) ? "a" : "") + (releases(shape) ? "l" : "");
  }
  [[nodiscard]] std::string size() const {
    return shape.width == 1 ? "b" : shape.width == 2 ? "h" : "";
  }
};

constexpr std::array<const char*, kRmwOpCount> kLoadNames{
    "ldadd", "ldclr", "ldset", "ldeor", "ldsmax", "ldsmin", "ldumax", "ldumin", "swp", "cas"};

/// What the shape must do to memory, instruction by instruction, as Capstone writes it.
Lines expected_a64(const RmwShape& shape, const RmwRegisters& r) {
  const A64Names name{shape};
  const std::string at = A64Names::address(r);
  const std::string op = kLoadNames[static_cast<std::size_t>(shape.op)];
  const bool fetches = shape.result == RmwResult::kFetch;
  if (shape.target == RmwTarget::kA64Llsc) {
    const std::string load = std::string("ld") + (acquires(shape) ? "a" : "") + "x";
    const std::string store = std::string("st") + (releases(shape) ? "l" : "") + "x";
    const bool computes = shape.op != RmwOp::kSwap && shape.op != RmwOp::kCompareSwap;
    if (shape.width != 16) {
      const std::string value = name.reg(computes ? r.scratch[0] : r.operand[0]);
      const std::string status = "w" + std::to_string(r.scratch[computes ? 1 : 0]);
      const std::string old = name.reg(fetches ? r.result[0] : r.scratch[computes ? 2 : 1]);
      return {load + "r" + name.size() + " " + old + ", " + at,
              store + "r" + name.size() + " " + status + ", " + value + ", " + at};
    }
    const bool selects = shape.op != RmwOp::kSwap;
    const std::size_t after = selects ? 2 : 0;
    const auto& value = selects ? std::array{r.scratch[0], r.scratch[1]} : r.operand;
    const std::string status = "w" + std::to_string(r.scratch[after]);
    const auto old = fetches ? r.result : std::array{r.scratch[after + 1], r.scratch[after + 2]};
    return {
        load + "p " + name.reg(old[0]) + ", " + name.reg(old[1]) + ", " + at,
        store + "p " + status + ", " + name.reg(value[0]) + ", " + name.reg(value[1]) + ", " + at};
  }
  if (shape.width != 16) {
    if (shape.op == RmwOp::kCompareSwap) {
      return {op + name.order() + name.size() + " " +
              name.reg(fetches ? r.result[0] : r.scratch[0]) + ", " + name.reg(r.operand[0]) +
              ", " + at};
    }
    if (!fetches && !acquires(shape) && shape.op != RmwOp::kSwap) {
      return {"st" + op.substr(2) + name.order() + name.size() + " " + name.reg(r.operand[0]) +
              ", " + at};
    }
    const std::string into = fetches            ? name.reg(r.result[0])
                             : acquires(shape)  ? name.reg(r.scratch[0])
                             : shape.width <= 4 ? "wzr"
                                                : "xzr";
    return {op + name.order() + name.size() + " " + name.reg(r.operand[0]) + ", " + into + ", " +
            at};
  }
  const auto old = fetches ? r.result : std::array{r.scratch[0], r.scratch[1]};
  const std::size_t after = fetches ? 0 : 2;
  const auto casp = [&](const auto& value) {
    return "casp" + name.order() + " " + name.reg(old[0]) + ", " + name.reg(old[1]) + ", " +
           name.reg(value[0]) + ", " + name.reg(value[1]) + ", " + at;
  };
  if (shape.op == RmwOp::kCompareSwap) return {casp(r.operand)};
  if (shape.target == RmwTarget::kA64Lse128 &&
      (shape.op == RmwOp::kSwap || shape.op == RmwOp::kClear || shape.op == RmwOp::kSet)) {
    return {op + "p" + name.order() + " " + name.reg(old[0]) + ", " + name.reg(old[1]) + ", " + at};
  }
  const std::string load = "ldp " + name.reg(old[0]) + ", " + name.reg(old[1]) + ", " + at;
  if (shape.op == RmwOp::kSwap) return {load, casp(r.operand)};
  return {load, casp(std::array{r.scratch[after], r.scratch[after + 1]})};
}

TEST(RmwEmission, EveryA64WordIsTheRightInstruction) {
  std::size_t shapes = 0;
  std::size_t words = 0;
  for (const RmwShape& shape : all_rmw_shapes()) {
    if (!is_a64(shape.target)) continue;
    ++shapes;
    for (unsigned rotation = 0; rotation < kRegisterRotations; ++rotation) {
      const RmwRegisters registers = some_registers(shape, rotation);
      SCOPED_TRACE(to_string(shape) + ", registers " + std::to_string(rotation));
      Lines memory;
      for (const DisassembledInstruction& instruction : emit_and_decode(shape, registers)) {
        ++words;
        ASSERT_NE(instruction.mnemonic, ".word") << instruction.operands;
        if (instruction.operands.find('[') != std::string::npos)
          memory.push_back(instruction.text());
      }
      EXPECT_EQ(memory, expected_a64(shape, registers));
    }
  }
  EXPECT_EQ(shapes, 3U * 10 * 5 * 5 * 2);
  RecordProperty("words", static_cast<int>(words));
}

TEST(RmwEmission, TheTableAgreesOnWidthOrderAndForcedWrites) {
  for (const RmwShape& shape : all_rmw_shapes()) {
    if (!is_a64(shape.target)) continue;
    SCOPED_TRACE(to_string(shape));
    const bool llsc = shape.target == RmwTarget::kA64Llsc;
    std::size_t forced = 0;
    std::size_t exclusives = 0;
    for (const DisassembledInstruction& instruction :
         emit_and_decode(shape, some_registers(shape, 1))) {
      const std::uint32_t word = word_of(instruction);
      const a64::MemoryAccess access = a64::classify(word);
      const bool touches_memory = instruction.operands.find('[') != std::string::npos;
      // The plain LDP that starts a CASP loop is no atomic, so the table has no row for it.
      EXPECT_EQ(static_cast<bool>(access), touches_memory && instruction.mnemonic != "ldp")
          << instruction.text();
      if (!access) {
        EXPECT_FALSE(a64::is_forced_write(word)) << instruction.text();
        continue;
      }
      EXPECT_EQ(a64::format_mnemonic(word).view(), instruction.mnemonic);
      EXPECT_EQ(access.width, shape.width) << instruction.text();
      EXPECT_FALSE(access.constrained) << instruction.text();
      const bool store_exclusive = access.encoding->kind == a64::Kind::kStoreExclusive;
      const bool load_exclusive = access.encoding->kind == a64::Kind::kLoadExclusive;
      const bool acquire = acquires(shape) && !store_exclusive;
      const bool release = releases(shape) && !load_exclusive;
      const a64::Order order = acquire && release ? a64::Order::kAcquireRelease
                               : acquire          ? a64::Order::kAcquire
                               : release          ? a64::Order::kRelease
                                                  : a64::Order::kRelaxed;
      EXPECT_EQ(access.order, order) << instruction.text();
      EXPECT_EQ(a64::is_forced_write(word), !llsc) << instruction.text();
      EXPECT_EQ(a64::is_load_exclusive(word), load_exclusive);
      forced += a64::is_forced_write(word) ? 1U : 0U;
      exclusives += load_exclusive || store_exclusive ? 1U : 0U;
      // An acquiring LD<op> must not discard into XZR, or it does not acquire.
      if (acquires(shape)) {
        EXPECT_FALSE(access.discards) << instruction.text();
      }
    }
    EXPECT_EQ(forced, llsc ? 0U : 1U);
    EXPECT_EQ(exclusives, llsc ? 2U : 0U);
  }
}

TEST(RmwEmission, SingleInstructionsAreUsedWhereTheyExist) {
  for (const RmwShape& shape : all_rmw_shapes()) {
    if (shape.target != RmwTarget::kA64Lse || shape.width == 16) continue;
    const std::size_t count = emit_and_decode(shape, some_registers(shape, 0)).size();
    // compare_swap copies the expected value first, as CAS overwrites it.
    EXPECT_EQ(count, shape.op == RmwOp::kCompareSwap ? 2U : 1U) << to_string(shape);
  }
  const RmwShape swap{.op = RmwOp::kCompareSwap, .target = RmwTarget::kA64Lse};
  RmwRegisters registers{.address = 0, .operand = {1, kNoRegister}};
  registers.expected[0] = registers.result[0] = 2;
  EXPECT_EQ(emit_and_decode(swap, registers).size(), 1U);
  const RmwShape add{.op = RmwOp::kAdd, .target = RmwTarget::kX86_64};
  RmwRegisters same{.address = 7, .operand = {6, kNoRegister}};
  same.result[0] = 6;
  const auto xadd = emit_and_decode(add, same);
  ASSERT_EQ(xadd.size(), 1U);
  EXPECT_EQ(xadd[0].text(), "lock xadd qword ptr [rdi], rsi");
}

TEST(RmwEmission, RegistersGivenAreTheOnlyOnesWritten) {
  // By text: the first operand of whatever is no store is what it writes.
  for (const RmwShape& shape : all_rmw_shapes()) {
    if (!is_a64(shape.target)) continue;
    const RmwRequirements needs = rmw_requirements(shape).value();
    const RmwRegisters r = some_registers(shape, 2);
    std::set<std::string> allowed;
    for (unsigned i = 0; i < needs.scratch_count; ++i) {
      allowed.insert({"w" + std::to_string(r.scratch[i]), "x" + std::to_string(r.scratch[i])});
    }
    for (unsigned i = 0; needs.result && i < (needs.pair ? 2U : 1U); ++i) {
      allowed.insert({"w" + std::to_string(r.result[i]), "x" + std::to_string(r.result[i])});
    }
    bool flags = false;
    for (const DisassembledInstruction& instruction : emit_and_decode(shape, r)) {
      const std::string& m = instruction.mnemonic;
      if (m == "cmp" || m == "ccmp" || m == "adds" || m == "sbcs") flags = true;
      if (m == "cmp" || m == "ccmp" || m.starts_with("b.") || m == "cbnz") continue;
      if (m.starts_with("ldadd") || m.starts_with("ldclr") || m.starts_with("ldset") ||
          m.starts_with("ldeor") || m.starts_with("lds") || m.starts_with("ldu") ||
          m.starts_with("st") || m.starts_with("swp")) {
        continue;
      }
      const std::string first = instruction.operands.substr(0, instruction.operands.find(','));
      EXPECT_TRUE(allowed.contains(first)) << to_string(shape) << ": " << instruction.text();
    }
    EXPECT_EQ(flags, needs.clobbers_flags) << to_string(shape);
  }
}

// ---- x86-64 ----

constexpr std::array<std::array<const char*, 4>, 16> kX86Names{{{"al", "ax", "eax", "rax"},
                                                                {"cl", "cx", "ecx", "rcx"},
                                                                {"dl", "dx", "edx", "rdx"},
                                                                {"bl", "bx", "ebx", "rbx"},
                                                                {"spl", "sp", "esp", "rsp"},
                                                                {"bpl", "bp", "ebp", "rbp"},
                                                                {"sil", "si", "esi", "rsi"},
                                                                {"dil", "di", "edi", "rdi"},
                                                                {"r8b", "r8w", "r8d", "r8"},
                                                                {"r9b", "r9w", "r9d", "r9"},
                                                                {"r10b", "r10w", "r10d", "r10"},
                                                                {"r11b", "r11w", "r11d", "r11"},
                                                                {"r12b", "r12w", "r12d", "r12"},
                                                                {"r13b", "r13w", "r13d", "r13"},
                                                                {"r14b", "r14w", "r14d", "r14"},
                                                                {"r15b", "r15w", "r15d", "r15"}}};

std::string x86_name(std::uint8_t number, std::uint8_t width) {
  const std::size_t column = width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
  return kX86Names[number][column];
}

Lines expected_x86(const RmwShape& shape, const RmwRegisters& r) {
  static constexpr std::array<const char*, 5> sizes{"byte", "word", "dword", "qword", "xmmword"};
  const std::size_t size = shape.width == 1   ? 0
                           : shape.width == 2 ? 1
                           : shape.width == 4 ? 2
                           : shape.width == 8 ? 3
                                              : 4;
  const std::string base = x86_name(r.address, 8);
  const std::string at = std::string(sizes[size]) + " ptr [" + base + "]";
  const bool fetches = shape.result == RmwResult::kFetch;
  const auto value = [&](std::uint8_t number) { return ", " + x86_name(number, shape.width); };
  if (shape.width == 16) {
    const Lines loads{"mov rax, qword ptr [" + base + "]", "mov rdx, qword ptr [" + base + " + 8]"};
    const std::string exchange = "lock cmpxchg16b " + at;
    if (shape.op == RmwOp::kCompareSwap) return {exchange};
    return {loads[0], loads[1], exchange};
  }
  switch (shape.op) {
    case RmwOp::kAdd:
      if (fetches) return {"lock xadd " + at + value(r.result[0])};
      return {"lock add " + at + value(r.operand[0])};
    case RmwOp::kSwap:
      return {"xchg " + at + value(fetches ? r.result[0] : r.scratch[0])};
    case RmwOp::kCompareSwap:
      return {"lock cmpxchg " + at + value(r.operand[0])};
    case RmwOp::kClear:
      if (!fetches) return {"lock and " + at + value(r.scratch[0])};
      break;
    case RmwOp::kSet:
      if (!fetches) return {"lock or " + at + value(r.operand[0])};
      break;
    case RmwOp::kEor:
      if (!fetches) return {"lock xor " + at + value(r.operand[0])};
      break;
    default:
      break;
  }
  const std::string load =
      shape.width < 4 ? "movzx eax, " + at : "mov" + (" " + x86_name(0, shape.width)) + ", " + at;
  return {load, "lock cmpxchg " + at + value(r.scratch[0])};
}

TEST(RmwEmission, EveryX86InstructionIsTheRightOne) {
  std::size_t shapes = 0;
  for (const RmwShape& shape : all_rmw_shapes()) {
    if (is_a64(shape.target)) continue;
    ++shapes;
    for (unsigned rotation = 0; rotation < kRegisterRotations; ++rotation) {
      const RmwRegisters registers = some_registers(shape, rotation);
      SCOPED_TRACE(to_string(shape) + ", registers " + std::to_string(rotation));
      Lines memory;
      for (const DisassembledInstruction& instruction : emit_and_decode(shape, registers)) {
        ASSERT_NE(instruction.mnemonic, ".byte");
        if (instruction.operands.find('[') == std::string::npos) continue;
        // Capstone writes the accumulator of cmpxchg16b nowhere and the memory first.
        memory.push_back(instruction.text());
      }
      EXPECT_EQ(memory, expected_x86(shape, registers));
    }
  }
  EXPECT_EQ(shapes, 10U * 5 * 5 * 2 + 10U * 4 * 5 * 2);
}

// ---- Whole functions ----

TEST(RmwEmission, FunctionsStartWithBtiEndWithRetAndFitTheBound) {
  for (const RmwShape& shape : all_rmw_shapes()) {
    std::array<std::byte, kMaxRmwFunctionSize> buffer{};
    const Result<std::size_t> size = emit_rmw_function(shape, buffer);
    ASSERT_TRUE(size) << to_string(shape) << ": " << size.error().message();
    const auto decoded =
        disassemble(is_a64(shape.target) ? InstructionSet::kA64 : InstructionSet::kX86_64,
                    std::span(buffer).first(*size));
    ASSERT_TRUE(decoded);
    if (is_a64(shape.target)) {
      EXPECT_EQ(word_of(decoded->front()), 0xd503245fU);
      for (const DisassembledInstruction& instruction : *decoded) {
        // No literal pool, or execute-only memory could not hold it: no load relative to PC.
        EXPECT_NE(word_of(instruction) & 0x3b000000U, 0x18000000U) << instruction.text();
      }
    }
    EXPECT_EQ(decoded->back().mnemonic, "ret");
  }
}

// ---- LSE128, which no emulator here runs ----

/// Just enough of arm64 to run what kA64Lse128 emits for swap, clear and set: BTI, MOV, RET, and
/// the three pairs by their definition in the Arm ARM (Rt and Rt2 go in, the old memory comes out).
struct Lse128Model {
  std::array<std::uint64_t, 32> x{};
  std::array<std::uint64_t, 2> memory{};

  ::testing::AssertionResult run(std::span<const std::byte> code) {
    for (std::size_t at = 0; at < code.size(); at += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, code.data() + at, sizeof word);
      if (word == 0xd503245f) continue;  // BTI c
      if (word == 0xd65f03c0) {          // RET
        return at + 4 == code.size() ? ::testing::AssertionSuccess()
                                     : ::testing::AssertionFailure() << "code after RET";
      }
      if ((word & 0xffe0ffe0) == 0xaa0003e0) {  // MOV Xd, Xm
        const std::uint32_t from = word >> 16U & 31U;
        x[word & 31U] = from == 31 ? 0 : x[from];
        continue;
      }
      const std::uint32_t opcode = word & 0xff20fc00U;
      const std::array<std::size_t, 2> pair{word & 31U, word >> 16U & 31U};
      if ((word >> 5U & 31U) != 0) return ::testing::AssertionFailure() << "address not in X0";
      if (pair[0] == 31 || pair[1] == 31 || pair[0] == pair[1]) {
        return ::testing::AssertionFailure() << "undefined or unpredictable registers";
      }
      for (std::size_t half = 0; half < 2; ++half) {
        std::uint64_t& value = x[pair[half]];
        const std::uint64_t old = memory[half];
        if (opcode == 0x19208000) {
          memory[half] = value;  // SWPP
        } else if (opcode == 0x19201000) {
          memory[half] = old & ~value;  // LDCLRP
        } else if (opcode == 0x19203000) {
          memory[half] = old | value;  // LDSETP
        } else {
          return ::testing::AssertionFailure() << "unexpected word " << std::hex << word;
        }
        value = old;
      }
    }
    return ::testing::AssertionFailure() << "no RET";
  }
};

TEST(RmwLse128, ItsMeaningByAModel) {
  const std::array<std::uint64_t, 5> edges{0, 1, ~std::uint64_t{0}, std::uint64_t{1} << 63U,
                                           0x0123'4567'89ab'cdef};
  for (const RmwShape& shape : all_rmw_shapes()) {
    if (shape.target != RmwTarget::kA64Lse128 || shape.width != 16) continue;
    if (shape.op != RmwOp::kSwap && shape.op != RmwOp::kClear && shape.op != RmwOp::kSet) continue;
    std::array<std::byte, kMaxRmwFunctionSize> buffer{};
    const std::size_t size = emit_rmw_function(shape, buffer).value();
    for (const std::uint64_t low : edges) {
      for (const std::uint64_t high : edges) {
        for (const std::uint64_t operand : edges) {
          Lse128Model cpu;
          cpu.memory = {low, high};
          cpu.x[1] = operand;
          cpu.x[2] = ~operand;
          ASSERT_TRUE(cpu.run(std::span(buffer).first(size))) << to_string(shape);
          const auto stored = [&](std::uint64_t old, std::uint64_t value) {
            return shape.op == RmwOp::kSwap    ? value
                   : shape.op == RmwOp::kClear ? old & ~value
                                               : old | value;
          };
          EXPECT_EQ(cpu.memory[0], stored(low, operand)) << to_string(shape);
          EXPECT_EQ(cpu.memory[1], stored(high, ~operand)) << to_string(shape);
          const bool fetches = shape.result == RmwResult::kFetch;
          EXPECT_EQ(cpu.x[0], fetches ? low : 0) << to_string(shape);
          EXPECT_EQ(cpu.x[1], fetches ? high : 0) << to_string(shape);
        }
      }
    }
  }
}

// ---- What is refused ----

TEST(RmwRefusal, SixteenBytesWithoutCmpxchg16bAreUnsupported) {
  const Result<RmwRequirements> needs =
      rmw_requirements({.width = 16, .target = RmwTarget::kX86_64});
  ASSERT_FALSE(needs);
  EXPECT_EQ(needs.error().code, ErrorCode::kUnsupported);
  EXPECT_STREQ(needs.error().detail, "16 bytes on x86-64 need CMPXCHG16B");
}

TEST(RmwRefusal, OddWidthsAreInvalid) {
  for (const unsigned width : {0U, 3U, 5U, 6U, 7U, 12U, 32U, 255U}) {
    for (std::size_t target = 0; target < kRmwTargetCount; ++target) {
      const auto needs = rmw_requirements(
          {.width = static_cast<std::uint8_t>(width), .target = static_cast<RmwTarget>(target)});
      ASSERT_FALSE(needs);
      EXPECT_EQ(needs.error().code, ErrorCode::kInvalidArgument);
    }
  }
}

TEST(RmwRefusal, UnknownOperationsAreInvalid) {
  std::array<std::byte, kMaxRmwSize> buffer{};
  const RmwShape shape{.op = static_cast<RmwOp>(77)};
  const auto emitted = emit_rmw(shape, some_registers({}, 0), buffer);
  ASSERT_FALSE(emitted);
  EXPECT_EQ(emitted.error().code, ErrorCode::kInvalidArgument);
}

TEST(RmwRefusal, ATargetOfTheOtherAssemblerEmitsNothing) {
  asmjit::CodeHolder code;
  ASSERT_EQ(code.init(asmjit::Environment(asmjit::Arch::kX64)), asmjit::kErrorOk);
  asmjit::x86::Assembler assembler(&code);
  ASSERT_EQ(assembler.nop(), asmjit::kErrorOk);
  const RmwShape lse{.target = RmwTarget::kA64Lse};
  const Result<> emitted = emit_rmw(assembler, lse, some_registers(lse, 0));
  ASSERT_FALSE(emitted);
  EXPECT_EQ(emitted.error().code, ErrorCode::kInvalidArgument);
  EXPECT_STREQ(emitted.error().detail, "an arm64 target in an x86-64 assembler");
  EXPECT_EQ(assembler.offset(), 1U);
  const RmwShape good{.target = RmwTarget::kX86_64};
  ASSERT_TRUE(emit_rmw(assembler, good, some_registers(good, 0)));
  EXPECT_GT(assembler.offset(), 1U);
}

TEST(RmwRefusal, ABufferTooSmallIsLeftAlone) {
  for (const RmwShape& shape : all_rmw_shapes()) {
    std::array<std::byte, kMaxRmwSize> whole{};
    const std::size_t size = emit_rmw(shape, some_registers(shape, 0), whole).value();
    std::array<std::byte, kMaxRmwSize> buffer{};
    buffer.fill(std::byte{0x5a});
    const auto emitted =
        emit_rmw(shape, some_registers(shape, 0), std::span(buffer).first(size - 1));
    ASSERT_FALSE(emitted);
    EXPECT_EQ(emitted.error().code, ErrorCode::kOutOfRange);
    for (const std::byte byte : buffer) ASSERT_EQ(byte, std::byte{0x5a});
    ASSERT_TRUE(emit_rmw(shape, some_registers(shape, 0), std::span(buffer).first(size)));
  }
}

/// Puts every register into every place and expects a typed refusal exactly where two of those that
/// must be apart are the same.
TEST(RmwRefusal, EveryClashOfRegistersIsFound) {
  for (const RmwShape& shape : all_rmw_shapes()) {
    if (shape.order != RmwOrder::kAcqRel) continue;
    const RmwRequirements needs = rmw_requirements(shape).value();
    const RmwRegisters good = some_registers(shape, 0);
    ASSERT_TRUE(check_rmw_registers(shape, good)) << to_string(shape);
    const unsigned halves = needs.pair ? 2 : 1;
    const auto refused = [&](const RmwRegisters& registers) {
      const Result<> checked = check_rmw_registers(shape, registers);
      if (checked) return false;
      EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
      EXPECT_STRNE(checked.error().detail, "");
      std::array<std::byte, kMaxRmwSize> buffer{};
      EXPECT_FALSE(emit_rmw(shape, registers, buffer));
      return true;
    };
    SCOPED_TRACE(to_string(shape));
    RmwRegisters bad = good;
    bad.address = kNoRegister;
    EXPECT_TRUE(refused(bad));
    bad = good;
    bad.operand[0] = 40;
    EXPECT_TRUE(refused(bad));
    for (unsigned i = 0; i < needs.scratch_count; ++i) {
      bad = good;
      bad.scratch[i] = kNoRegister;
      EXPECT_TRUE(refused(bad));
      bad = good;
      bad.scratch[i] = good.address;
      EXPECT_TRUE(refused(bad));
      bad = good;
      bad.scratch[i] = good.operand[halves - 1];
      EXPECT_TRUE(refused(bad));
      for (unsigned j = 0; j < needs.scratch_count; ++j) {
        if (i == j) continue;
        bad = good;
        bad.scratch[i] = good.scratch[j];
        EXPECT_TRUE(refused(bad));
      }
      if (needs.result) {
        bad = good;
        bad.scratch[i] = good.result[0];
        EXPECT_TRUE(refused(bad));
      }
      if (needs.expected) {
        bad = good;
        bad.scratch[i] = good.expected[0];
        EXPECT_TRUE(refused(bad));
      }
    }
    if (needs.result) {
      bad = good;
      bad.result[0] = good.address;
      if (good.address != 31) {
        EXPECT_EQ(refused(bad), !needs.result_may_be_address);
      }
      bad = good;
      for (unsigned i = 0; i < halves; ++i) bad.result[i] = good.operand[i];
      EXPECT_EQ(refused(bad), !needs.result_may_be_operand);
      if (needs.pair) {
        bad = good;
        bad.result = {good.operand[1], good.operand[0]};
        EXPECT_TRUE(refused(bad));
        bad.result = {good.result[0], good.result[0]};
        EXPECT_TRUE(refused(bad));
      }
      if (needs.expected) {
        bad = good;
        for (unsigned i = 0; i < halves; ++i) bad.result[i] = good.expected[i];
        EXPECT_EQ(refused(bad), !needs.result_may_be_expected);
      }
      bad = good;
      bad.result[0] = kNoRegister;
      EXPECT_TRUE(refused(bad));
    }
    const auto odd = [&](auto& into) {
      into[0] = 19;
      into[1] = 20;
    };
    if (needs.operand_even_pair) {
      bad = good;
      odd(bad.operand);
      EXPECT_TRUE(refused(bad));
    }
    if (needs.result_even_pair) {
      bad = good;
      odd(bad.result);
      EXPECT_TRUE(refused(bad));
    }
    for (unsigned i = 0; i < needs.scratch_even_pairs; ++i) {
      bad = good;
      bad.scratch[2 * i] = 19;
      bad.scratch[2 * i + 1] = 20;
      EXPECT_TRUE(refused(bad));
    }
    for (std::uint8_t number = 0; number < 16; ++number) {
      if ((needs.fixed_clobbers >> number & 1U) == 0) continue;
      bad = good;
      bad.address = number;
      EXPECT_TRUE(refused(bad));
      for (unsigned i = 0; i < needs.scratch_count; ++i) {
        bad = good;
        bad.scratch[i] = number;
        EXPECT_TRUE(refused(bad));
      }
    }
    if (!is_a64(shape.target)) {
      bad = good;
      bad.operand[0] = 4;  // RSP
      EXPECT_TRUE(refused(bad));
    }
  }
}

TEST(RmwNames, RoundTrip) {
  for (std::size_t i = 0; i < kRmwOpCount; ++i) {
    EXPECT_EQ(parse_rmw_op(to_string(static_cast<RmwOp>(i))), static_cast<RmwOp>(i));
  }
  for (std::size_t i = 0; i < kRmwOrderCount; ++i) {
    EXPECT_EQ(parse_rmw_order(to_string(static_cast<RmwOrder>(i))), static_cast<RmwOrder>(i));
  }
  for (std::size_t i = 0; i < kRmwTargetCount; ++i) {
    EXPECT_EQ(parse_rmw_target(to_string(static_cast<RmwTarget>(i))), static_cast<RmwTarget>(i));
  }
  EXPECT_EQ(parse_rmw_op("ADD"), std::nullopt);
  EXPECT_EQ(parse_rmw_target(""), std::nullopt);
  EXPECT_STREQ(to_string(static_cast<RmwOp>(200)), "unknown");
}

}  // namespace
}  // namespace touchstone::jit
