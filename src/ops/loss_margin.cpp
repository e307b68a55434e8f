// Margin losses over classes: every class against the right one (or against each of the right
// ones). All pairs are formed at once. Targets out of range, which eager finds by reading them,
// count as no class.
#include "base/error.h"
#include "base/text.h"
#include "ops/eager_text.h"
#include "ops/families.h"
#include "ops/helpers.h"
#include "ops/indexing.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
using Red = Builder::Red;

enum : int64_t { kNone = 0, kMean = 1 };

struct Sizes {
  int64_t rows, classes;
};
Sizes sizes_of(Type x) {
  if (x.rank() == 2) return {x.dim(0), x.dim(1)};
  return {1, x.rank() == 0 ? 1 : x.dim(0)};
}

Sizes checked_sizes(Type x) {
  bool good = (x.rank() == 2 && x.dim(1) != 0) || (x.rank() == 1 && x.dim(0) != 0) || x.rank() == 0;
  if (!good)
    fail(Code::kRuntime, cat("Expected non-empty vector or matrix with optional 0-dim batch size, "
                             "but got: ",
                             size_text(x.dims())));
  return sizes_of(x);
}

// --- pieces --------------------------------------------------------------------------------------

V matrix(Builder& b, V x, Sizes s) { return b.reshape(x, IntList{s.rows, s.classes}); }

// [rows] spread over a matrix's columns.
V over_columns(Builder& b, V v, Type t) { return b.broadcast(v, t.with(v.dtype()), IntList{0}); }

V sum_columns(Builder& b, V v) { return b.reduce(v, IntList{1}, Red::kSum); }

// 1 / classes, and for a mean 1 / rows.
double share(const Args& a, Sizes s) {
  double n = static_cast<double>(s.classes);
  return a.i("reduction") == kMean ? 1 / (n * static_cast<double>(s.rows)) : 1 / n;
}

// Row losses, reduced as the call says.
void finish(Lowering& l, std::vector<V>& out, V rows) {
  Builder& b = l.builder();
  if (l.i("reduction") == kNone) return put(l, out, b.reshape(rows, l.out().dims()));
  V sum = b.reduce(rows, IntList{0}, Red::kSum);
  double n = static_cast<double>(rows.dim(0));
  put(l, out, l.i("reduction") == kMean ? b.div(sum, n) : sum);
}

// The gradient of a matrix, times grad_output (a number, or one for each row).
void finish_backward(Lowering& l, std::vector<V>& out, V grad) {
  Builder& b = l.builder();
  V g = b.convert(l.in("grad_output"), grad.dtype());
  if (g.type.numel() == 1)
    g = b.broadcast_to(b.reshape(g, IntList{}), grad.dims());
  else
    g = over_columns(b, g, grad.type);
  put(l, out, b.reshape(b.mul(grad, g), l.out().dims()));
}

// --- one right class -----------------------------------------------------------------------------

struct Margins {
  V violation;  // margin - x[right] + x[class]; matrix
  V counts;     // pred: above 0 and another class
  V right;      // pred: is this the right class
  V weight;     // of the right class, spread; invalid where there is none
};

Margins margins(Lowering& l, Sizes s) {
  Builder& b = l.builder();
  V x = matrix(b, b.convert(l.in("self"), compute_type(l).dtype()), s);
  V target = b.reshape(b.convert(l.in("target"), DType::kS64), IntList{s.rows});
  V right =
      b.compare(over_columns(b, target, x.type), b.iota(x.type.with(DType::kS64), 1), Cmp::kEq);
  auto of_right = [&](V v) {
    V one = sum_columns(b, b.select(right, v, b.zeros(v.type)));
    return over_columns(b, one, v.type);
  };
  Type scalar = ir::scalar_type(x.dtype());
  V margin = b.broadcast_to(number_or(l, "margin", scalar, 1), x.dims());
  V z = b.add(b.sub(margin, of_right(x)), x);
  V counts = b.and_(b.compare(z, 0, Cmp::kGt), b.not_(right));
  V weight;
  if (l.has("weight")) {
    V w = b.reshape(b.convert(l.in("weight"), x.dtype()), IntList{s.classes});
    weight = of_right(b.broadcast_to(w, x.dims()));
  }
  return {z, counts, right, weight};
}

void multi_margin(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Sizes s = sizes_of(l.type("self"));
  if (s.rows == 0) return put(l, out, b.zeros(l.out()));
  Margins m = margins(l, s);
  V each = l.f_or("p", 1) == 2 ? b.mul(m.violation, m.violation) : m.violation;
  if (m.weight) each = b.mul(each, m.weight);
  each = b.select(m.counts, each, b.zeros(each.type));
  finish(l, out, b.div(sum_columns(b, each), static_cast<double>(s.classes)));
}

void multi_margin_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Sizes s = sizes_of(l.type("self"));
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  Margins m = margins(l, s);
  double g = share(l, s);
  V each = l.f_or("p", 1) == 2 ? b.mul(m.violation, 2 * g) : b.constant(g, m.violation.type);
  if (m.weight) each = b.mul(each, m.weight);
  each = b.select(m.counts, each, b.zeros(each.type));
  V total = over_columns(b, sum_columns(b, each), each.type);
  finish_backward(l, out, b.select(m.right, b.neg(total), each));
}

void check_dtypes(const char* kernel, Type x, Type target) {
  if (x.dtype() != DType::kF32 && x.dtype() != DType::kF64)
    fail(Code::kNotImplemented, not_implemented_for(kernel, x.dtype()));
  if (target.dtype() != DType::kS64)
    fail(Code::kRuntime,
         cat("expected scalar type Long but found ", eager_name(target.dtype()).scalar));
}

void check_margin(const Args& a, Sizes s) {
  Type target = a.type("target");
  if (double p = a.f_or("p", 1); p != 1 && p != 2)
    fail(Code::kRuntime, "only p == 1 and p == 2 supported");
  if (target.rank() > 1 || target.numel() != s.rows)
    fail(
        Code::kRuntime,
        cat("multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            "samples (batch size). Expected target size [",
            s.rows, "], but got ", size_text(target.dims()), ". Input has shape ",
            size_text(a.type("self").dims()), "."));
  auto w = a.opt_type("weight");
  if (w && (w->rank() > 1 || w->numel() != s.classes))
    fail(Code::kRuntime,
         cat("inconsistent weight size, expected ", s.classes, " but got ", size_text(w->dims())));
  check_dtypes("multi_margin_loss_cpu_kernel", a.type("self"), target);
}

void type_multi_margin(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  Sizes s = checked_sizes(x);
  check_margin(a, s);
  bool rows = a.i("reduction") == kNone && a.type("target").rank() > 0;
  out.push_back(rows ? x.with(IntList{s.rows}) : ir::scalar_type(x.dtype()));
}

void type_multi_margin_backward(const Args& a, std::vector<Type>& out) {
  check_margin(a, checked_sizes(a.type("self")));
  out.push_back(a.type("self"));
}

// --- several right classes: those listed before the first -1 -------------------------------------

struct Labels {
  V x;         // matrix
  V is_right;  // pred matrix: is this class listed
  V pairs;     // [rows, listed, class]: 1 - x[listed] + x[class]
  V counts;    // pred: pairs above 0 of a listed class with one that is not
  V listed;    // pred [rows, listed, class]: is this class the listed one
};

Labels labels(Lowering& l, Sizes s) {
  Builder& b = l.builder();
  V x = matrix(b, b.convert(l.in("self"), compute_type(l).dtype()), s);
  V target = matrix(b, b.convert(l.in("target"), DType::kS64), s);
  V end = b.convert(b.compare(target, 0, Cmp::kLt), DType::kS64);
  V valid = b.compare(running_sum(b, end, 1), 0, Cmp::kEq);
  IntList cube{s.rows, s.classes, s.classes};
  Type t = ir::make_type(DType::kS64, cube);
  V listed = b.compare(b.broadcast(target, t, IntList{0, 1}), b.iota(t, 2), Cmp::kEq);
  listed = b.and_(listed, b.broadcast(valid, t.with(DType::kPred), IntList{0, 1}));
  V is_right = b.reduce(listed, IntList{1}, Red::kOr);
  Type real = t.with(x.dtype());
  V columns = b.broadcast(x, real, IntList{0, 2});
  V picked = b.reduce(b.select(listed, columns, b.zeros(real)), IntList{2}, Red::kSum);
  V pairs = b.add(b.sub(b.ones(real), b.broadcast(picked, real, IntList{0, 1})), columns);
  V counts = b.and_(b.compare(pairs, 0, Cmp::kGt),
                    b.broadcast(valid, t.with(DType::kPred), IntList{0, 1}));
  V wrong = b.broadcast(b.not_(is_right), t.with(DType::kPred), IntList{0, 2});
  return {x, is_right, pairs, b.and_(counts, wrong), listed};
}

void multilabel(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Sizes s = sizes_of(l.type("self"));
  if (s.rows == 0) {
    put(l, out, b.zeros(l.out()));
    return out.push_back(b.zeros(l.out(1)));
  }
  Labels m = labels(l, s);
  V each = b.select(m.counts, m.pairs, b.zeros(m.pairs.type));
  V rows = b.reduce(each, IntList{1, 2}, Red::kSum);
  finish(l, out, b.div(rows, static_cast<double>(s.classes)));
  put(l, out, b.reshape(m.is_right, l.out(1).dims()));
}

void multilabel_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Sizes s = sizes_of(l.type("self"));
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  Labels m = labels(l, s);
  V on = b.convert(m.counts, m.x.dtype());
  V wrong = b.reduce(on, IntList{1}, Red::kSum);
  V row = b.broadcast(b.reduce(on, IntList{2}, Red::kSum), on.type, IntList{0, 1});
  V right = b.reduce(b.select(m.listed, row, b.zeros(on.type)), IntList{1}, Red::kSum);
  finish_backward(l, out, b.mul(b.sub(wrong, right), share(l, s)));
}

void check_labels(const Args& a) {
  Type x = a.type("self"), target = a.type("target");
  Sizes s = checked_sizes(x);
  bool same = x.rank() == 2
                  ? target.rank() == 2 && target.dim(0) == s.rows && target.dim(1) == s.classes
                  : target.rank() <= 1 && target.numel() == s.classes;
  if (!same)
    fail(Code::kRuntime, cat("inconsistent target size: ", size_text(target.dims()),
                             " for input of size: ", size_text(x.dims())));
  check_dtypes("multilabel_margin_loss_forward_out_frame", x, target);
}

void type_multilabel(const Args& a, std::vector<Type>& out) {
  check_labels(a);
  Type x = a.type("self");
  bool rows = a.i("reduction") == kNone && x.rank() == 2;
  out.push_back(rows ? x.with(IntList{x.dim(0)}) : ir::scalar_type(x.dtype()));
  out.push_back(a.type("target").with(x.dtype()));
}

void type_multilabel_backward(const Args& a, std::vector<Type>& out) {
  check_labels(a);
  out.push_back(a.type("self"));
}

}  // namespace

Family loss_margin() {
  static const Row kRows[] = {
      {.name = "aten::multi_margin_loss",
       .type = type_multi_margin,
       .lower = multi_margin,
       .baked = "p"},
      {.name = "aten::multi_margin_loss_backward",
       .type = type_multi_margin_backward,
       .lower = multi_margin_backward,
       .baked = "p"},
      {"aten::multilabel_margin_loss_forward", type_multilabel, multilabel},
      {"aten::multilabel_margin_loss_backward", type_multilabel_backward, multilabel_backward},
  };
  return kRows;
}

}  // namespace tp::ops
