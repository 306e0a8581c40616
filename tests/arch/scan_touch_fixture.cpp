// SPDX-License-Identifier: MIT
// Compiled for arm64 by every compiler at hand, and searched for loops that pre-touch. touch_* are
// such loops, and end in their stride in bytes or in _unknown; calm_* resemble them and are none.
#include <atomic>
#include <cstddef>
#include <cstdint>

#define ORDER __ATOMIC_SEQ_CST

namespace {

template <typename T>
inline T* as(char* p) {
  return reinterpret_cast<T*>(p);
}

template <typename T>
inline void keep_by_compare_and_swap(T* p) {
  T expected = *p;
  __atomic_compare_exchange_n(p, &expected, expected, false, ORDER, ORDER);
}

}  // namespace

#define LOOP(step) for (char* p = begin; p < end; p += (step))

extern "C" {

std::size_t page_size = 4096;

void touch_add_4096(char* begin, char* end) {
  LOOP(4096) __atomic_fetch_add(as<int>(p), 0, ORDER);
}
void touch_add_byte_4096(char* begin, char* end) {
  LOOP(4096) __atomic_fetch_add(as<std::uint8_t>(p), 0, ORDER);
}
void touch_add_double_65536(char* begin, char* end) {
  LOOP(65536) __atomic_fetch_add(as<long>(p), 0, ORDER);
}
void touch_or_4096(char* begin, char* end) {
  LOOP(4096) __atomic_fetch_or(as<int>(p), 0, ORDER);
}
void touch_or_16384(char* begin, char* end) {
  LOOP(16384) __atomic_or_fetch(as<long>(p), 0, ORDER);
}
void touch_xor_4096(char* begin, char* end) {
  LOOP(4096) __atomic_fetch_xor(as<int>(p), 0, ORDER);
}
void touch_and_4096(char* begin, char* end) {
  LOOP(4096) __atomic_fetch_and(as<int>(p), -1, ORDER);
}
void touch_cas_4096(char* begin, char* end) {
  LOOP(4096) keep_by_compare_and_swap(as<int>(p));
}
void touch_cas_half_8192(char* begin, char* end) {
  LOOP(8192) keep_by_compare_and_swap(as<std::uint16_t>(p));
}
void touch_cas_double_2097152(char* begin, char* end) {
  LOOP(2097152) keep_by_compare_and_swap(as<long>(p));
}
void touch_cas_zero_4096(char* begin, char* end) {
  LOOP(4096) {
    int expected = 0;
    __atomic_compare_exchange_n(as<int>(p), &expected, 0, false, ORDER, ORDER);
  }
}
void touch_down_4096(char* begin, char* end) {
  for (char* p = end; p > begin;) {
    p -= 4096;
    __atomic_fetch_add(as<int>(p), 0, ORDER);
  }
}
void touch_index_4096(char* begin, std::size_t pages) {
  for (std::size_t i = 0; i < pages; ++i) __atomic_fetch_add(as<int>(begin + i * 4096), 0, ORDER);
}
void touch_int_index_4096(char* begin, int pages) {
  for (int i = 0; i < pages; ++i) __atomic_fetch_add(as<int>(begin + i * 4096L), 0, ORDER);
}
void touch_argument_unknown(char* begin, char* end, std::size_t step) {
  LOOP(step) __atomic_fetch_add(as<int>(p), 0, ORDER);
}
void touch_global_unknown(char* begin, char* end) {
  LOOP(page_size) __atomic_fetch_or(as<int>(p), 0, ORDER);
}
void touch_product_unknown(char* begin, std::size_t pages, std::size_t step) {
  for (std::size_t i = 0; i < pages; ++i) keep_by_compare_and_swap(as<int>(begin + i * step));
}
void touch_atomic_ref_4096(char* begin, char* end) {
  LOOP(4096) std::atomic_ref<int>(*as<int>(p)).fetch_add(0);
}
void touch_atomic_object_4096(char* begin, char* end) {
  LOOP(4096) reinterpret_cast<std::atomic<int>*>(p)->fetch_or(0);
}
__attribute__((noinline)) void touch_one(char* p) {
  __atomic_fetch_add(as<int>(p), 0, ORDER);
}
void touch_by_call_4096(char* begin, char* end) {
  LOOP(4096) touch_one(p);
}

// Changes the value.
void calm_count(char* begin, char* end) {
  LOOP(4096) __atomic_fetch_add(as<int>(p), 1, ORDER);
}
void calm_lock(char* begin, char* end) {
  LOOP(4096) {
    int expected = 0;
    __atomic_compare_exchange_n(as<int>(p), &expected, 1, false, ORDER, ORDER);
  }
}
void calm_given(char* begin, char* end, int value) {
  LOOP(4096) __atomic_fetch_or(as<int>(p), value, ORDER);
}
void calm_swap(char* begin, char* end) {
  LOOP(4096) __atomic_exchange_n(as<int>(p), 0, ORDER);
}
// Steps by less than a page.
void calm_lines(char* begin, char* end) {
  LOOP(64) __atomic_fetch_add(as<int>(p), 0, ORDER);
}
void calm_words(int* begin, int* end) {
  for (int* p = begin; p < end; ++p) keep_by_compare_and_swap(p);
}
// Stays where it is.
void calm_spin(int* p) {
  while (__atomic_fetch_add(p, 0, ORDER) != 0) {
  }
}
// Is no read-modify-write.
void calm_store(char* begin, char* end) {
  LOOP(4096) __atomic_store_n(as<int>(p), 0, ORDER);
}
int calm_load(char* begin, char* end) {
  int sum = 0;
  LOOP(4096) sum += __atomic_load_n(as<int>(p), ORDER);
  return sum;
}
// Is no loop.
void calm_once(char* p) {
  __atomic_fetch_add(as<int>(p), 0, ORDER);
}
// Follows pointers.
struct Node {
  Node* next;
  int value;
};
void calm_list(Node* node) {
  for (; node != nullptr; node = node->next) __atomic_fetch_add(&node->value, 0, ORDER);
}

}  // extern "C"
