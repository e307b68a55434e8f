#include "ir/dtype.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tp::ir {
namespace {

struct Row {
  const char* name;
  const char* mlir;
  int size;
};
constexpr Row kRows[] = {
    {"pred", "i1", 1},           {"u8", "ui8", 1},           {"s8", "i8", 1},
    {"s16", "i16", 2},           {"s32", "i32", 4},          {"s64", "i64", 8},
    {"u16", "ui16", 2},          {"u32", "ui32", 4},         {"u64", "ui64", 8},
    {"f16", "f16", 2},           {"bf16", "bf16", 2},        {"f32", "f32", 4},
    {"f64", "f64", 8},           {"c64", "complex<f32>", 8}, {"c128", "complex<f64>", 16},
    {"f8e4m3fn", "f8E4M3FN", 1}, {"f8e5m2", "f8E5M2", 1},
};
static_assert(std::size(kRows) == static_cast<size_t>(DType::kCount));

int category(DType t) { return is_complex(t) ? 3 : is_float(t) ? 2 : t == DType::kPred ? 0 : 1; }

DType promote_int(DType a, DType b) {
  if (a == DType::kU8 || b == DType::kU8) {
    DType other = a == DType::kU8 ? b : a;
    return other == DType::kS8 ? DType::kS16 : other;
  }
  return std::max(a, b);  // s8 < s16 < s32 < s64 in the enum
}

DType promote_float(DType a, DType b) {
  if ((a == DType::kF16 && b == DType::kBF16) || (a == DType::kBF16 && b == DType::kF16))
    return DType::kF32;
  return std::max(a, b);
}

DType promote_complex(DType a, DType b) {
  auto wide = [](DType t) { return t == DType::kC128 || t == DType::kF64; };
  return wide(a) || wide(b) ? DType::kC128 : DType::kC64;
}

}  // namespace

std::string_view dtype_name(DType t) { return kRows[static_cast<int>(t)].name; }
std::string_view dtype_mlir(DType t) { return kRows[static_cast<int>(t)].mlir; }
int dtype_size(DType t) { return kRows[static_cast<int>(t)].size; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  int ca = category(a), cb = category(b);
  if (std::max(ca, cb) == 3) return promote_complex(a, b);
  if (ca != cb) return ca > cb ? a : b;
  auto f8 = [](DType t) { return t == DType::kF8E4M3FN || t == DType::kF8E5M2; };
  if (f8(a) || f8(b))
    fail(Code::kType, cat("Promotion for Float8 Types is not supported, attempted to promote ",
                          dtype_name(a), " and ", dtype_name(b)));
  return ca == 2 ? promote_float(a, b) : promote_int(a, b);
}

}  // namespace tp::ir
