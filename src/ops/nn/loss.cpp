// Losses: an elementwise formula and a reduction (0 none, 1 mean, 2 sum), and their gradients.
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
using Red = Builder::Red;

enum : int64_t { kNone = 0, kMean = 1, kSum = 2 };

V sum_all(Builder& b, V x) {
  IntList all;
  for (int i = 0; i < x.rank(); ++i) all.push_back(i);
  return b.reduce(x, all, Red::kSum);
}

// The loss of every element, reduced as the call says.
void reduce_to(Lowering& l, std::vector<V>& out, V each) {
  Builder& b = l.builder();
  int64_t how = l.i("reduction");
  if (how == kNone) return put(l, out, each);
  V s = sum_all(b, each);
  put(l, out, how == kMean ? b.div(s, static_cast<double>(each.type.numel())) : s);
}

// Operands of a loss: one compute dtype, one shape.
struct Pair {
  Type type;
  V x, y;
};
Pair pair(Lowering& l) {
  DType d = ir::compute_dtype(l.out().dtype());
  Type t = ir::make_type(d, broadcast_dims(l.type("self").dims(), l.type("target").dims()));
  return {t, l.number("self", t), l.number("target", t)};
}

// The incoming gradient over the elements, divided by their number for a mean.
V scaled_grad(Lowering& l, Type t) {
  V g = l.number("grad_output", t);
  return l.i("reduction") == kMean ? l.builder().div(g, static_cast<double>(t.numel())) : g;
}

// --- regression ----------------------------------------------------------------------------------

void mse(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  V d = l.builder().sub(p.x, p.y);
  reduce_to(l, out, l.builder().mul(d, d));
}
void mse_backward(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  Builder& b = l.builder();
  put(l, out, b.mul(b.mul(b.sub(p.x, p.y), 2.0), scaled_grad(l, p.type)));
}

void smooth_l1(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  Builder& b = l.builder();
  V beta = l.number("beta", p.type);
  V z = b.abs(b.sub(p.x, p.y));
  V square = b.div(b.mul(b.mul(z, z), 0.5), beta);
  reduce_to(l, out, b.select(b.compare(z, beta, Cmp::kLt), square, b.sub(z, b.mul(beta, 0.5))));
}
void smooth_l1_backward(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  Builder& b = l.builder();
  V beta = l.number("beta", p.type);
  V g = scaled_grad(l, p.type), z = b.sub(p.x, p.y);
  V middle = b.div(b.mul(z, g), beta);
  V above = b.select(b.compare(z, beta, Cmp::kGe), g, middle);
  put(l, out, b.select(b.compare(z, b.neg(beta), Cmp::kLe), b.neg(g), above));
}

void huber(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  Builder& b = l.builder();
  V delta = l.number("delta", p.type);
  V z = b.abs(b.sub(p.x, p.y));
  V linear = b.mul(b.sub(z, b.mul(delta, 0.5)), delta);
  reduce_to(l, out, b.select(b.compare(z, delta, Cmp::kLe), b.mul(b.mul(z, z), 0.5), linear));
}
void huber_backward(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  Builder& b = l.builder();
  V delta = l.number("delta", p.type);
  V g = scaled_grad(l, p.type), z = b.sub(p.x, p.y);
  V edge = b.mul(g, delta);
  V above = b.select(b.compare(z, delta, Cmp::kGe), edge, b.mul(z, g));
  put(l, out, b.select(b.compare(z, b.neg(delta), Cmp::kLe), b.neg(edge), above));
}

// --- binary cross entropy ------------------------------------------------------------------------

V weighted(Lowering& l, V each) {
  return l.has("weight") ? l.builder().mul(each, l.number("weight", each.type)) : each;
}

// Logarithms stop at -100, so that a certain and wrong answer costs a finite amount.
void bce(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  Builder& b = l.builder();
  V log_not = b.max(b.unary("stablehlo.log_plus_one", b.neg(p.x)), -100.0);
  V log_yes = b.max(b.log(p.x), -100.0);
  V each = b.sub(b.mul(b.sub(p.y, 1.0), log_not), b.mul(p.y, log_yes));
  reduce_to(l, out, weighted(l, each));
}
void bce_backward(Lowering& l, std::vector<V>& out) {
  Pair p = pair(l);
  Builder& b = l.builder();
  V spread = b.max(b.mul(b.sub(b.ones(p.type), p.x), p.x), 1e-12);
  V slope = b.div(b.sub(p.x, p.y), spread);
  put(l, out, weighted(l, b.mul(scaled_grad(l, p.type), slope)));
}

// --- negative log likelihood: the class dim is 1, or 0 of a single sample ------------------------
// -----------------------------------

struct Nll {
  Builder& b;
  V x, target;  // target: x without the class dim
  int64_t dim;
  V counted;  // pred: the target is not the ignored class
  V weight;   // of each target, 0 where ignored
};

// x at class `at` of each row.
V at_class(Builder& b, V x, V at, int64_t dim) {
  if (at.type.numel() == 0) return b.zeros(at.type.with(x.dtype()));
  IntList unit(at.dims().begin(), at.dims().end());
  unit.push_back(1);
  Type part = ir::make_type(at.dtype(), unit);
  std::vector<V> index;
  for (int64_t d = 0, t = 0; d < x.rank(); ++d)
    index.push_back(d == dim ? b.reshape(at, unit) : b.iota(part, t++));
  hlo::GatherConfig c;
  for (int64_t d = 0; d < x.rank(); ++d) {
    c.collapsed.push_back(d);
    c.start_index_map.push_back(d);
    c.slice_sizes.push_back(1);
  }
  c.index_vector_dim = at.rank();
  return b.gather(x, b.concat(index, at.rank()), at.type.with(x.dtype()), c);
}

Nll nll(Lowering& l, DType compute) {
  Builder& b = l.builder();
  V x = b.convert(l.in("self"), compute), target = b.convert(l.in("target"), DType::kS64);
  int64_t dim = x.rank() == 1 ? 0 : 1;
  IntList rows(x.dims().begin(), x.dims().end());
  rows.erase(rows.begin() + dim);
  target = b.reshape(target, rows);  // a single sample's target may be 0-d or of one element
  V counted = b.compare(target, l.number("ignore_index", target.type), Cmp::kNe);
  target = b.select(counted, target, b.zeros(target.type));
  Type t = target.type.with(compute);
  V weight = b.ones(t);
  if (l.has("weight")) weight = at_class(b, b.convert(l.in("weight"), compute), target, 0);
  return {b, x, target, dim, counted, b.select(counted, weight, b.zeros(t))};
}

void nll_forward(Lowering& l, std::vector<V>& out) {
  Nll n = nll(l, compute_type(l).dtype());
  Builder& b = n.b;
  int64_t how = l.i("reduction");
  V picked = b.select(n.counted, at_class(b, n.x, n.target, n.dim), b.zeros(n.weight.type));
  V each = b.neg(b.mul(picked, n.weight));
  if (how == kNone && n.x.rank() != 1) {
    put(l, out, each);
    return out.push_back(b.zeros(l.out(1)));
  }
  V total = sum_all(b, n.weight), s = sum_all(b, each);
  put(l, out, how == kMean ? b.div(s, total) : s);
  put(l, out, total);
}

void nll_backward(Lowering& l, std::vector<V>& out) {
  Nll n = nll(l, compute_type(l).dtype());
  Builder& b = n.b;
  V g = b.mul(b.neg(n.weight), l.number("grad_output", n.weight.type));
  if (l.i("reduction") == kMean) g = b.div(g, l.number("total_weight", n.weight.type));
  IntList kept;
  for (int64_t d = 0; d < n.x.rank(); ++d)
    if (d != n.dim) kept.push_back(d);
  V classes = b.iota(n.x.type.with(DType::kS64), n.dim);
  V hit = b.compare(classes, b.broadcast(n.target, classes.type, kept), Cmp::kEq);
  hit = b.and_(hit, b.broadcast(n.counted, hit.type, kept));
  put(l, out, b.select(hit, b.broadcast(g, n.x.type, kept), b.zeros(n.x.type)));
}

// --- types ---------------------------------------------------------------------------------------

void type_loss(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  if (a.i("reduction") != kNone) return out.push_back(ir::scalar_type(x.dtype()));
  out.push_back(x.with(broadcast_dims(x.dims(), a.type("target").dims())));
}

void type_bce(const Args& a, std::vector<Type>& out) {
  if (a.i("reduction") != kNone) return out.push_back(ir::scalar_type(a.type("self").dtype()));
  type_same(a, out);
}
// Eager writes what was promoted into a loss of the input's dtype.
void check_holds(DType x, DType both) {
  if (ir::is_float(both) > ir::is_float(x) || ir::is_complex(both) > ir::is_complex(x))
    fail(Code::kRuntime, cannot_be_cast(both, x));
}
// Targets of another dtype are a mistake here: no kernel casts them.
void check_bce(const Args& a) {
  DType x = a.type("self").dtype(), t = a.type("target").dtype();
  if (x != t) fail(Code::kRuntime, found_dtype(t, x));
  if (auto w = a.opt_type("weight")) check_holds(x, ir::promote(x, w->dtype()));
}
void check_nll(const Args& a) {
  DType x = a.type("self").dtype();
  if (auto w = a.opt_type("weight"); w && w->dtype() != x)
    fail(Code::kRuntime, expected_scalar_type(x, w->dtype()));
}

void type_huber(const Args& a, std::vector<Type>& out) {
  if (!(a.f("delta") > 0))
    fail(Code::kRuntime, "huber_loss does not support non-positive values for delta.");
  DType x = a.type("self").dtype();
  check_holds(x, ir::promote(x, a.type("target").dtype()));
  type_loss(a, out);
}

// Gradients of broadcast operands have the joint shape.
void type_joint(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  out.push_back(x.with(broadcast_dims(x.dims(), a.type("target").dims())));
}

void type_nll2d(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self"), t = a.type("target");
  if (t.rank() != 3)
    fail(Code::kRuntime,
         cat("only batches of spatial targets supported (3D tensors) but got targets of "
             "dimension: ",
             t.rank()));
  if (x.rank() != 4)
    fail(Code::kRuntime,
         cat("only batches of spatial inputs supported (4D tensors), but got input of "
             "dimension: ",
             x.rank()));
  if (auto w = a.opt_type("weight"); w && w->numel() != x.dim(1))
    fail(Code::kRuntime, "weight tensor should be defined either for all or no classes");
  if (x.dim(0) != t.dim(0) || x.dim(2) != t.dim(1) || x.dim(3) != t.dim(2))
    fail(Code::kRuntime, cat("size mismatch (got input: ", size_text(x.dims()),
                             " , target: ", size_text(t.dims())));
  out.push_back(a.i("reduction") == kNone ? x.with(t.dims()) : ir::scalar_type(x.dtype()));
  out.push_back(ir::scalar_type(x.dtype()));
}

std::string of_classes(const BadIndex& i) { return cat("Target ", i.value, " is out of bounds."); }
constexpr IndexRule kClasses = {
    .argument = "target", .size = IndexRule::Size::kClasses, .words = of_classes};

const Row kRows[] = {
    {.name = "aten::mse_loss", .lower = mse, .kernels = {{"mse_cpu", takes::kFloats}}},
    {.name = "aten::mse_loss_backward",
     .type = type_joint,
     .lower = mse_backward,
     .layout = Layout::kIterator,
     .kernels = {{"mse_backward_cpu_out", takes::kNumbers}}},
    {.name = "aten::smooth_l1_loss",
     .lower = smooth_l1,
     .general = "beta",
     .kernels = {{"smooth_l1_cpu", takes::kFloats}}},
    {.name = "aten::smooth_l1_loss_backward",
     .type = type_joint,
     .lower = smooth_l1_backward,
     .layout = Layout::kIterator,
     .general = "beta",
     .kernels = {{"smooth_l1_backward_cpu_out", takes::kNumbers}}},
    {.name = "aten::huber_loss",
     .type = type_huber,
     .lower = huber,
     .general = "delta",
     .kernels = {{"huber_cpu", takes::kFloats}}},
    {.name = "aten::huber_loss_backward",
     .type = type_joint,
     .lower = huber_backward,
     .layout = Layout::kIterator,
     .general = "delta",
     .kernels = {{"huber_backward_cpu_out", takes::kFloats}}},
    {.name = "aten::binary_cross_entropy",
     .type = type_bce,
     .lower = bce,
     .check = check_bce,
     .kernels = {{"binary_cross_entropy", takes::kFloats, "self"}}},
    {.name = "aten::binary_cross_entropy_backward",
     .type = type_same,
     .lower = bce_backward,
     .kernels = {{"binary_cross_entropy_backward", takes::kFloats}}},
    {.name = "aten::nll_loss_forward",
     .lower = nll_forward,
     .check = check_nll,
     .general = "ignore_index",
     .kernels = {{"nll_loss_out_frame", takes::kFloats, "self"}},
     .index = &kClasses},
    {.name = "aten::nll_loss_backward", .lower = nll_backward, .general = "ignore_index"},
    {.name = "aten::nll_loss2d_forward",
     .type = type_nll2d,
     .lower = nll_forward,
     .check = check_nll,
     .general = "ignore_index",
     .kernels = {{"nll_loss2d_forward_out_frame", takes::kFloats, "self"}},
     .index = &kClasses},
    {.name = "aten::nll_loss2d_backward",
     .type = type_same,
     .lower = nll_backward,
     .general = "ignore_index"},
};

}  // namespace

Family loss() { return kRows; }

}  // namespace tp::ops
