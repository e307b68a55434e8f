// Reductions to values. Narrow floats are summed in f32 and rounded once. Reductions that also give
// positions: reduction_index.cpp.
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/reduce/order.h"

namespace tp::ops {

namespace {

using hlo::Cmp;
using Red = Builder::Red;
constexpr double kInf = std::numeric_limits<double>::infinity();

IntList reduced(const Args& a, int rank) { return a.dims("dim", rank); }
V shape_as(Builder& b, V v, Type t) { return b.reshape(v, t.dims()); }

int64_t count_of(Ints dims, Ints which) {
  int64_t n = 1;
  for (int64_t d : which) n *= dims[static_cast<size_t>(d)];
  return n;
}

V self_as(Lowering& l, DType t) { return l.builder().convert(l.in("self"), t); }

// --- sums and products ---------------------------------------------------------------------------

V sum_over(Lowering& l, V x) {
  V s = l.builder().reduce(x, reduced(l, x.rank()), Red::kSum);
  return shape_as(l.builder(), s, l.out());
}

void sum(Lowering& l, std::vector<V>& out) {
  put(l, out, sum_over(l, self_as(l, compute_type(l).dtype())));
}

void nansum(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = self_as(l, compute_type(l).dtype());
  if (ir::is_float(x.dtype())) x = b.select(b.is_nan(x), b.zeros(x.type), x);
  put(l, out, sum_over(l, x));
}

void mean(Lowering& l, std::vector<V>& out) {
  V x = self_as(l, compute_type(l).dtype());
  auto n = static_cast<double>(count_of(x.dims(), reduced(l, x.rank())));
  V s = sum_over(l, x);
  put(l, out, l.builder().div(s, n));
}

void prod(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = self_as(l, compute_type(l).dtype());
  IntList dims = reduced(l, x.rank());
  put(l, out, shape_as(b, b.reduce(x, dims, Red::kProd), l.out()));
}

// --- predicates ----------------------------------------------------------------------------------

// An empty dim list reduces nothing here, unlike everywhere else.
template <Red how>
void truth(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = self_as(l, DType::kPred);
  bool nothing = l.has("dim") && l.ints("dim").empty();
  put(l, out, nothing ? x : shape_as(b, b.reduce(x, reduced(l, x.rank()), how), l.out()));
}

void count_nonzero(Lowering& l, std::vector<V>& out) {
  V x = l.builder().convert(self_as(l, DType::kPred), DType::kS64);
  put(l, out, sum_over(l, x));
}

// --- extremes ------------------------------------------------------------------------------------

template <Red how>
void extreme(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  out.push_back(shape_as(b, b.reduce(x, reduced(l, x.rank()), how), l.out()));
}

void aminmax(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  IntList dims = reduced(l, x.rank());
  out.push_back(shape_as(b, b.reduce(x, dims, Red::kMin), l.out(0)));
  out.push_back(shape_as(b, b.reduce(x, dims, Red::kMax), l.out(1)));
}

// --- moments -------------------------------------------------------------------------------------

struct Moments {
  V variance, mean;  // with the reduced dims dropped
};

// Two passes: the mean first, then the squares around it.
Moments moments(Lowering& l) {
  Builder& b = l.builder();
  DType own = l.in("self").dtype();
  V x = self_as(l, ir::compute_dtype(own));
  IntList dims = reduced(l, x.rank());
  auto n = static_cast<double>(count_of(x.dims(), dims));
  V mean = b.div(b.reduce(x, dims, Red::kSum), n);
  V wide = b.broadcast_to(b.reshape(mean, reduced_dims(x.dims(), dims, true)), x.dims());
  V off = b.sub(x, wide);
  V square = b.mul(real_part(b, off), real_part(b, off));
  if (ir::is_complex(x.dtype()))
    square = b.add(square, b.mul(imag_part(b, off), imag_part(b, off)));
  V total = b.reduce(square, dims, Red::kSum);
  V taken = number_or(l, "correction", ir::scalar_type(DType::kF64), 1);
  V free = b.max(b.sub(b.constant(n, taken.type), taken), 0.0);
  free = b.broadcast_to(b.convert(free, total.dtype()), total.dims());
  return {b.div(total, free), mean};
}

enum class Spread { kVar, kStd };
template <Spread what, bool with_mean>
void spread(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Moments m = moments(l);
  V v = what == Spread::kStd ? b.sqrt(m.variance) : m.variance;
  put(l, out, shape_as(b, v, l.out(0)));
  if (with_mean) put(l, out, shape_as(b, m.mean, l.out(1)));
}

// --- norms ---------------------------------------------------------------------------------------

// |x| of the result's compute dtype; an explicit dtype converts before anything is computed.
V magnitude(Lowering& l) {
  Builder& b = l.builder();
  V x = l.in("self");
  DType d = compute_type(l).dtype();
  if (ir::is_complex(x.dtype())) {
    return b.abs(b.convert(x, ir::complex_dtype(d)));
  }
  return b.abs(b.convert(x, d));
}

template <Text order>
void norm(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = magnitude(l);
  IntList dims = reduced(l, x.rank());
  // The largest of no numbers is 0 here, as a norm's.
  if (x.type.numel() == 0) {
    V p = number_or(l, order.text, l.out(), 2);
    V below = b.compare(p, 0.0, Cmp::kLt);
    return out.push_back(b.select(below, b.constant(kInf, l.out()), b.zeros(l.out())));
  }
  put(l, out, shape_as(b, norm_of(l, order.text, x, dims), l.out()));
}

void logsumexp(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = self_as(l, compute_type(l).dtype());
  IntList dims = reduced(l, x.rank());
  if (x.type.numel() == 0 || ir::is_complex(x.dtype()))
    return put(l, out, shape_as(b, b.log(b.reduce(b.exp(x), dims, Red::kSum)), l.out()));
  V top = b.reduce(x, dims, Red::kMax);
  top = b.select(b.compare(b.abs(top), kInf, Cmp::kEq), b.zeros(top.type), top);
  V wide = b.broadcast_to(b.reshape(top, reduced_dims(x.dims(), dims, true)), x.dims());
  V s = b.reduce(b.exp(b.sub(x, wide)), dims, Red::kSum);
  put(l, out, shape_as(b, b.add(b.log(s), top), l.out()));
}

void trace(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = self_as(l, l.out().dtype());
  Type index = x.type.with(DType::kS64);
  V diagonal = b.compare(b.iota(index, 0), b.iota(index, 1), Cmp::kEq);
  out.push_back(b.reduce(b.select(diagonal, x, b.zeros(x.type)), IntList{0, 1}, Red::kSum));
}

// --- types ---------------------------------------------------------------------------------------

DType sum_dtype(const Args& a) {
  DType t = a.type("self").dtype();
  return a.dtype_or("dtype", ir::is_int(t) || t == DType::kPred ? DType::kS64 : t);
}

Type reduced_type(const Args& a, DType t) {
  Type x = a.type("self");
  IntList dims = reduced(a, x.rank());
  return ir::make_type(t, reduced_dims(x.dims(), dims, a.b_or("keepdim", false)));
}

void type_sum(const Args& a, std::vector<Type>& out) {
  out.push_back(reduced_type(a, sum_dtype(a)));
}

void type_count(const Args& a, std::vector<Type>& out) {
  out.push_back(reduced_type(a, DType::kS64));
}

void type_mean(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  DType t = a.dtype_or("dtype", x.dtype());
  if (!ir::is_float(t) && !ir::is_complex(t))
    fail(Code::kRuntime,
         cat("mean(): could not infer output dtype. Input dtype must be either a floating "
             "point or complex dtype. Got: ",
             eager_name(t).scalar));
  out.push_back(ir::scalar_type(t));
}

template <Text name>
void type_whole_extreme(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  if (x.numel() == 0)
    fail(Code::kRuntime, cat(name.text,
                             "(): Expected reduction dim to be specified for input.numel() == 0. "
                             "Specify the reduction dim with the 'dim' argument."));
  out.push_back(ir::scalar_type(x.dtype()));
}

template <Text name, int count>
void type_spread(const Args& a, std::vector<Type>& out) {
  DType t = a.type("self").dtype();
  if (!ir::is_float(t) && !ir::is_complex(t))
    fail(Code::kRuntime, cat(name.text, " only support floating point and complex dtypes"));
  out.push_back(reduced_type(a, ir::real_dtype(t)));
  if (count == 2) out.push_back(reduced_type(a, t));
}

void type_logsumexp(const Args& a, std::vector<Type>& out) {
  out.push_back(reduced_type(a, a.as_float(a.type("self").dtype())));
}

void type_trace(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  if (x.rank() != 2 && x.dtype() != DType::kPred)  // eager looks at the dtype first
    fail(Code::kRuntime, "trace: expected a matrix, but got tensor with dim " + cat(x.rank()));
  out.push_back(ir::scalar_type(sum_dtype(a)));
}

void check_nansum(const Args& a) {
  if (ir::is_complex(a.type("self").dtype()))
    fail(Code::kRuntime, "nansum on CPU does not support complex inputs");
  // An integer tensor is summed plainly.
  DType t = a.dtype_or("dtype", DType::kF32);
  if (ir::is_float(a.type("self").dtype()) && !ir::is_float(t))
    fail(Code::kNotImplemented, not_implemented_for("nansum_cpu", t));
}

// torch.norm asks this of PyTorch's own devices through linalg.vector_norm.
void check_norm(const Args& a) {
  Type self = a.type("self");
  double p = a.f_or("p", 2);
  if (self.numel() || !(p < 0 || p == std::numeric_limits<double>::infinity())) return;
  std::string order = a.is_real("p") ? cat(p) : cat(a.i("p"));
  // torch.norm without dims asks for all of them.
  if (a.dims("dim", self.rank()).size() == static_cast<size_t>(self.rank()))
    fail(Code::kRuntime, cat("linalg.vector_norm cannot compute the ", order,
                             " norm on an empty tensor because the operation does not have an "
                             "identity"));
  for (int64_t d : a.dims("dim", self.rank()))
    if (self.rank() && self.dim(static_cast<size_t>(d)) == 0)
      fail(Code::kRuntime,
           cat("linalg.vector_norm cannot compute the ", order, " norm on the dimension ", d,
               "because this dimension is empty and the operation does not have "
               "an identity"));
}

std::string input_and_out(DType want, DType have) {
  return cat("Expected the dtype for input and out to match, but got ", eager_name(want).scalar,
             " for input's dtype and ", eager_name(have).scalar, " for out's dtype.");
}
template <Text name>
void truth_out(DType, DType out) {
  if (out != DType::kU8)
    fail(Code::kRuntime,
         cat(name.text, " only supports bool tensor for result, got: ", eager_name(out).scalar));
}

const Row kRows[] = {
    {.name = "aten::sum",
     .type = type_sum,
     .lower = sum,
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kComputedIn}},
    {.name = "aten::sum.dim_IntList",
     .lower = sum,
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kComputedIn}},
    {.name = "aten::nansum",
     .type = type_sum,
     .lower = nansum,
     .check = check_nansum,
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kComputedIn}},
    {.name = "aten::mean", .type = type_mean, .lower = mean, .out = {.dtype = OutDtype::kCast}},
    {.name = "aten::mean.dim", .lower = mean, .out = {.dtype = OutDtype::kCast}},
    {.name = "aten::prod",
     .type = type_sum,
     .lower = prod,
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kComputedIn}},
    {.name = "aten::prod.dim_int",
     .lower = prod,
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kComputedIn}},

    {.name = "aten::all",
     .lower = truth<Red::kAnd>,
     .out = {.check = truth_out<"all">, .dtype = OutDtype::kCast}},
    {.name = "aten::all.dim",
     .lower = truth<Red::kAnd>,
     .out = {.check = truth_out<"all">, .dtype = OutDtype::kCast}},
    {.name = "aten::all.dims",
     .lower = truth<Red::kAnd>,
     .out = {.check = truth_out<"all">, .dtype = OutDtype::kCast}},
    {.name = "aten::any",
     .lower = truth<Red::kOr>,
     .out = {.check = truth_out<"any">, .dtype = OutDtype::kCast}},
    {.name = "aten::any.dim",
     .lower = truth<Red::kOr>,
     .out = {.check = truth_out<"any">, .dtype = OutDtype::kCast}},
    {.name = "aten::any.dims",
     .lower = truth<Red::kOr>,
     .out = {.check = truth_out<"any">, .dtype = OutDtype::kCast}},
    {"aten::count_nonzero.dim_IntList", type_count, count_nonzero},
    {"aten::count_nonzero", type_count, count_nonzero},

    {.name = "aten::max",
     .type = type_whole_extreme<"max">,
     .lower = extreme<Red::kMax>,
     .kernels = {{"max_all", takes::kReals}}},
    {.name = "aten::min",
     .type = type_whole_extreme<"min">,
     .lower = extreme<Red::kMin>,
     .kernels = {{"min_all", takes::kReals}}},
    {.name = "aten::amax",
     .lower = extreme<Red::kMax>,
     .kernels = {{"max_values_cpu", takes::kReals | takes::kEmpty}},
     .out = {.check = out_wants<input_and_out>}},
    {.name = "aten::amin",
     .lower = extreme<Red::kMin>,
     .kernels = {{"min_values_cpu", takes::kReals}},
     .out = {.check = out_wants<input_and_out>}},
    {.name = "aten::aminmax", .lower = aminmax, .kernels = {{"aminmax_cpu", takes::kReals}}},

    {.name = "aten::var.correction",
     .type = type_spread<"std and var", 1>,
     .lower = spread<Spread::kVar, false>,
     .baked = "correction",
     .general = "correction"},
    {.name = "aten::std.correction",
     .type = type_spread<"std and var", 1>,
     .lower = spread<Spread::kStd, false>,
     .baked = "correction",
     .general = "correction"},
    {.name = "aten::var_mean.correction",
     .type = type_spread<"var_mean", 2>,
     .lower = spread<Spread::kVar, true>,
     .baked = "correction",
     .general = "correction"},
    {.name = "aten::std_mean.correction",
     .type = type_spread<"std_mean", 2>,
     .lower = spread<Spread::kStd, true>,
     .baked = "correction",
     .general = "correction"},

    {.name = "aten::linalg_vector_norm",
     .lower = norm<"ord">,
     .baked = "ord",
     .general = "ord",
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kCast}},
    {.name = "aten::norm.ScalarOpt_dim",
     .lower = norm<"p">,
     .baked = "p",
     .check = check_norm,
     .general = "p",
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kCast}},
    {.name = "aten::norm.ScalarOpt_dim_dtype",
     .lower = norm<"p">,
     .baked = "p",
     .check = check_norm,
     .general = "p",
     .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kCast}},
    {"aten::logsumexp", type_logsumexp, logsumexp},
    {.name = "aten::trace",
     .type = type_trace,
     .lower = trace,
     .kernels = {{"trace", takes::kNoBools}}},
};

}  // namespace

Family reduction() { return kRows; }

}  // namespace tp::ops
