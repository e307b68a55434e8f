// Words that eager uses for dtypes and sizes in its error messages. Pure functions; any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/text.h"
#include "ir/type.h"

namespace tp::ops {

struct EagerName {
  std::string_view scalar;  // c10::toString: "Float"
  std::string_view cpp;     // TypeMeta's name: "float", "c10::BFloat16", "long int"
};

inline EagerName eager_name(ir::DType t) {
  static constexpr EagerName kNames[] = {
      {"Bool", "bool"},
      {"Byte", "unsigned char"},
      {"Char", "signed char"},
      {"Short", "short int"},
      {"Int", "int"},
      {"Long", "long int"},
      {"UInt16", "short unsigned int"},
      {"UInt32", "unsigned int"},
      {"UInt64", "long unsigned int"},
      {"Half", "c10::Half"},
      {"BFloat16", "c10::BFloat16"},
      {"Float", "float"},
      {"Double", "double"},
      {"ComplexFloat", "c10::complex<float>"},
      {"ComplexDouble", "c10::complex<double>"},
      {"Float8_e4m3fn", "c10::Float8_e4m3fn"},
      {"Float8_e5m2", "c10::Float8_e5m2"},
  };
  static_assert(std::size(kNames) == static_cast<size_t>(ir::DType::kCount));
  return kNames[static_cast<size_t>(t)];
}

// [2, 3, 4]
inline std::string size_text(std::span<const int64_t> dims) {
  return cat("[", join(dims, ", "), "]");
}

// "op" not implemented for 'Bool'
inline std::string not_implemented_for(std::string_view kernel, ir::DType t) {
  return cat("\"", kernel, "\" not implemented for '", eager_name(t).scalar, "'");
}

// expected scalar type Float but found Double
inline std::string expected_scalar_type(ir::DType want, ir::DType have) {
  return cat("expected scalar type ", eager_name(want).scalar, " but found ",
             eager_name(have).scalar);
}

// Found dtype Double but expected Float
inline std::string found_dtype(ir::DType have, ir::DType want) {
  return cat("Found dtype ", eager_name(have).scalar, " but expected ", eager_name(want).scalar);
}

// result type Float can't be cast to the desired output type Int
inline std::string cannot_be_cast(ir::DType from, ir::DType to) {
  return cat("result type ", eager_name(from).scalar, " can't be cast to the desired output type ",
             eager_name(to).scalar);
}

// Expected out tensor to have dtype float, but got long int instead
inline std::string expected_out_dtype(ir::DType want, ir::DType have) {
  return cat("Expected out tensor to have dtype ", eager_name(want).cpp, ", but got ",
             eager_name(have).cpp, " instead");
}

}  // namespace tp::ops
