// Products and windows of sizes that may be too large to exist: what does not fit an int64_t is
// said so, never wrapped. Pure; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/text.h"

namespace tp {

inline std::optional<int64_t> product_of(std::span<const int64_t> sizes, int64_t item = 1) {
  int64_t n = item;
  for (int64_t s : sizes)
    if (__builtin_mul_overflow(n, s, &n)) return std::nullopt;
  return n;
}

// How many elements of memory a window of these sizes, strides and offset reaches over; 0 where it
// has none. Nothing where that is no such number, or where the window reaches below its start.
inline std::optional<int64_t> window_extent(std::span<const int64_t> sizes,
                                            std::span<const int64_t> strides, int64_t offset) {
  int64_t last = offset;
  bool bad = offset < 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    int64_t reach = 0;
    bad |= sizes[i] < 0 || strides[i] < 0 ||
           __builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
           __builtin_add_overflow(last, reach, &last);
  }
  if (bad || __builtin_add_overflow(last, 1, &last)) return std::nullopt;
  return last;
}

[[noreturn]] inline void size_overflow() {
  fail(Code::kRuntime, "numel: integer multiplication overflow");
}
// a * b and a + b, for sizes that type rules make of the user's numbers.
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t n = 0;
  if (__builtin_mul_overflow(a, b, &n)) size_overflow();
  return n;
}
inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t n = 0;
  if (__builtin_add_overflow(a, b, &n)) size_overflow();
  return n;
}

}  // namespace tp
