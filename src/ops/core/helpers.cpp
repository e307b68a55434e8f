#include "ops/core/helpers.h"

#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace tp::ops {

using hlo::Cmp;

void put(Lowering& l, std::vector<V>& out, V v) {
  out.push_back(l.builder().convert(v, l.out(out.size()).dtype()));
}

V number_or(Lowering& l, std::string_view name, Type t, double c) {
  return l.has(name) ? l.number(name, t) : l.builder().constant(c, t);
}

// --- small pieces --------------------------------------------------------------------------------

V sign_bit(Builder& b, V x) {
  DType d = x.dtype();
  if (!ir::is_float(d)) return b.compare(x, 0, Cmp::kLt);
  DType bits = ir::dtype_size(d) == 8   ? DType::kS64
               : ir::dtype_size(d) == 4 ? DType::kS32
               : ir::dtype_size(d) == 2 ? DType::kS16
                                        : DType::kS8;
  return b.compare(b.bitcast(x, x.type.with(bits)), 0, Cmp::kLt);
}

V copysign(Builder& b, V x, V y) {
  V size = b.abs(x);
  return b.select(sign_bit(b, y), b.neg(size), size);
}

V trunc(Builder& b, V x) {
  if (!ir::is_float(x.dtype())) return x;
  return b.select(b.compare(x, 0, Cmp::kLt), b.unary("stablehlo.ceil", x), b.floor(x));
}

V zeros_like(Builder& b, V x) { return b.zeros(x.type); }
V is_zero(Builder& b, V x) { return b.compare(x, 0, Cmp::kEq); }

V softplus(Builder& b, V x) {
  V tail = b.unary("stablehlo.log_plus_one", b.exp(b.neg(b.abs(x))));
  return b.add(b.max(x, 0.0), tail);
}

V real_part(Builder& b, V x) {
  if (!ir::is_complex(x.dtype())) return x;
  return b.op("stablehlo.real", {x}, x.type.with(ir::real_dtype(x.dtype())));
}
V imag_part(Builder& b, V x) {
  if (!ir::is_complex(x.dtype())) return b.zeros(x.type);
  return b.op("stablehlo.imag", {x}, x.type.with(ir::real_dtype(x.dtype())));
}
V make_complex(Builder& b, V re, V im) {
  return b.op("stablehlo.complex", {re, im}, re.type.with(ir::complex_dtype(re.dtype())));
}

V times_one(Builder& b, V x) {
  if (!ir::is_complex(x.dtype())) return x;
  V re = real_part(b, x), im = imag_part(b, x), zero = b.constant(0, re.type);
  return make_complex(b, b.sub(re, b.mul(im, zero)), b.add(im, b.mul(re, zero)));
}

V any_of(Builder& b, V x) {
  IntList all(x.dims().size());
  std::iota(all.begin(), all.end(), 0);
  return b.reduce(b.convert(x, DType::kPred), all, Builder::Red::kOr);
}

// chlo.zeta wants q > 0: smaller ones are walked up, term by term. Far below, where eager loops for
// minutes, the walk gives up.
V hurwitz_zeta(Builder& b, V x, V q) {
  auto below = [](Builder& r, V v) {
    return r.and_(r.compare(v, 0, Cmp::kLe), r.compare(v, -1e5, Cmp::kGt));
  };
  auto more = [&](Builder& r, std::span<const V> v) -> std::vector<V> {
    return {any_of(r, below(r, v[1]))};
  };
  auto step = [&](Builder& r, std::span<const V> v) -> std::vector<V> {
    V here = below(r, v[1]), one = r.ones(v[1].type);
    V term = r.binary("stablehlo.power", r.select(here, v[1], one), r.neg(v[2]));
    return {r.select(here, r.add(v[0], term), v[0]), r.select(here, r.add(v[1], one), v[1]), v[2]};
  };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  V whole_q = b.compare(b.floor(q), q, Cmp::kEq), low_q = b.compare(q, 0, Cmp::kLe);
  V pole = b.and_(low_q, whole_q);
  std::array<V, 3> init{b.zeros(x.type), b.select(pole, b.ones(q.type), q), x};
  std::vector<V> sum = b.while_loop(init, more, step);
  V z = b.add(sum[0], b.binary("chlo.zeta", x, sum[1]));
  V whole_x = b.compare(b.floor(x), x, Cmp::kEq);
  V nan = b.constant(std::numeric_limits<double>::quiet_NaN(), x.type),
    inf = b.constant(kInf, x.type);
  z = b.select(b.and_(low_q, b.not_(whole_x)), nan, z);
  z = b.select(pole, inf, z);
  z = b.select(b.compare(x, 1, Cmp::kLt), nan, z);
  return b.select(b.compare(x, 1, Cmp::kEq), inf, z);
}

// --- type rules ----------------------------------------------------------------------------------

IntList broadcast_dims(Ints a, Ints b) {
  size_t n = std::max(a.size(), b.size());
  IntList out(n);
  for (size_t i = 0; i < n; ++i) {  // i counts from the right
    int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail(Code::kRuntime, cat("The size of tensor a (", x, ") must match the size of tensor b (",
                               y, ") at non-singleton dimension ", n - 1 - i));
    out[n - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

IntList inverse_permutation(Ints perm) {
  IntList v(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    v[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return v;
}

IntList reduced_dims(Ints dims, Ints reduced, bool keepdim) {
  IntList out;
  for (size_t i = 0; i < dims.size(); ++i) {
    bool gone = std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) != reduced.end();
    if (!gone || keepdim) out.push_back(gone ? 1 : dims[i]);
  }
  return out;
}

void type_same(const Args& a, std::vector<Type>& out) { out.push_back(a.type("self")); }
void type_pred(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("self").with(DType::kPred));
}

double largest_finite(DType t) {
  switch (t) {
    case DType::kF16:
      return 65504.0;
    case DType::kBF16:
      return 3.3895313892515355e38;
    case DType::kF32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

void type_binary(const Args& a, std::vector<Type>& out) {
  IntList dims = broadcast_dims(a.type("self").dims(), a.type("other").dims());
  out.push_back(ir::make_type(a.common_dtype({"self", "other"}), dims));
}

void type_binary_pred(const Args& a, std::vector<Type>& out) {
  IntList dims = broadcast_dims(a.type("self").dims(), a.type("other").dims());
  out.push_back(ir::make_type(DType::kPred, dims));
}

}  // namespace tp::ops
