// Functions of complex numbers, made from real ones of their parts where the plugin's own lose a
// small part to cancellation, or take a zero of either sign for +0: on a branch cut that sign says
// which side is meant (C99, annex G.6). Formulas (helpers.h) for complex operands only. Pure; any
// thread.
#pragma once
#include "ops/core/helpers.h"

namespace tp::ops {

V complex_sin(Builder& b, V z);
V complex_cos(Builder& b, V z);
V complex_tan(Builder& b, V z);
V complex_asin(Builder& b, V z);
V complex_acos(Builder& b, V z);
V complex_atan(Builder& b, V z);
V complex_sinh(Builder& b, V z);
V complex_cosh(Builder& b, V z);
V complex_tanh(Builder& b, V z);
V complex_asinh(Builder& b, V z);
V complex_acosh(Builder& b, V z);
V complex_atanh(Builder& b, V z);
V complex_sqrt(Builder& b, V z);
V complex_rsqrt(Builder& b, V z);
V complex_expm1(Builder& b, V z);
V complex_log1p(Builder& b, V z);
V complex_divide(Builder& b, V x, V y);
V complex_scale(Builder& b, V z, double factor);  // part by part: an infinite one stays alone

// The formula that fits the operands: either<call<"stablehlo.sine">, complex_sin>.
template <auto of_real, auto of_complex>
V either(Builder& b, V x) {
  return ir::is_complex(x.dtype()) ? of_complex(b, x) : of_real(b, x);
}

inline V divide(Builder& b, V x, V y) {
  return ir::is_complex(x.dtype()) ? complex_divide(b, x, y) : b.div(x, y);
}
inline V square_root(Builder& b, V x) { return either<call<"stablehlo.sqrt">, complex_sqrt>(b, x); }
inline V reciprocal_root(Builder& b, V x) {
  return either<call<"stablehlo.rsqrt">, complex_rsqrt>(b, x);
}

}  // namespace tp::ops
