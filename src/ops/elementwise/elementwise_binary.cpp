// Two operands, broadcast and promoted by the result type. The `.Scalar` overloads share the
// lowerings: a number is an operand too.
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/elementwise/complex_functions.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

V multiply(Builder& b, V x, V y) { return b.mul(x, y); }
V maximum(Builder& b, V x, V y) { return x.dtype() == DType::kPred ? b.or_(x, y) : b.max(x, y); }
V minimum(Builder& b, V x, V y) { return x.dtype() == DType::kPred ? b.and_(x, y) : b.min(x, y); }

// --- add, sub: alpha scales the second operand (rsub: the first) ---------------------------------

V scaled(Lowering& l, V x) {
  Builder& b = l.builder();
  return l.has("alpha") ? b.mul(x, l.number("alpha", x.type)) : times_one(b, x);
}
void add(Lowering& l, std::vector<V>& out) {
  Type t = compute_type(l);
  put(l, out, l.builder().add(l.number("self", t), scaled(l, l.number("other", t))));
}
void sub(Lowering& l, std::vector<V>& out) {
  Type t = compute_type(l);
  put(l, out, l.builder().sub(l.number("self", t), scaled(l, l.number("other", t))));
}
// As at::sub with its operands swapped.
void type_rsub(const Args& a, std::vector<Type>& out) {
  bool self = a.type("self").dtype() == DType::kPred,
       other = a.type("other").dtype() == DType::kPred;
  if (self && other)
    fail(Code::kRuntime,
         "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
         "`logical_xor()` operator instead.");
  if (self || other)
    fail(Code::kRuntime,
         "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
         "invert a mask, use the `~` or `logical_not()` operator instead.");
  type_binary(a, out);
}

void rsub(Lowering& l, std::vector<V>& out) {
  Type t = compute_type(l);
  put(l, out, l.builder().sub(l.number("other", t), scaled(l, l.number("self", t))));
}

// --- division and remainders ---------------------------------------------------------------------

V fmod(Builder& b, V x, V y) { return b.binary("stablehlo.remainder", x, y); }

V signs_differ(Builder& b, V x, V y) {
  return b.xor_(b.compare(x, 0, Cmp::kLt), b.compare(y, 0, Cmp::kLt));
}

// Python's remainder: the divisor's sign.
V remainder(Builder& b, V x, V y) {
  V r = fmod(b, x, y);
  if (ir::is_unsigned(x.dtype())) return r;
  V fix = b.and_(b.compare(r, 0, Cmp::kNe), signs_differ(b, r, y));
  return b.select(fix, b.add(r, y), r);
}

V divide_trunc(Builder& b, V x, V y) { return trunc(b, b.div(x, y)); }

// Floors the exact quotient, not the rounded one: (x - fmod(x, y)) / y is nearly whole already.
V divide_floor_float(Builder& b, V x, V y) {
  V r = fmod(b, x, y);
  V q = b.div(b.sub(x, r), y);
  V fix = b.and_(b.compare(r, 0, Cmp::kNe), signs_differ(b, r, y));
  q = b.select(fix, b.sub(q, 1.0), q);
  V whole = b.floor(q);
  whole = b.select(b.compare(b.sub(q, whole), 0.5, Cmp::kGt), b.add(whole, 1.0), whole);
  V quotient = b.div(x, y);
  V floored = b.select(is_zero(b, q), copysign(b, b.zeros(x.type), quotient), whole);
  return b.select(is_zero(b, y), quotient, floored);
}

V divide_floor(Builder& b, V x, V y) {
  if (ir::is_float(x.dtype())) return divide_floor_float(b, x, y);
  V q = b.div(x, y);
  if (ir::is_unsigned(x.dtype())) return q;
  V fix = b.and_(b.compare(fmod(b, x, y), 0, Cmp::kNe), signs_differ(b, x, y));
  return b.select(fix, b.sub(q, b.ones(q.type)), q);
}

// In the result's own dtype: eager rounds the quotient of halves before it drops the fraction.
template <auto formula>
void whole_quotient(Lowering& l, std::vector<V>& out) {
  V x = l.number("self", l.out()), y = l.number("other", l.out());
  out.push_back(formula(l.builder(), x, y));
}

void div_mode(Lowering& l, std::vector<V>& out) {
  std::string_view mode = l.text_or("rounding_mode", "");
  if (mode == "floor") return whole_quotient<divide_floor>(l, out);
  if (mode == "trunc") return whole_quotient<divide_trunc>(l, out);
  binary<divide>(l, out);
}

// --- powers --------------------------------------------------------------------------------------

// Exponentiation by squaring, wrapping like eager's (stablehlo.power forgets the exponent's high
// bits).
V power_whole(Builder& b, V x, V y) {
  auto more = [](Builder& r, std::span<const V> v) -> std::vector<V> {
    IntList all(v[2].dims().size());
    std::iota(all.begin(), all.end(), 0);
    return {r.reduce(r.compare(v[2], 0, Cmp::kGt), all, Builder::Red::kOr)};
  };
  auto step = [](Builder& r, std::span<const V> v) -> std::vector<V> {
    V one = r.ones(v[2].type);
    V odd = r.compare(r.and_(v[2], one), one, Cmp::kEq);
    V half = r.binary("stablehlo.shift_right_logical", v[2], one);
    return {r.select(odd, r.mul(v[0], v[1]), v[0]), r.mul(v[1], v[1]), half};
  };
  std::array<V, 3> init{b.ones(x.type), x, y};
  return b.while_loop(init, more, step)[0];
}

V power_int(Builder& b, V x, V y) {
  V p = power_whole(b, x, y);
  if (ir::is_unsigned(x.dtype())) return p;
  // Negative exponents: only 1 and -1 have whole powers.
  V odd = b.compare(b.and_(y, b.ones(y.type)), 0, Cmp::kNe);
  V one = b.compare(x, 1, Cmp::kEq), minus = b.compare(x, -1, Cmp::kEq);
  V unit = b.select(odd, b.constant_int(-1, x.type), b.ones(x.type));
  V small = b.select(one, b.ones(x.type), b.select(minus, unit, b.zeros(x.type)));
  return b.select(b.compare(y, 0, Cmp::kLt), small, p);
}

// 0 to a complex power, where the logarithm says nothing.
V power_complex(Builder& b, V x, V y) {
  V rises = real_part(b, y), nan = b.constant(kNaN, rises.type);
  V size = b.select(b.compare(rises, 0, Cmp::kLt), b.constant(kInf, rises.type), nan);
  V of_zero = b.select(b.compare(rises, 0, Cmp::kGt), b.zeros(x.type), make_complex(b, size, nan));
  V zero = b.compare(x, b.zeros(x.type), Cmp::kEq);
  V p = b.select(zero, of_zero, b.binary("stablehlo.power", x, y));
  return b.select(b.compare(y, b.zeros(y.type), Cmp::kEq), b.ones(x.type), p);
}

V power_fixed(Builder& b, V x, int64_t e) {
  V p = b.ones(x.type);
  for (; e > 0; e >>= 1) {
    if (e & 1) p = b.mul(p, x);
    if (e > 1) x = b.mul(x, x);
  }
  return p;
}

V power(Builder& b, V x, V y) {
  if (x.dtype() == DType::kPred) return b.or_(x, b.not_(y));
  if (ir::is_int(x.dtype())) return power_int(b, x, y);
  if (ir::is_complex(x.dtype())) return power_complex(b, x, y);
  return b.binary("stablehlo.power", x, y);
}

void pow(Lowering& l, std::vector<V>& out) {
  Type t = compute_type(l);
  V x = l.number("self", t), y = l.number("exponent", t);
  put(l, out, power(l.builder(), x, y));
}

// The exponents that eager computes by other means; so that x ** 2 is x * x to the last bit.
V power_of(Builder& b, V x, double e) {
  bool whole = !ir::is_float(x.dtype()) && !ir::is_complex(x.dtype());
  if (e == 0) return b.ones(x.type);
  if (e == 1) return x;
  if (e == 2) return b.mul(x, x);
  if (e == 3) return b.mul(b.mul(x, x), x);
  if (whole)
    return x.dtype() != DType::kPred && e > 0 ? power_fixed(b, x, static_cast<int64_t>(e)) : V{};
  if (e == 0.5) return square_root(b, x);
  if (e == -0.5) return reciprocal_root(b, x);
  if (e == -1) return divide(b, b.ones(x.type), x);
  if (e == -2) return divide(b, b.ones(x.type), b.mul(x, x));
  return {};
}

// An exponent that is an input: what power_of chooses, chosen in the program. Integers have one way
// for all exponents.
V power_by(Builder& b, V x, V e) {
  V y = b.broadcast_to(b.convert(e, x.dtype()), x.dims()), v = power(b, x, y);
  if (!ir::is_float(x.dtype()) && !ir::is_complex(x.dtype())) return v;
  e = b.convert(e, DType::kF64);
  for (double known : {0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0})
    v = b.select(b.broadcast_to(b.compare(e, known, hlo::Cmp::kEq), x.dims()),
                 power_of(b, x, known), v);
  return v;
}

void pow_baked(Lowering& l, std::vector<V>& out) {
  if (l.opt("exponent")) return pow(l, out);  // complex exponents stay operands
  V x = l.number("self", compute_type(l));
  if (V e = l.input("exponent")) return put(l, out, power_by(l.builder(), x, e));
  V known = power_of(l.builder(), x, l.f("exponent"));
  if (known) return put(l, out, known);
  put(l, out, power(l.builder(), x, l.number("exponent", x.type)));
}

// --- bits ----------------------------------------------------------------------------------------

// Shifts by more than the width, or by less than nothing, push every bit out.
template <Text name>
V shift(Builder& b, V x, V y) {
  int bits = 8 * ir::dtype_size(x.dtype());
  bool right = name.text[16] == 'r';
  V out_of_range = b.compare(y, b.constant_int(bits, y.type), Cmp::kGe);
  if (!ir::is_unsigned(y.dtype())) out_of_range = b.or_(out_of_range, b.compare(y, 0, Cmp::kLt));
  V all = b.zeros(x.type);
  if (right && !ir::is_unsigned(x.dtype()))
    all = b.binary(name.text, x, b.constant_int(bits - 1, y.type));
  std::string_view op =
      right && ir::is_unsigned(x.dtype()) ? "stablehlo.shift_right_logical" : name.text;
  return b.select(out_of_range, all, b.binary(op, x, y));
}

template <Text name>
void logical(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  auto as_pred = [&](std::string_view n) {
    return b.broadcast_to(b.convert(l.in(n), DType::kPred), l.out().dims());
  };
  out.push_back(b.binary(name.text, as_pred("self"), as_pred("other")));
}

V gcd(Builder& b, V x, V y) {
  auto more = [](Builder& r, std::span<const V> v) -> std::vector<V> {
    V left = r.compare(v[1], 0, Cmp::kNe);
    IntList all(left.dims().size());
    std::iota(all.begin(), all.end(), 0);
    return {r.reduce(left, all, Builder::Red::kOr)};
  };
  auto step = [](Builder& r, std::span<const V> v) -> std::vector<V> {
    V done = r.compare(v[1], 0, Cmp::kEq);
    V rest = fmod(r, v[0], r.select(done, r.ones(v[1].type), v[1]));
    return {r.select(done, v[0], v[1]), r.select(done, v[1], rest)};
  };
  std::array<V, 2> init{b.abs(x), b.abs(y)};
  return b.while_loop(init, more, step)[0];
}

V lcm(Builder& b, V x, V y) {
  V g = gcd(b, x, y);
  V zero = b.compare(g, 0, Cmp::kEq);
  V part = b.div(x, b.select(zero, b.ones(g.type), g));
  return b.select(zero, b.zeros(x.type), b.abs(b.mul(part, y)));
}

// --- floats --------------------------------------------------------------------------------------

V fmax(Builder& b, V x, V y) {
  if (!ir::is_float(x.dtype())) return maximum(b, x, y);
  return b.select(b.is_nan(x), y, b.select(b.is_nan(y), x, b.max(x, y)));
}
V fmin(Builder& b, V x, V y) {
  if (!ir::is_float(x.dtype())) return minimum(b, x, y);
  return b.select(b.is_nan(x), y, b.select(b.is_nan(y), x, b.min(x, y)));
}

V hypot(Builder& b, V x, V y) {
  V ax = b.abs(x), ay = b.abs(y);
  V big = b.max(ax, ay), small = b.min(ax, ay);
  V zero = is_zero(b, big);
  V ratio = b.div(small, b.select(zero, b.ones(x.type), big));
  V size = b.mul(big, b.sqrt(b.add(b.mul(ratio, ratio), 1.0)));
  V infinite = b.or_(b.compare(ax, kInf, Cmp::kEq), b.compare(ay, kInf, Cmp::kEq));
  return b.select(infinite, b.constant(kInf, x.type), size);
}

template <auto log_of>
V x_times_log(Builder& b, V x, V y) {
  V product = b.select(is_zero(b, x), b.zeros(x.type), b.mul(x, log_of(b, y)));
  return b.select(b.is_nan(y), b.constant(kNaN, x.type), product);
}

V log_add_exp_complex(Builder& b, V x, V y) {
  V re = real_part(b, x), other = real_part(b, y);
  V swap = b.compare(re, other, Cmp::kLt);
  V big = b.select(swap, y, x), small = b.select(swap, x, y);
  V sum = b.add(big, b.unary("stablehlo.log_plus_one", b.exp(b.sub(small, big))));
  V same_infinity = b.and_(b.compare(re, other, Cmp::kEq), b.compare(re, -kInf, Cmp::kEq));
  return b.select(same_infinity, small, sum);
}

V log_add_exp(Builder& b, V x, V y) {
  if (ir::is_complex(x.dtype())) return log_add_exp_complex(b, x, y);
  V big = b.max(x, y);
  V tail = b.unary("stablehlo.log_plus_one", b.exp(b.neg(b.abs(b.sub(x, y)))));
  V same_infinity = b.and_(b.compare(x, y, Cmp::kEq), b.compare(b.abs(x), kInf, Cmp::kEq));
  return b.select(same_infinity, x, b.add(big, tail));
}

V log_add_exp2(Builder& b, V x, V y) {
  double ln2 = std::log(2.0);
  V tail = b.binary("stablehlo.power", b.constant(2.0, x.type), b.neg(b.abs(b.sub(x, y))));
  tail = b.div(b.unary("stablehlo.log_plus_one", tail), ln2);
  V same_infinity = b.and_(b.compare(x, y, Cmp::kEq), b.compare(b.abs(x), kInf, Cmp::kEq));
  return b.select(same_infinity, x, b.add(b.max(x, y), tail));
}

// The neighbour in the result's own dtype: nothing may be widened.
void next_after(Lowering& l, std::vector<V>& out) {
  V x = l.number("self", l.out()), y = l.number("other", l.out());
  out.push_back(l.builder().binary("chlo.next_after", x, y));
}

void heaviside(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t), at_zero = l.number("values", t);
  V above = b.convert(b.compare(x, b.zeros(t), Cmp::kGt), t.dtype());
  put(l, out, b.select(b.compare(x, b.zeros(t), Cmp::kEq), at_zero, above));
}

void complex(Lowering& l, std::vector<V>& out) {
  Type part = l.out().with(ir::real_dtype(l.out().dtype()));
  V re = l.number("real", part), im = l.number("imag", part);
  out.push_back(make_complex(l.builder(), re, im));
}

void polar(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type part = l.out().with(ir::real_dtype(l.out().dtype()));
  V size = l.number("abs", part), angle = l.number("angle", part);
  V re = b.mul(size, b.unary("stablehlo.cosine", angle));
  out.push_back(make_complex(b, re, b.mul(size, b.unary("stablehlo.sine", angle))));
}

// --- types ---------------------------------------------------------------------------------------

template <Text first, Text second>
void type_complex(const Args& a, std::vector<Type>& out) {
  Type x = a.type(first.text), y = a.type(second.text);
  bool floats = x.dtype() == y.dtype() &&
                (x.dtype() == DType::kF32 || x.dtype() == DType::kF64 || x.dtype() == DType::kF16);
  if (!floats)
    fail(Code::kRuntime,
         "Expected both inputs to be Half, Float or Double tensors of the same dtype");
  if (x.dtype() == DType::kF16)
    fail(Code::kNotImplemented, "complex numbers of two halves (torch.complex32) have no XLA type",
         "convert the parts to torch.float32 first");
  out.push_back(ir::make_type(ir::complex_dtype(x.dtype()), broadcast_dims(x.dims(), y.dims())));
}

std::string heaviside_words(DType, DType) {
  return "heaviside is not yet implemented for tensors with different dtypes.";
}
std::string parts_words(DType want, DType have) {
  return cat("Expected object of scalar type ", eager_name(want).scalar, " but got scalar type ",
             eager_name(have).scalar, " for argument 'out'");
}

const Row kRows[] = {
    {.name = "aten::add.Tensor", .lower = add, .recomputed = true},
    {.name = "aten::sub.Tensor", .lower = sub, .recomputed = true},
    {"aten::rsub.Tensor", type_rsub, rsub, Layout::kIteratorReversed},
    {.name = "aten::rsub.Scalar",
     .type = type_rsub,
     .lower = rsub,
     .layout = Layout::kIteratorReversed,
     .recomputed = true},
    {.name = "aten::mul.Tensor", .lower = binary<multiply>, .recomputed = true},
    {"aten::div.Tensor", nullptr, binary<divide>},
    {.name = "aten::div.Tensor_mode",
     .lower = div_mode,
     .kernels = {{.name = "div_floor_cpu",
                  .takes = takes::kNumbers,
                  .choice = "rounding_mode",
                  .chosen = "floor"},
                 {.name = "div_trunc_cpu",
                  .takes = takes::kNumbers,
                  .choice = "rounding_mode",
                  .chosen = "trunc"}},
     .divides = true},
    {.name = "aten::floor_divide",
     .type = type_binary,
     .lower = whole_quotient<divide_floor>,
     .layout = Layout::kIterator,
     .kernels = {{"div_floor_cpu", takes::kNumbers}},
     .divides = true},
    {.name = "aten::remainder.Tensor",
     .lower = binary<remainder>,
     .kernels = {{"remainder_cpu", takes::kNumbers}},
     .divides = true},
    {.name = "aten::remainder.Scalar_Tensor",
     .type = type_binary,
     .lower = binary<remainder>,
     .layout = Layout::kIterator,
     .kernels = {{"remainder_cpu", takes::kReals}}},
    {.name = "aten::fmod.Tensor",
     .lower = binary<fmod>,
     .kernels = {{"fmod_cpu", takes::kNumbers}},
     .divides = true},

    {.name = "aten::pow.Tensor_Scalar",
     .lower = pow_baked,
     .baked = "exponent",
     .general = "exponent"},
    {.name = "aten::pow.Tensor_Tensor", .lower = pow, .kernels = {{"pow", takes::kNoBools}}},
    {.name = "aten::pow.Scalar",
     .lower = pow,
     .kernels = {{"pow", takes::kNoBools}},
     .iterates = Iterates::kYes},

    {.name = "aten::bitwise_and.Tensor",
     .lower = binary<call2<"stablehlo.and">>,
     .kernels = {{"bitwise_and_cpu", takes::kBits}},
     .recomputed = true},
    {.name = "aten::bitwise_or.Tensor",
     .lower = binary<call2<"stablehlo.or">>,
     .kernels = {{"bitwise_or_cpu", takes::kBits}},
     .recomputed = true},
    {.name = "aten::bitwise_xor.Tensor",
     .lower = binary<call2<"stablehlo.xor">>,
     .kernels = {{"bitwise_xor_cpu", takes::kBits}}},
    {.name = "aten::bitwise_left_shift.Tensor",
     .lower = binary<shift<"stablehlo.shift_left">>,
     .kernels = {{"lshift_cpu", takes::kIntegers}}},
    {.name = "aten::bitwise_right_shift.Tensor",
     .lower = binary<shift<"stablehlo.shift_right_arithmetic">>,
     .kernels = {{"rshift_cpu", takes::kIntegers}}},
    {.name = "aten::__lshift__.Tensor",
     .type = type_binary,
     .lower = binary<shift<"stablehlo.shift_left">>,
     .layout = Layout::kIterator,
     .kernels = {{"lshift_cpu", takes::kIntegers}}},
    {.name = "aten::__rshift__.Tensor",
     .type = type_binary,
     .lower = binary<shift<"stablehlo.shift_right_arithmetic">>,
     .layout = Layout::kIterator,
     .kernels = {{"rshift_cpu", takes::kIntegers}}},
    {.name = "aten::__lshift__.Scalar",
     .type = type_binary,
     .lower = binary<shift<"stablehlo.shift_left">>,
     .layout = Layout::kIterator,
     .kernels = {{"lshift_cpu", takes::kBits}}},
    {.name = "aten::__rshift__.Scalar",
     .type = type_binary,
     .lower = binary<shift<"stablehlo.shift_right_arithmetic">>,
     .layout = Layout::kIterator,
     .kernels = {{"rshift_cpu", takes::kBits}}},
    {"aten::logical_and", type_binary_pred, logical<"stablehlo.and">, Layout::kIterator},
    {"aten::logical_or", type_binary_pred, logical<"stablehlo.or">, Layout::kIterator},
    {"aten::logical_xor", type_binary_pred, logical<"stablehlo.xor">, Layout::kIterator},
    {.name = "aten::gcd", .lower = binary<gcd>, .kernels = {{"gcd_cpu", takes::kIntegers}}},
    {.name = "aten::lcm", .lower = binary<lcm>, .kernels = {{"lcm_cpu", takes::kIntegers}}},

    {.name = "aten::maximum", .lower = binary<maximum>, .recomputed = true},
    {.name = "aten::minimum", .lower = binary<minimum>, .recomputed = true},
    {"aten::fmax", nullptr, binary<fmax>},
    {"aten::fmin", nullptr, binary<fmin>},
    {.name = "aten::atan2",
     .lower = binary<call2<"stablehlo.atan2">>,
     .kernels = {{"atan2_cpu", takes::kReals}}},
    {.name = "aten::hypot", .lower = binary<hypot>, .kernels = {{"hypot_cpu", takes::kFloats}}},
    {.name = "aten::copysign.Tensor",
     .lower = binary<copysign>,
     .kernels = {{"copysign_cpu", takes::kReals}}},
    {.name = "aten::nextafter",
     .lower = next_after,
     .kernels = {{"nextafter_cpu", takes::kFloats}}},
    {.name = "aten::heaviside", .lower = heaviside, .out = {.check = out_wants<heaviside_words>}},
    {.name = "aten::xlogy.Tensor",
     .lower = binary<x_times_log<call<"stablehlo.log">>>,
     .kernels = {{"xlogy_cpu", takes::kReals}}},
    {.name = "aten::special_xlog1py",
     .lower = binary<x_times_log<call<"stablehlo.log_plus_one">>>,
     .kernels = {{"xlog1py_cpu", takes::kReals}}},
    {.name = "aten::logaddexp",
     .lower = binary<log_add_exp>,
     .kernels = {{"logaddexp_cpu", takes::kInexact}}},
    {.name = "aten::logaddexp2",
     .lower = binary<log_add_exp2>,
     .kernels = {{"logaddexp2_cpu", takes::kFloats}}},
    {.name = "aten::special_zeta",
     .lower = binary<hurwitz_zeta>,
     .kernels = {{"zeta_cpu", takes::kBools | takes::kIntegers | takes::kWide}}},
    {.name = "aten::complex",
     .type = type_complex<"real", "imag">,
     .lower = complex,
     .layout = Layout::kIterator,
     .out = {.check = out_wants<parts_words>}},
    {.name = "aten::polar",
     .type = type_complex<"abs", "angle">,
     .lower = polar,
     .layout = Layout::kIterator,
     .out = {.check = out_wants<parts_words>}},
};

}  // namespace

Family elementwise_binary() { return kRows; }

}  // namespace tp::ops
