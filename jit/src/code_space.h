// SPDX-License-Identifier: MIT
#ifndef TOUCHSTONE_JIT_SRC_CODE_SPACE_H_
#define TOUCHSTONE_JIT_SRC_CODE_SPACE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace touchstone::jit {

/// Which offsets of the code space are free: best fit, lowest offset first, neighbours joined.
/// Sizes are multiples of the caller's alignment. Not thread-safe.
class CodeSpace {
 public:
  explicit CodeSpace(std::size_t size) {
    if (size != 0) insert(0, size);
  }

  std::optional<std::size_t> take(std::size_t size) {
    const auto found = by_size_.lower_bound({size, 0});
    if (found == by_size_.end()) return std::nullopt;
    const auto [have, offset] = *found;
    by_size_.erase(found);
    by_offset_.erase(offset);
    if (have > size) insert(offset + size, have - size);
    return offset;
  }

  void give(std::size_t offset, std::size_t size) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + size) {
      size += next->second;
      by_size_.erase({next->second, next->first});
      next = by_offset_.erase(next);
    }
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        by_size_.erase({before->second, before->first});
        by_offset_.erase(before);
      }
    }
    insert(offset, size);
  }

  [[nodiscard]] std::size_t fragments() const { return by_offset_.size(); }

 private:
  void insert(std::size_t offset, std::size_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }

  std::map<std::size_t, std::size_t> by_offset_;
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

}  // namespace touchstone::jit

#endif  // TOUCHSTONE_JIT_SRC_CODE_SPACE_H_
