// SPDX-License-Identifier: MIT
// The example runtime: programs that say what they print, with the collector at its busiest.
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../heap/collector_fixture.h"
#include "../heap/result_assertions.h"
#include "interpreter.h"

namespace touchstone::lisp {
namespace {

using heap::HeapOptions;
using heap::testing::Recorder;
using ::testing::IsEmpty;
using touchstone::testing::ok;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

struct Setting {
  const char* name;
  HeapOptions options;
};
std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.name;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  EXPECT_TRUE(stream) << file;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// What a program's lines with ;=> say that it prints.
std::string expected_output(const std::string& program) {
  std::istringstream lines(program);
  std::string expected;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(";=> ")) expected += line.substr(4) + '\n';
  }
  EXPECT_NE(expected, "");
  return expected;
}

class Lisp : public ::testing::Test {
 protected:
  void make(HeapOptions options = {.max_size = 8 * kMiB}) {
    options.verify = true;
    options.poison = true;
    options.listener = &told_;
    auto interpreter = Interpreter::create(options, out_);
    ASSERT_TRUE(ok(interpreter));
    interpreter_ = std::move(*interpreter);
  }
  void TearDown() override { EXPECT_THAT(told_.violations, IsEmpty()); }
  /// The value, or "line: complaint".
  std::string run(std::string_view program) {
    const Checked<std::string> value = interpreter_->run(program);
    if (value) return *value;
    return std::to_string(value.error().line) + ": " + value.error().what;
  }

  Recorder told_;
  std::ostringstream out_;
  std::unique_ptr<Interpreter> interpreter_;
};

class LispPrograms : public Lisp, public ::testing::WithParamInterface<Setting> {};
INSTANTIATE_TEST_SUITE_P(
    Settings, LispPrograms,
    ::testing::Values(
        Setting{"plain", {.max_size = 8 * kMiB}},
        Setting{"young", {.max_size = 16 * kMiB, .young_size = kMiB, .tenuring_age = 3}},
        Setting{"stress", {.max_size = 8 * kMiB, .workers = 1, .stress_interval = 101}},
        Setting{"stress_workers", {.max_size = 8 * kMiB, .workers = 3, .stress_interval = 199}}),
    [](const auto& each) { return std::string(each.param.name); });

TEST_P(LispPrograms, PrintWhatTheySay) {
  for (const char* const name : {"hello", "language", "trees"}) {
    SCOPED_TRACE(name);
    make(GetParam().options);
    out_.str({});
    const std::string program =
        text_of(std::filesystem::path(TOUCHSTONE_LISP_PROGRAMS) / (std::string(name) + ".lisp"));
    const Checked<std::string> value = interpreter_->run(program);
    ASSERT_TRUE(value) << value.error().line << ": " << value.error().what;
    EXPECT_EQ(out_.str(), expected_output(program));
    if (GetParam().options.stress_interval != 0 && std::string_view(name) == "trees") {
      EXPECT_GE(interpreter_->runtime().heap().statistics().full_collections, 5U);
    }
  }
}

TEST_F(Lisp, FaultsAreValuesAndTheHeapGoesOn) {
  make({.max_size = 4 * kMiB});
  const std::string program =
      text_of(std::filesystem::path(TOUCHSTONE_LISP_PROGRAMS) / "faults.lisp");
  const Checked<std::string> value = interpreter_->run(program);
  ASSERT_TRUE(value) << value.error().line << ": " << value.error().what;
  EXPECT_EQ(out_.str(), expected_output(program));
  EXPECT_GE(interpreter_->runtime().heap().statistics().out_of_memory, 3U);
}

TEST_F(Lisp, EveryAllocationCollects) {
  make({.max_size = 4 * kMiB, .workers = 1, .stress_interval = 1});
  EXPECT_EQ(run("(define (numbers n) (if (= n 0) nil (cons n (numbers (- n 1)))))"
                "(define (reverse a b) (if (null? a) b (reverse (cdr a) (cons (car a) b))))"
                "(let ((n 12)) (reverse (numbers n) (list (lambda () (set! n 3)) n)))"),
            "(1 2 3 4 5 6 7 8 9 10 11 12 function 12)");
  EXPECT_GE(interpreter_->runtime().heap().statistics().full_collections, 15U);
}

TEST_F(Lisp, ComplaintsNameTheLineAndMoreCanBeRun) {
  make();
  EXPECT_EQ(run("(define a 7)\n\n(car a)"), "3: not-a-pair");
  EXPECT_EQ(run("a"), "7");
  EXPECT_EQ(run("\n(+ 1\n2"), "3: the text ends within a list");
  EXPECT_EQ(run(")"), "1: a ) too many");
  EXPECT_EQ(run("\x01"), "1: a character that no program has");
  EXPECT_EQ(run("'"), "1: the text ends within a list");
  EXPECT_EQ(run("4611686018427387904"), "1: a number that is too large");
  EXPECT_EQ(run("(if)"), "1: if takes a condition and one or two expressions");
  EXPECT_EQ(run("(lambda (1) 2)"), "1: a name is expected");
  EXPECT_EQ(run("(define car 2)"), "1: car cannot be given another meaning");
  EXPECT_EQ(run("(let ((t 2)) 3)"), "1: t cannot be given another meaning");
  EXPECT_EQ(run("(let ((x)) 3)"), "1: let takes (name value)");
  EXPECT_EQ(run("(cons 1)"), "1: cons takes 2 arguments");
  EXPECT_EQ(run("(begin (define x 1))"), "1: define stands at the top of a program only");
  EXPECT_EQ(run("if"), "1: if is no value");
  EXPECT_EQ(run(std::string(300, '(')), "1: nested too deep");
  std::string list = "(list";
  for (int i = 0; i < 1000; ++i) list += " 1";
  EXPECT_EQ(run(list + ")"), "1: nested too deep");
  EXPECT_EQ(run("(define (f) (f 1))\n(f)"), "1: wrong-number-of-arguments");
  EXPECT_EQ(run("(collect) (+ a 1)"), "8");
}

TEST_F(Lisp, NoRoomForALiteralIsAComplaint) {
  make({.max_size = 2 * kMiB});
  std::string literal = "'(";
  for (int i = 0; i < 200'000; ++i) literal += "1 ";
  EXPECT_THAT(run(literal + ")"), ::testing::HasSubstr("allocate"));
  EXPECT_EQ(run("'(1 2)"), "(1 2)");
}

TEST_F(Lisp, DeepRecursionIsAFaultAtEveryDepth) {
  make();
  EXPECT_EQ(run("(define (sum n) (if (= n 0) 0 (+ n (sum (- n 1)))))\n(sum 10000)"), "50005000");
  EXPECT_EQ(run("(sum 1000000)"), "1: too-deep");
  EXPECT_EQ(run("(sum 10000)"), "50005000");
}

TEST_F(Lisp, AnAllocationThatFailsAnywhereIsAFault) {
  const std::string program =
      "(define (numbers n) (if (= n 0) nil (cons n (numbers (- n 1)))))"
      "(define (make n) (let ((v (make-vector n (lambda () (set! n 1))))) (numbers n)))"
      "(list 'made (make 9))";
  // In stress mode each allocation comes to the slow path, where it can be made to fail.
  make({.max_size = 4 * kMiB, .workers = 1, .stress_interval = 1000});
  const std::string good = run(program);
  EXPECT_EQ(good, "(made (9 8 7 6 5 4 3 2 1))");
  std::size_t failed = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    interpreter_->runtime().heap().fail_allocation(nth);
    const std::string value = run(program);
    interpreter_->runtime().heap().fail_allocation(0);
    if (value == good) break;
    EXPECT_EQ(value, "1: out-of-memory") << nth;
    ++failed;
    ASSERT_TRUE(ok(interpreter_->runtime().heap().collect(&interpreter_->runtime().mutator())));
  }
  EXPECT_GE(failed, 15U);
}

/// Text of the language's pieces, in no sensible order but often in balance.
std::string random_program(std::mt19937& random) {
  static constexpr std::array<const char*, 34> kPieces{
      "(",          ")",           "(",     ")",    "'",       "1",   "-5",      "x",
      "y",          "nil",         "t",     "car",  "cons",    "+",   "if",      "let",
      "lambda",     "define",      "set!",  "try",  "((x 1))", "(x)", "quote",   "list",
      "vector-ref", "make-vector", "begin", "cond", "else",    "and", "(+ 1 2)", "(lambda (x) x)",
      "(cons 1 2)", "; c\n"};
  std::string text;
  int open = 0;
  for (std::size_t i = 0, n = 1 + random() % 40; i < n; ++i) {
    const std::string piece = kPieces[random() % kPieces.size()];
    open += piece == "(" ? 1 : piece == ")" ? -1 : 0;
    text += piece + ' ';
  }
  while (open-- > 0) text += ')';
  return text;
}

TEST_F(Lisp, RandomTextIsRunOrComplainedOf) {
  make({.max_size = 4 * kMiB, .workers = 1, .stress_interval = 50});
  std::mt19937 random(7);
  std::size_t values = 0;
  std::size_t complaints = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string program = random_program(random);
    const Checked<std::string> value = interpreter_->run(program);
    if (value) {
      ++values;
    } else {
      ++complaints;
      EXPECT_FALSE(value.error().what.empty());
      EXPECT_NE(value.error().line, 0U) << program;
      EXPECT_EQ(value.error().what.find('\n'), std::string::npos);
    }
  }
  EXPECT_GE(values, 20U);
  EXPECT_GE(complaints, 500U);
  EXPECT_EQ(run("(+ 1 2)"), "3");
}

}  // namespace
}  // namespace touchstone::lisp
