// Pieces that the special functions share. Formulas: floating-point V in, V of the same type out;
// the caller converts. They follow PyTorch's CPU kernels branch by branch (each branch is computed
// and one is selected), so their rounding is eager's. Pure; any thread.
#pragma once
#include <span>

#include "ops/core/helpers.h"

namespace tp::ops {

// sum of c[i] x^(n-1-i): highest order first (Horner).
V polynomial(Builder& b, V x, std::span<const double> c);
// A Chebyshev series at x/2, coefficients of the highest order first (Cephes' chbevl).
V chebyshev_series(Builder& b, V x, std::span<const double> c);
V nan_like(Builder& b, V x);
V inf_like(Builder& b, V x);
V scaled_i0(Builder& b, V x);  // exp(-|x|) I0(x)
V scaled_i1(Builder& b, V x);
V erfcx(Builder& b, V x);  // exp(x^2) erfc(x)

}  // namespace tp::ops
