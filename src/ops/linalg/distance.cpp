// Cross products and pairwise distances, with their gradients. A distance's formula is eager's of
// the same p; all pairs are formed at once and summed in place by the compiler.
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"
#include "ops/reduce/order.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
constexpr double kInf = std::numeric_limits<double>::infinity();

// --- cross ---------------------------------------------------------------------------------------

void check_cross(const Args& a) {
  DType x = a.type("self").dtype(), y = a.type("other").dtype();
  if (x != y) fail(Code::kRuntime, expected_scalar_type(x, y));
}

// Elements 1, 2, 0 (by one) or 2, 0, 1 (by two) of a dim of three.
V rolled(Builder& b, V x, int64_t dim, int64_t by) {
  std::array<V, 2> parts{b.slice_dim(x, dim, by, 3), b.slice_dim(x, dim, 0, by)};
  return b.concat(parts, dim);
}

void cross(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t), y = l.number("other", t);
  if (t.numel() == 0) return put(l, out, x);
  int64_t dim = l.has("dim") ? l.dim("dim", t.rank()) : t.rank() - 1;
  // Half types: each product is rounded, as eager's are.
  auto product = [&](int64_t i, int64_t j) {
    V p = b.mul(rolled(b, x, dim, i), rolled(b, y, dim, j));
    return b.convert(b.convert(p, l.out().dtype()), t.dtype());
  };
  put(l, out, b.sub(product(1, 2), product(2, 1)));
}

// --- formulas of a distance ----------------------------------------------------------------------

// The order of a distance: a constant, or an input of the program.
struct Order {
  explicit Order(Lowering& l)
      : p(l.f("p")), is_input(l.input("p")), value(l.number("p", ir::scalar_type(DType::kF64))) {}
  double p;
  bool is_input;
  V value;
};
V power(Builder& b, V x, V p) {
  V wide = b.broadcast_to(b.convert(p, x.dtype()), x.dims());
  return b.binary("stablehlo.power", x, wide);
}

// The p-norm of the differences over their last dim.
V norm_of_last(Lowering& l, V diff) {
  return norm_of(l, "p", l.builder().abs(diff), IntList{diff.rank() - 1});
}

V sign_of(Builder& b, V x) {
  V above = b.convert(b.compare(x, 0, Cmp::kGt), x.dtype());
  return b.sub(above, b.convert(b.compare(x, 0, Cmp::kLt), x.dtype()));
}

// d(distance)/d(difference) times grad; all of the differences' dims.
class Slope {
 public:
  Slope(Builder& b, V diff, V grad, V dist, const Order& order)
      : b(b), diff(diff), grad(grad), dist(dist), order(order) {}

  V value() const {
    double p = order.p;
    if (order.is_input) return of_any();
    if (p == 0) return zero();
    if (p == 1) return b.mul(grad, sign_of(b, diff));
    if (p == 2) return where_apart(b.div(b.mul(grad, diff), dist));
    if (p == kInf) return of_largest();
    if (p < 1) return b.select(is_zero(b, diff), zero(), below_two());
    return p < 2 ? below_two() : above_two();
  }

 private:
  V zero() const { return b.zeros(diff.type); }
  V size() const { return b.abs(diff); }
  V where_apart(V v) const { return b.select(is_zero(b, dist), zero(), v); }
  V scale() const { return b.div(grad, power(b, dist, b.sub(order.value, 1.0))); }

  V of_largest() const {
    V gap = b.unary("stablehlo.ceil", b.abs(b.sub(size(), dist)));
    V reached = b.sub(b.ones(gap.type), b.min(gap, 1.0));
    return b.mul(b.mul(grad, sign_of(b, diff)), reached);
  }
  V below_two() const {
    V grown = power(b, size(), b.sub(order.value, 1.0));
    return where_apart(b.mul(b.mul(sign_of(b, diff), grown), scale()));
  }
  V above_two() const {
    V grown = power(b, size(), b.sub(order.value, 2.0));
    return where_apart(b.mul(b.mul(diff, grown), scale()));
  }
  // The formulas for 1 and 2 are those of the orders next to them.
  V of_any() const {
    auto is = [&](double p, Cmp how) {
      return b.broadcast_to(b.compare(order.value, p, how), diff.dims());
    };
    V low = b.select(b.and_(is(1, Cmp::kLt), is_zero(b, diff)), zero(), below_two());
    V v = b.select(is(2, Cmp::kLt), low, above_two());
    v = b.select(is(kInf, Cmp::kEq), of_largest(), v);
    return b.select(is(0, Cmp::kEq), zero(), v);
  }

  Builder& b;
  V diff, grad, dist;
  const Order& order;
};

// x with a dim of one before its last (rows) or before its last two (columns), spread to dims.
V spread_rows(Builder& b, V x, Ints dims) {
  IntList shape(x.dims().begin(), x.dims().end());
  shape.insert(shape.end() - 1, 1);
  return b.broadcast_to(b.reshape(x, shape), dims);
}
V spread_columns(Builder& b, V x, Ints dims) {
  IntList shape(x.dims().begin(), x.dims().end());
  shape.insert(shape.end() - 2, 1);
  return b.broadcast_to(b.reshape(x, shape), dims);
}
V spread_pairs(Builder& b, V x, Ints dims) {
  IntList shape(x.dims().begin(), x.dims().end());
  shape.push_back(1);
  return b.broadcast_to(b.reshape(x, shape), dims);
}

// --- cdist ---------------------------------------------------------------------------------------

void check_distance_dtypes(const Args& a) {
  DType x = a.type("x1").dtype(), y = a.type("x2").dtype();
  for (auto [name, t] : {std::pair("X1", x), std::pair("X2", y)})
    if (!ir::is_float(t))
      fail(Code::kRuntime, cat("cdist only supports floating-point dtypes, ", name,
                               " got: ", eager_name(t).scalar));
  if (a.type("x1").numel() == 0 || a.type("x2").numel() == 0) return;
  if (ir::is_small_float(x)) fail(Code::kNotImplemented, not_implemented_for("cdist", x));
  if (x != y) fail(Code::kRuntime, expected_scalar_type(x, y));
}

IntList batch_dims(Type x, Type y) {
  return broadcast_dims(x.dims().first(x.dims().size() - 2), y.dims().first(y.dims().size() - 2));
}

void type_cdist(const Args& a, std::vector<Type>& out) {
  Type x = a.type("x1"), y = a.type("x2");
  auto rank = [&](std::string_view name, Type t) {
    if (t.rank() < 2)
      fail(Code::kRuntime,
           cat("cdist only supports at least 2D tensors, ", name, " got: ", t.rank(), "D"));
  };
  rank("X1", x), rank("X2", y);
  auto columns = [](Type t) { return t.dim(static_cast<size_t>(t.rank() - 1)); };
  if (columns(x) != columns(y))
    fail(Code::kRuntime, cat("X1 and X2 must have the same number of columns. X1: ", columns(x),
                             " X2: ", columns(y)));
  if (!(a.f("p") >= 0)) fail(Code::kRuntime, "cdist only supports non-negative p values");
  check_distance_dtypes(a);
  IntList dims = batch_dims(x, y);
  dims.push_back(x.dim(static_cast<size_t>(x.rank() - 2)));
  dims.push_back(y.dim(static_cast<size_t>(y.rank() - 2)));
  out.push_back(x.with(dims));
}

void cdist(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("x1"), y = l.in("x2");
  int64_t m = x.dims().back();
  if (l.out().numel() == 0 || m == 0) return out.push_back(b.zeros(l.out()));
  IntList dims(l.out().dims().begin(), l.out().dims().end());
  dims.push_back(m);
  V diff = b.sub(spread_rows(b, x, dims), spread_columns(b, y, dims));
  out.push_back(norm_of_last(l, diff));
}

// The gradient has x1's rows and columns and both arguments' batch dims.
void type_cdist_backward(const Args& a, std::vector<Type>& out) {
  Type x = a.type("x1");
  IntList dims = batch_dims(x, a.type("x2"));
  bool empty = x.numel() == 0 || a.type("x2").numel() == 0 || a.type("grad").numel() == 0;
  if (empty) return out.push_back(x);
  dims.insert(dims.end(), x.dims().end() - 2, x.dims().end());
  out.push_back(x.with(dims));
}

void cdist_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("x1"), y = l.in("x2"), dist = l.in("cdist"), grad = l.in("grad");
  if (x.type.numel() == 0 || y.type.numel() == 0 || grad.type.numel() == 0)
    return out.push_back(b.zeros(l.out()));
  IntList pairs(dist.dims().begin(), dist.dims().end()), dims = pairs;
  dims.push_back(x.dims().back());
  grad = b.broadcast_to(grad, pairs);
  V diff = b.sub(spread_rows(b, x, dims), spread_columns(b, y, dims));
  Order order(l);
  V each = Slope(b, diff, spread_pairs(b, grad, dims), spread_pairs(b, dist, dims), order).value();
  V sum = b.reduce(each, IntList{static_cast<int64_t>(dims.size()) - 2}, Builder::Red::kSum);
  out.push_back(sum);
}

// --- pdist: the pairs i < j, row by row ----------------------------------------------------------

void type_pdist(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  if (ir::is_small_float(x.dtype()))
    fail(Code::kNotImplemented, not_implemented_for("pdist", x.dtype()));
  int64_t n = x.dim(0);
  out.push_back(x.with(IntList{n * (n - 1) / 2}));
}

// The first of pair k's rows, from k = n i - i (i + 1) / 2 + j - i - 1 solved for i.
V first_of_pair(Builder& b, V k, int64_t n) {
  double half = static_cast<double>(n) - 0.5;
  V wide = b.convert(k, DType::kF64);
  V root = b.sqrt(b.sub(b.constant(half * half - 1, wide.type), b.mul(wide, 2.0)));
  return b.convert(b.floor(b.sub(b.constant(half, wide.type), root)), DType::kS64);
}

// n i - i (i + 1) / 2: where row i's pairs begin, less i + 1.
V pairs_before(Builder& b, V i, int64_t n) {
  V triangle = b.div(b.mul(i, b.add(i, 1.0)), b.constant_int(2, i.type));
  return b.sub(b.mul(i, b.constant_int(n, i.type)), triangle);
}

void pdist(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  if (l.out().numel() == 0 || x.dim(1) == 0) return out.push_back(b.zeros(l.out()));
  V k = b.iota(l.out().with(DType::kS64), 0);
  V i = first_of_pair(b, k, x.dim(0));
  V j = b.add(b.sub(k, pairs_before(b, i, x.dim(0))), b.add(i, 1.0));
  V diff = b.sub(take_along_list(b, x, i, 0), take_along_list(b, x, j, 0));
  out.push_back(norm_of_last(l, diff));
}

// v of each pair as a symmetric matrix; the diagonal holds some pair's value.
V as_matrix(Builder& b, V v, int64_t n) {
  Type square = ir::make_type(DType::kS64, IntList{n, n});
  V row = b.iota(square, 0), column = b.iota(square, 1);
  V i = b.min(row, column), j = b.max(row, column);
  V k = b.sub(b.add(pairs_before(b, i, n), j), b.add(i, 1.0));
  k = b.min(b.max(k, 0.0), static_cast<double>(v.dim(0) - 1));
  return b.reshape(take_along_list(b, v, b.reshape(k, IntList{n * n}), 0), IntList{n, n});
}

void pdist_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self"), dist = l.in("pdist");
  int64_t n = x.dim(0), m = x.dim(1);
  if (x.type.numel() == 0 || dist.type.numel() == 0) return out.push_back(b.zeros(l.out()));
  IntList dims{n, n, m};
  V diff = b.sub(spread_rows(b, x, dims), spread_columns(b, x, dims));
  V grad = spread_pairs(b, as_matrix(b, l.in("grad"), n), dims);
  Order order(l);
  V far = spread_pairs(b, as_matrix(b, dist, n), dims);
  V each = Slope(b, diff, grad, far, order).value();
  Type square = ir::make_type(DType::kS64, dims);
  V same = b.compare(b.iota(square, 0), b.iota(square, 1), Cmp::kEq);
  out.push_back(b.reduce(b.select(same, b.zeros(each.type), each), IntList{1}, Builder::Red::kSum));
}

}  // namespace

Family distance() {
  static const Row kRows[] = {
      {.name = "aten::linalg_cross",
       .lower = cross,
       .check = check_cross,
       .kernels = {{"cross", takes::kNoBools}}},
      {.name = "aten::_cdist_forward", .type = type_cdist, .lower = cdist, .general = "p"},
      {.name = "aten::_cdist_backward",
       .type = type_cdist_backward,
       .lower = cdist_backward,
       .general = "p"},
      {.name = "aten::_pdist_forward", .type = type_pdist, .lower = pdist, .general = "p"},
      {.name = "aten::_pdist_backward", .type = type_same, .lower = pdist_backward, .general = "p"},
  };
  return kRows;
}

}  // namespace tp::ops
