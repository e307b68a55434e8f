#include "ops/helpers.h"

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
  DType d = re.dtype() == DType::kF64 ? DType::kC128 : DType::kC64;
  return b.op("stablehlo.complex", {re, im}, re.type.with(d));
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

void type_binary(const Args& a, std::vector<Type>& out) {
  IntList dims = broadcast_dims(a.type("self").dims(), a.type("other").dims());
  out.push_back(ir::make_type(a.common_dtype({"self", "other"}), dims));
}

void type_binary_pred(const Args& a, std::vector<Type>& out) {
  IntList dims = broadcast_dims(a.type("self").dims(), a.type("other").dims());
  out.push_back(ir::make_type(DType::kPred, dims));
}

}  // namespace tp::ops
