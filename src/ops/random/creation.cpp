// Tensors made from numbers: ranges, identity, index lists. Bounds of a range shape
// it, so they are attributes; those of linspace are run-time numbers. Any thread.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/sizes.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

// --- arange, range

struct Range {
  double start, end, step;
  int64_t istart, iend, istep;  // as integers: exact where they came as such
  bool real;                    // any of them a float
};
Range range_of(const Args& a) {
  auto integer = [&](const char* name, int64_t fallback) {
    if (!a.has(name)) return fallback;
    return a.is_real(name) && !(std::abs(a.f(name)) < 9.2e18) ? fallback : a.i(name);
  };
  Range r{a.f_or("start", 0), a.f("end"), a.f_or("step", 1), 0, 0, 0, false};
  r.istart = integer("start", 0), r.iend = integer("end", 0), r.istep = integer("step", 1);
  r.real = a.is_real("start") || a.is_real("end") || a.is_real("step");
  return r;
}

void check_range(const Range& r) {
  if (r.step == 0) fail(Code::kRuntime, "step must be nonzero");
  if (!std::isfinite(r.start) || !std::isfinite(r.end))
    fail(Code::kRuntime, cat("unsupported range: ", r.start, " -> ", r.end));
  if ((r.step > 0 && r.end < r.start) || (r.step < 0 && r.end > r.start))
    fail(Code::kRuntime, "upper bound and lower bound inconsistent with step sign");
}

int64_t checked_length(double n) {
  if (!(n >= 0 && n <= 9.2e18)) fail(Code::kRuntime, "invalid size, possible overflow?");
  return static_cast<int64_t>(n);
}

// Kernels that eager has not got.
void check_kernel(std::string_view kernel, DType t, bool complex) {
  if (t == DType::kPred || (ir::is_complex(t) && !complex))
    fail(Code::kNotImplemented, not_implemented_for(kernel, t));
}

void arange_type(const Args& a, std::vector<Type>& out) {
  Range r = range_of(a);
  DType t = a.dtype_or("dtype", r.real ? a.default_float() : DType::kS64);
  check_range(r);
  int64_t n = 0;
  if (t == DType::kS64) {
    if (r.istep == 0) fail(Code::kValue, "step must be nonzero");
    int64_t sign = r.istep > 0 ? 1 : -1;
    n = checked_length(static_cast<double>((r.iend - r.istart + r.istep - sign) / r.istep));
  } else {
    n = checked_length(std::ceil((r.end - r.start) / r.step));
  }
  check_kernel("arange_cpu", t, false);
  out.push_back(ir::make_type(t, IntList{n}));
}
void range_type(const Args& a, std::vector<Type>& out) {
  Range r = range_of(a);
  check_range(r);
  int64_t n = checked_length(std::floor((r.end - r.start) / r.step) + 1);
  DType t = a.dtype_or("dtype", a.default_float());
  check_kernel("range_cpu", t, false);
  out.push_back(ir::make_type(t, IntList{n}));
}
// Floats count in double, as eager's accumulation type does, and round once.
void arange_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Range r = range_of(l);
  DType t = l.out().dtype();
  bool real = ir::is_float(t);
  Type work = l.out().with(real ? DType::kF64 : DType::kS64);
  V v = b.iota(work, 0);
  auto number = [&](const char* name, double x, int64_t i) {
    if (V given = l.input(name)) return b.broadcast_to(b.convert(given, work.dtype()), work.dims());
    return real ? b.constant(x, work) : b.constant_int(i, work);
  };
  if (l.input("step") || (real ? r.step != 1 : r.istep != 1))
    v = b.mul(v, number("step", r.step, r.istep));
  if (l.input("start") || (real ? r.start != 0 : r.istart != 0))
    v = b.add(v, number("start", r.start, r.istart));
  put(l, out, b.convert(v, ir::compute_dtype(t)));
}

// --- linspace, logspace

void linspace_type(const Args& a, std::vector<Type>& out) {
  int64_t steps = a.i("steps");
  if (steps < 0) fail(Code::kRuntime, "number of steps must be non-negative");
  bool is_complex = false;
  for (const char* name : {"start", "end"}) {
    auto t = a.opt_type(name);
    is_complex |= t && ir::is_complex(t->dtype());
    if (t && t->rank() != 0)
      fail(Code::kRuntime,
           cat(name, " must be a 0-dimensional tensor for linspace, but got a tensor with ",
               t->rank(), " dimensions"));
  }
  DType real = a.default_float();
  DType t = a.dtype_or("dtype", is_complex ? ir::complex_dtype(real) : real);
  if (steps > 1) check_kernel("linspace_cpu", t, true);
  out.push_back(ir::make_type(t, IntList{steps}));
}

// The points, in the type they are computed in: counted from the nearer end.
V points(Lowering& l) {
  Builder& b = l.builder();
  DType t = l.out().dtype();
  bool integral = !ir::is_float(t) && !ir::is_complex(t);
  Type work = l.out().with(integral ? DType::kF64 : ir::compute_dtype(t));
  auto bound = [&](const char* name) {  // integers drop the fraction first
    V v = l.number(name, integral ? work.with(DType::kS64) : work);
    return b.convert(v, work.dtype());
  };
  V start = bound("start"), end = bound("end");
  int64_t n = work.dim(0);
  if (n <= 1) return start;
  V step = b.div(b.sub(end, start), static_cast<double>(n - 1));
  Type real = work.with(ir::real_dtype(work.dtype()));
  V place = b.iota(real, 0);
  V up = b.add(start, b.mul(step, b.convert(place, work.dtype())));
  V left = b.sub(b.constant(static_cast<double>(n - 1), real), place);
  V down = b.sub(end, b.mul(step, b.convert(left, work.dtype())));
  return b.select(b.compare(place, static_cast<double>(n / 2), Cmp::kLt), up, down);
}
void linspace_lower(Lowering& l, std::vector<V>& out) { put(l, out, points(l)); }
void logspace_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = points(l);
  V base = number_or(l, "base", x.type, 10);
  put(l, out, b.binary("stablehlo.power", base, x));
}

// --- eye, index lists

void eye_type(const Args& a, std::vector<Type>& out) {
  int64_t n = a.i("n"), m = a.i_or("m", n);
  if (n < 0) fail(Code::kRuntime, cat("n must be greater or equal to 0, got ", n));
  if (m < 0) fail(Code::kRuntime, cat("m must be greater or equal to 0, got ", m));
  out.push_back(ir::make_type(a.dtype_or("dtype", a.default_float()), IntList{n, m}));
}
void eye_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = l.out().with(DType::kS32);
  put(l, out, b.compare(b.iota(t, 0), b.iota(t, 1), Cmp::kEq));
}

// Row i of a lower triangle has clamp(offset + 1 + i, 0, columns) elements: rows of none, rows that
// grow by one (`grow` of them, from `first`), full rows.
struct Triangle {
  int64_t empty, first, grow, full, columns;
  int64_t growing() const {
    int64_t even = grow % 2 ? (grow - 1) / 2 * grow : grow / 2 * (grow - 1);
    return checked_add(checked_mul(grow, first), even);
  }
  int64_t count() const { return checked_add(growing(), checked_mul(full, columns)); }
};
Triangle lower_triangle(int64_t rows, int64_t columns, int64_t offset) {
  Triangle t{std::clamp<int64_t>(-offset, 0, rows), 0, 0, 0, columns};
  if (columns == 0) return {rows, 0, 0, 0, 0};
  t.first = std::clamp<int64_t>(offset + 1 + t.empty, 0, columns);
  t.grow = std::clamp<int64_t>(columns - t.first, 0, rows - t.empty);
  t.full = rows - t.empty - t.grow;
  return t;
}

void check_indices(const Args& a) {
  if (a.i("row") < 0) fail(Code::kRuntime, cat("row must be non-negative, got", a.i("row")));
  if (a.i("col") < 0) fail(Code::kRuntime, cat("col must be non-negative, got", a.i("col")));
}
DType indices_dtype(const Args& a, const char* op) {
  DType t = a.dtype_or("dtype", DType::kS64);
  if (!ir::is_int(t)) fail(Code::kNotImplemented, not_implemented_for(op, t));
  return t;
}
void tril_indices_type(const Args& a, std::vector<Type>& out) {
  check_indices(a);
  int64_t n = lower_triangle(a.i("row"), a.i("col"), a.i_or("offset", 0)).count();
  out.push_back(ir::make_type(indices_dtype(a, "tril_indices"), IntList{2, n}));
}
void triu_indices_type(const Args& a, std::vector<Type>& out) {
  check_indices(a);
  int64_t rows = a.i("row"), columns = a.i("col");
  int64_t below = lower_triangle(rows, columns, a.i_or("offset", 0) - 1).count();
  out.push_back(ir::make_type(indices_dtype(a, "triu_indices"),
                              IntList{2, checked_mul(rows, columns) - below}));
}

struct Places {
  V row, column;
};
// The k-th element of a triangle, for k = 0, 1, ..: a quadratic in the growing part, put right by
// one where the root was rounded.
Places triangle_places(Builder& b, const Triangle& t, V k) {
  Type s = k.type, f = s.with(DType::kF64);
  auto num = [&](int64_t v) { return b.constant_int(v, s); };
  auto start_of = [&](V r) {  // elements before growing row r
    return b.add(b.mul(r, num(t.first)), b.div(b.mul(r, b.sub(r, num(1))), num(2)));
  };
  double half = static_cast<double>(t.first) - 0.5;
  V root = b.sqrt(b.add(b.mul(b.convert(k, DType::kF64), 2.0), b.constant(half * half, f)));
  V row = b.convert(b.floor(b.sub(root, half)), DType::kS64);
  row = b.sub(row, b.convert(b.compare(start_of(row), k, Cmp::kGt), DType::kS64));
  row = b.add(row, b.convert(b.compare(start_of(b.add(row, num(1))), k, Cmp::kLe), DType::kS64));
  V rest = b.sub(k, num(t.growing()));
  V columns = num(std::max<int64_t>(t.columns, 1));
  V below = b.compare(rest, num(0), Cmp::kLt);
  V full_row = b.add(b.div(rest, columns), num(t.grow));
  V column =
      b.select(below, b.sub(k, start_of(row)), b.binary("stablehlo.remainder", rest, columns));
  return {b.add(b.select(below, row, full_row), num(t.empty)), column};
}
void push_indices(Lowering& l, std::vector<V>& out, Places p) {
  Builder& b = l.builder();
  IntList one{1, l.out().dim(1)};
  V parts[] = {b.reshape(p.row, one), b.reshape(p.column, one)};
  put(l, out, b.concat(parts, 0));
}
void tril_indices_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  int64_t n = l.out().dim(1);
  if (n == 0) return out.push_back(b.zeros(l.out()));
  Triangle t = lower_triangle(l.i("row"), l.i("col"), l.i_or("offset", 0));
  push_indices(l, out, triangle_places(b, t, b.iota(ir::make_type(DType::kS64, IntList{n}), 0)));
}
// An upper triangle, read backwards, is a lower one.
void triu_indices_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  int64_t n = l.out().dim(1), rows = l.i("row"), columns = l.i("col");
  if (n == 0) return out.push_back(b.zeros(l.out()));
  Triangle t = lower_triangle(rows, columns, columns - rows - l.i_or("offset", 0));
  Type s = ir::make_type(DType::kS64, IntList{n});
  V k = b.sub(b.constant_int(n - 1, s), b.iota(s, 0));
  Places p = triangle_places(b, t, k);
  push_indices(
      l, out,
      {b.sub(b.constant_int(rows - 1, s), p.row), b.sub(b.constant_int(columns - 1, s), p.column)});
}

// --- from tensors

void fill_tensor_type(const Args& a, std::vector<Type>& out) {
  Type value = a.type("value");
  if (value.rank() != 0)
    fail(Code::kRuntime, cat("fill_ only supports 0-dimension value tensor but got tensor with ",
                             value.rank(), " dimensions."));
  out.push_back(a.type("self"));
}
void fill_tensor_lower(Lowering& l, std::vector<V>& out) {
  out.push_back(l.number("value", l.out()));
}

constexpr Row range_row(const char* name, TypeRule type) {
  return {.name = name,
          .type = type,
          .lower = arange_lower,
          .baked = "start end step",
          .general = "start end step",
          .out = {.keeps_shape = true}};
}
constexpr Row space_row(const char* name, LowerRule lower) {
  return {.name = name,
          .type = linspace_type,
          .lower = lower,
          .numbers = "base",
          .out = {.keeps_shape = true}};
}

}  // namespace

Family creation() {
  static const Row kRows[] = {
      range_row("aten::arange", arange_type),
      range_row("aten::arange.start", arange_type),
      range_row("aten::arange.start_step", arange_type),
      range_row("aten::range", range_type),
      range_row("aten::range.step", range_type),
      space_row("aten::linspace", linspace_lower),
      space_row("aten::linspace.Tensor_Tensor", linspace_lower),
      space_row("aten::linspace.Tensor_Scalar", linspace_lower),
      space_row("aten::linspace.Scalar_Tensor", linspace_lower),
      space_row("aten::logspace", logspace_lower),
      space_row("aten::logspace.Tensor_Tensor", logspace_lower),
      space_row("aten::logspace.Tensor_Scalar", logspace_lower),
      space_row("aten::logspace.Scalar_Tensor", logspace_lower),
      {.name = "aten::eye", .type = eye_type, .lower = eye_lower},
      {.name = "aten::eye.m", .type = eye_type, .lower = eye_lower},
      {.name = "aten::tril_indices", .type = tril_indices_type, .lower = tril_indices_lower},
      {.name = "aten::triu_indices", .type = triu_indices_type, .lower = triu_indices_lower},
      {.name = "aten::fill.Tensor",
       .type = fill_tensor_type,
       .lower = fill_tensor_lower,
       .layout = Layout::kIterator},
  };
  return kRows;
}

}  // namespace tp::ops
