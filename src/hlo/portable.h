// Programs for other runtimes: the same functions without dialect `chlo`, which is XLA's own.
// Lowerings stay as they are; the builder writes StableHLO in the place of each `chlo` statement.
//
// The forms are plain mathematics (series, Euler-Maclaurin sums, Newton steps), exact to a few
// units in the last place of float32 and float64; narrower floats go by float32.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "hlo/builder.h"

namespace tp::hlo {

// While one lives, builders of this thread write no `chlo`.
class PortableText {
 public:
  PortableText() : before_(on_) { on_ = true; }
  ~PortableText() { on_ = before_; }
  PortableText(const PortableText&) = delete;
  static bool on() { return on_; }

 private:
  static thread_local constinit bool on_;
  bool before_;
};

// What `chlo` statement `name` gives. Throws Error{kNotImplemented} for a name that is not known.
std::vector<V> in_stablehlo(Builder& b, std::string_view name, std::span<const V> in,
                            std::span<const Type> out);

// For the files of this: functions of float32 or float64.
V portable_asinh(Builder& b, V x);
V portable_erf(Builder& b, V x);
V portable_erfc(Builder& b, V x);
V portable_erf_inv(Builder& b, V x);
V portable_lgamma(Builder& b, V x);
V portable_digamma(Builder& b, V x);
V portable_zeta(Builder& b, V x, V q);  // q > 0
// The value that a function of |x| has, with the sign of x.
V odd(Builder& b, V of_magnitude, V x);

}  // namespace tp::hlo
