// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_TESTS_JIT_RMW_SHAPES_H_
#define TOUCHSTONE_TESTS_JIT_RMW_SHAPES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include <touchstone/jit/rmw.h>

namespace touchstone::jit {

inline constexpr std::uint8_t kRmwWidths[] = {1, 2, 4, 8, 16};

/// Every combination that the targets can do, for all targets.
inline std::vector<RmwShape> all_rmw_shapes() {
  std::vector<RmwShape> shapes;
  for (std::size_t target = 0; target < kRmwTargetCount; ++target) {
    for (std::size_t op = 0; op < kRmwOpCount; ++op) {
      for (const std::uint8_t width : kRmwWidths) {
        for (std::size_t order = 0; order < kRmwOrderCount; ++order) {
          for (const RmwResult result : {RmwResult::kFetch, RmwResult::kDiscard}) {
            const RmwShape shape{.op = static_cast<RmwOp>(op),
                                 .width = width,
                                 .order = static_cast<RmwOrder>(order),
                                 .result = result,
                                 .target = static_cast<RmwTarget>(target)};
            if (rmw_requirements(shape)) shapes.push_back(shape);
          }
        }
      }
    }
  }
  return shapes;
}

/// Registers that fulfil the shape's requirements; a different choice for each rotation 0 … 6.
inline RmwRegisters some_registers(const RmwShape& shape, unsigned rotation) {
  // Even ones first of each pair, so that any two neighbours from an even place on suit CASP.
  static constexpr std::uint8_t a64_pool[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                              12, 13, 14, 15, 16, 17, 20, 21, 24, 25, 28, 29};
  static constexpr std::uint8_t x86_pool[] = {8, 6, 9, 7, 10, 11, 12, 5, 13, 14, 15};
  const RmwRequirements needs = rmw_requirements(shape).value();
  RmwRegisters registers;
  unsigned next = 0;
  if (is_a64(shape.target)) {
    constexpr unsigned size = sizeof a64_pool;
    next = 4 * rotation;
    const auto pair = [&](auto& into) {
      into[0] = a64_pool[next % size];
      into[1] = a64_pool[(next + 1) % size];
      next += 2;
    };
    pair(registers.operand);
    if (needs.expected) pair(registers.expected);
    if (needs.result) pair(registers.result);
    for (unsigned i = 0; i < needs.scratch_count; ++i) {
      registers.scratch[i] = a64_pool[(next + i) % size];
    }
    next += needs.scratch_count;
    registers.address = rotation == 6 ? std::uint8_t{31} : a64_pool[next % size];
    if (!needs.pair)
      registers.operand[1] = registers.result[1] = registers.expected[1] = kNoRegister;
    return registers;
  }
  constexpr unsigned size = sizeof x86_pool;
  next = rotation;
  const auto take = [&] { return x86_pool[next++ % size]; };
  registers.address = take();
  for (unsigned i = 0; i < (needs.pair ? 2U : 1U); ++i) {
    registers.operand[i] = take();
    if (needs.expected) registers.expected[i] = take();
    if (needs.result) registers.result[i] = take();
  }
  for (unsigned i = 0; i < needs.scratch_count; ++i) registers.scratch[i] = take();
  return registers;
}
inline constexpr unsigned kRegisterRotations = 7;

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_TESTS_JIT_RMW_SHAPES_H_
