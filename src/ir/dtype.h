// Element types: names as XLA prints them (f32, s64, pred), their MLIR spelling, sizes, and
// PyTorch's promotion lattice (c10/core/ScalarType.cpp: promoteTypes). Pure functions; any thread.
#pragma once
#include <cstdint>
#include <string_view>

namespace tp::ir {

enum class DType : uint8_t {
  kPred,
  kU8,
  kS8,
  kS16,
  kS32,
  kS64,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
  kF8E4M3FN,
  kF8E5M2,
  kCount
};

std::string_view dtype_name(DType t);  // "f32"
std::string_view dtype_mlir(DType t);  // "f32", "i64", "ui8", "i1", "complex<f32>"
int dtype_size(DType t);               // bytes an element

constexpr bool is_complex(DType t) { return t == DType::kC64 || t == DType::kC128; }
constexpr bool is_float(DType t) {
  return (t >= DType::kF16 && t <= DType::kF64) || t == DType::kF8E4M3FN || t == DType::kF8E5M2;
}
constexpr bool is_int(DType t) { return t >= DType::kU8 && t <= DType::kU64; }  // without pred
constexpr bool is_wide_int(DType t) { return t == DType::kS64 || t == DType::kU64; }
constexpr bool is_unsigned(DType t) {
  return t == DType::kU8 || (t >= DType::kU16 && t <= DType::kU64) || t == DType::kPred;
}
// Of a signed integer type: the unsigned one as wide.
constexpr DType unsigned_dtype(DType t) {
  switch (t) {
    case DType::kS8:
      return DType::kU8;
    case DType::kS16:
      return DType::kU16;
    case DType::kS32:
      return DType::kU32;
    case DType::kS64:
      return DType::kU64;
    default:
      return t;
  }
}
// Two-byte and one-byte floats, which PyTorch computes in float32 (opmath).
constexpr bool is_small_float(DType t) {
  return t == DType::kF16 || t == DType::kBF16 || t == DType::kF8E4M3FN || t == DType::kF8E5M2;
}
constexpr DType compute_dtype(DType t) { return is_small_float(t) ? DType::kF32 : t; }
constexpr DType real_dtype(DType t) {
  return t == DType::kC64 ? DType::kF32 : t == DType::kC128 ? DType::kF64 : t;
}
// The complex type of that width; of smaller floats, the smallest there is.
constexpr DType complex_dtype(DType t) { return t == DType::kF64 ? DType::kC128 : DType::kC64; }

// The type that eager's `a + b` of two tensors of equal category has. Throws kType for float8
// mixes.
DType promote(DType a, DType b);

}  // namespace tp::ir
