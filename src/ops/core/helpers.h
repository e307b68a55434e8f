// What the families share: lowerings made from small formulas, and type rules for ops that have no
// structured meta function. Formulas are `V f(Builder&, V...)`; they see operands in the compute
// dtype, broadcast to the result's dims, and their value is rounded once to the result's dtype.
// Pure; any thread.
#pragma once
#include <algorithm>
#include <array>
#include <tuple>

#include "ops/core/row.h"

namespace tp::ops {

// A string as a template argument: call<"stablehlo.tanh">.
template <size_t N>
struct Text {
  char text[N];
  consteval Text(const char (&s)[N]) { std::copy_n(s, N, text); }
};

// --- formulas ------------------------------------------------------------------------------------

template <Text name>
V call(Builder& b, V x) {
  return b.unary(name.text, x);
}
template <Text name>
V call2(Builder& b, V x, V y) {
  return b.binary(name.text, x, y);
}
inline V identity(Builder&, V x) { return x; }

// --- lowerings -----------------------------------------------------------------------------------

// The type of result i, with the dtype that eager computes it in.
inline Type compute_type(const Lowering& l, size_t i = 0) {
  return l.out(i).with(ir::compute_dtype(l.out(i).dtype()));
}
// Appends v as the next result, converted to its dtype.
void put(Lowering& l, std::vector<V>& out, V v);
// A number argument, or c where it was left out (a default of 1 is not recorded).
V number_or(Lowering& l, std::string_view name, Type t, double c);

template <auto formula>
void unary(Lowering& l, std::vector<V>& out) {
  put(l, out, formula(l.builder(), l.number("self", compute_type(l))));
}
template <auto formula>
void binary(Lowering& l, std::vector<V>& out) {
  Type t = compute_type(l);
  V x = l.number("self", t), y = l.number("other", t);
  put(l, out, formula(l.builder(), x, y));
}
// The formula sees self in its own dtype (widened): predicates, and ops whose result has another
// dtype.
template <auto formula>
void unary_of_self(Lowering& l, std::vector<V>& out) {
  V x = l.in("self");
  put(l, out, formula(l.builder(), l.builder().convert(x, ir::compute_dtype(x.dtype()))));
}
// Arguments by name, in the result's compute dtype: with_args<formula, "grad_output", "self">. A
// number that was left out is its default of 1.
template <auto formula, Text... names>
void with_args(Lowering& l, std::vector<V>& out) {
  Type t = compute_type(l);
  std::array<V, sizeof...(names)> v{number_or(l, names.text, t, 1)...};
  put(l, out, std::apply([&](auto... x) { return formula(l.builder(), x...); }, v));
}

// --- small pieces --------------------------------------------------------------------------------

V sign_bit(Builder& b, V x);       // pred; ints: x < 0
V copysign(Builder& b, V x, V y);  // x with y's sign
V trunc(Builder& b, V x);
V zeros_like(Builder& b, V x);
V is_zero(Builder& b, V x);
V softplus(Builder& b, V x);   // log(1 + exp(x)) without overflow
V real_part(Builder& b, V x);  // x itself where it is real
V imag_part(Builder& b, V x);
V make_complex(Builder& b, V re, V im);
// Eager multiplies by an alpha or value of 1 too, which shows where a complex number is infinite:
// its other part becomes nan. (XLA would drop a product with the constant 1.)
V times_one(Builder& b, V x);
V hurwitz_zeta(Builder& b, V x, V q);  // sum of (q + k)^-x, also for q < 0
V any_of(Builder& b, V x);             // pred, 0-d: is any element true

// Of a real float type.
double largest_finite(DType t);

// --- type rules ----------------------------------------------------------------------------------

// A dim counted from the end, as at::maybe_wrap_dim: rank 0 counts as 1; kIndex with eager's words.
int64_t wrap_dim(int64_t dim, int64_t rank);
// PyTorch's broadcast of two shapes, with eager's words.
IntList broadcast_dims(Ints a, Ints b);
IntList inverse_permutation(Ints perm);
// dims with `reduced` dropped, or kept as 1.
IntList reduced_dims(Ints dims, Ints reduced, bool keepdim);

void type_same(const Args& a, std::vector<Type>& out);         // self
void type_pred(const Args& a, std::vector<Type>& out);         // self, as bool
void type_binary(const Args& a, std::vector<Type>& out);       // promote and broadcast self, other
void type_binary_pred(const Args& a, std::vector<Type>& out);  // broadcast self, other, as bool
// The type of another argument: type_of<"grad_output">.
template <Text name>
void type_of(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type(name.text));
}

}  // namespace tp::ops
