// PyTorch's dtypes and numbers as the IR's.
#include <c10/util/Type.h>

#include "base/error.h"
#include "base/text.h"
#include "torch/tensor.h"

namespace tp::torch_room {

using ir::DType;

DType to_dtype(at::ScalarType t) {
  switch (t) {
    case at::kBool:
      return DType::kPred;
    case at::kByte:
      return DType::kU8;
    case at::kChar:
      return DType::kS8;
    case at::kShort:
      return DType::kS16;
    case at::kInt:
      return DType::kS32;
    case at::kLong:
      return DType::kS64;
    case at::kUInt16:
      return DType::kU16;
    case at::kUInt32:
      return DType::kU32;
    case at::kUInt64:
      return DType::kU64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kComplexFloat:
      return DType::kC64;
    case at::kComplexDouble:
      return DType::kC128;
    case at::kFloat8_e4m3fn:
      return DType::kF8E4M3FN;
    case at::kFloat8_e5m2:
      return DType::kF8E5M2;
    default:
      break;
  }
  fail(Code::kType, cat("device xla has no tensors of dtype ", c10::toString(t)),
       "convert it on the CPU first");
}

at::ScalarType to_scalar_type(DType t) {
  static constexpr at::ScalarType kTypes[] = {
      at::kBool,          at::kByte,       at::kChar,   at::kShort,        at::kInt,
      at::kLong,          at::kUInt16,     at::kUInt32, at::kUInt64,       at::kHalf,
      at::kBFloat16,      at::kFloat,      at::kDouble, at::kComplexFloat, at::kComplexDouble,
      at::kFloat8_e4m3fn, at::kFloat8_e5m2};
  static_assert(std::size(kTypes) == static_cast<size_t>(DType::kCount));
  return kTypes[static_cast<int>(t)];
}

ir::Scalar to_scalar(const at::Scalar& s) {
  ir::Scalar r;
  if (s.isComplex()) {
    r.kind = ir::Scalar::Kind::kComplex;
    r.re = s.toComplexDouble().real();
    r.im = s.toComplexDouble().imag();
  } else if (s.isFloatingPoint()) {
    r.kind = ir::Scalar::Kind::kFloat;
    r.re = s.toDouble();
  } else if (s.isBoolean()) {
    r.kind = ir::Scalar::Kind::kBool;
    r.integer = s.toBool();
  } else {
    r.kind = ir::Scalar::Kind::kInt;
    r.integer = s.isUnsigned() ? static_cast<int64_t>(s.toUInt64()) : s.toLong();
  }
  return r;
}

}  // namespace tp::torch_room
