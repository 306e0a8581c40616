// SPDX-License-Identifier: MIT
// Text into trees of numbers, symbols and lists. Knows nothing of the heap.
#ifndef TOUCHSTONE_TESTS_LISP_READER_H_
#define TOUCHSTONE_TESTS_LISP_READER_H_

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace touchstone::lisp {

/// What is wrong with a program, and in which line of it.
struct Complaint {
  unsigned line = 0;
  std::string what;
};
template <typename T = void>
using Checked = std::expected<T, Complaint>;

struct Node {
  enum class Kind : std::uint8_t { kNumber, kSymbol, kList };
  Kind kind = Kind::kList;
  unsigned line = 0;
  std::int64_t number = 0;
  std::string symbol{};
  std::vector<Node> items{};

  [[nodiscard]] bool is(std::string_view name) const {
    return kind == Kind::kSymbol && symbol == name;
  }
  [[nodiscard]] bool is_list() const { return kind == Kind::kList; }
  /// A list that starts with this symbol.
  [[nodiscard]] bool is_form(std::string_view name) const {
    return is_list() && !items.empty() && items[0].is(name);
  }
};

class Reader {
 public:
  /// Lists nest no deeper, so that nothing that follows them overflows a stack.
  static constexpr unsigned kMostNesting = 200;

  explicit Reader(std::string_view text) : text_(text) {}
  /// The next tree; nothing at the end.
  [[nodiscard]] Checked<std::optional<Node>> next();

 private:
  void skip_space();
  [[nodiscard]] Checked<Node> read(unsigned nesting);
  [[nodiscard]] std::unexpected<Complaint> complain(std::string what) const {
    return std::unexpected(Complaint{.line = line_, .what = std::move(what)});
  }

  std::string_view text_;
  std::size_t at_ = 0;
  unsigned line_ = 1;
};

}  // namespace touchstone::lisp

#endif  // TOUCHSTONE_TESTS_LISP_READER_H_
