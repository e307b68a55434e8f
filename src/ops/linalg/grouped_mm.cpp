// Grouped matrix products (mixtures of experts): offs[g] is where group g ends. Which group a row
// is in is data, so every group's product is made whole, and what is not its own is masked out:
// behind the product, so that a NaN of one group never reaches another. Pure; any thread.
#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

void check_dtype(Type t, std::string_view which) {
  if (t.dtype() != DType::kF32 && !ir::is_small_float(t.dtype()))
    fail(Code::kRuntime, cat("Expected ", which, " to be Float32, BFloat16 or Float16 matrix, got ",
                             eager_name(t.dtype()).scalar));
}

void check_operands(Type x, Type y, const std::optional<Type>& offs) {
  check_dtype(x, "mat_a");
  check_dtype(y, "mat_b");
  if (x.rank() != 2 && x.rank() != 3) fail(Code::kRuntime, "mat_a has to be 2 or 3d");
  if (y.rank() != 2 && y.rank() != 3) fail(Code::kRuntime, "mat_b has to be 2 or 3d");
  bool flat = x.rank() == 2 || y.rank() == 2, both = x.rank() == 2 && y.rank() == 2;
  if (!both && x.dims().back() != y.dims()[y.dims().size() - 2])
    fail(Code::kRuntime, "contraction dimension of mat_a and mat_b must match");
  if (offs.has_value() != flat)
    fail(Code::kRuntime,
         "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
  if (!offs) return;
  if (offs->rank() != 1) fail(Code::kRuntime, "offs has to be 1D");
  if (offs->dtype() != DType::kS32) fail(Code::kRuntime, "Offsets have to be int32");
}

void grouped_mm_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self"), y = a.type("mat2");
  std::optional<Type> offs = a.opt_type("offs");
  check_operands(x, y, offs);
  if (a.has("bias")) fail(Code::kRuntime, "Bias not supported yet");
  if (a.dtype_or("out_dtype", x.dtype()) != x.dtype())
    fail(Code::kRuntime, "Grouped gemm output dtype must match `mat_a` dtype");
  int64_t n = y.dims().back();
  if (x.rank() == 2 && y.rank() == 2)
    return out.push_back(x.with(IntList{offs->dim(0), x.dim(0), n}));
  int64_t groups = x.rank() == 3 ? x.dim(0) : y.dim(0);
  if (offs && offs->dim(0) != groups) fail(Code::kRuntime, "matrix batch sizes have to match");
  if (x.rank() == 2) return out.push_back(x.with(IntList{x.dim(0), n}));
  if (y.rank() == 2) return out.push_back(x.with(IntList{x.dim(1), n}));
  if (x.dim(0) != y.dim(0)) fail(Code::kRuntime, "batched dimension has to match");
  out.push_back(x.with(IntList{x.dim(0), x.dim(1), n}));
}

// Whether place i of n is in group g: pred[groups, n].
V membership(Builder& b, V offs, int64_t n) {
  int64_t groups = offs.dim(0);
  Type t = offs.type.with(IntList{groups, n});
  V ends = b.broadcast(offs, t, IntList{0}), place = b.iota(t, 1);
  V start = b.pad(offs, b.scalar(0, DType::kS32), IntList{1}, IntList{-1}, IntList{0});
  V starts = b.broadcast(start, t, IntList{0});
  return b.and_(b.compare(place, starts, Cmp::kGe), b.compare(place, ends, Cmp::kLt));
}

// v where the mask, spread along `map`, is true; else 0.
V masked(Builder& b, V v, V mask, IntList map) {
  V spread = b.broadcast(mask, v.type.with(DType::kPred), map);
  return b.select(spread, v, zeros_like(b, v));
}

// Both flat: the groups share out the contracted dim.
V by_contracted(Builder& b, V x, V y, V offs, DType t) {
  int64_t k = x.dim(1), groups = offs.dim(0);
  V mask = membership(b, offs, k);
  x = b.broadcast(x, x.type.with(IntList{groups, x.dim(0), k}), IntList{1, 2});
  y = b.broadcast(y, y.type.with(IntList{groups, k, y.dim(1)}), IntList{1, 2});
  x = masked(b, x, mask, {0, 2});
  y = masked(b, y, mask, {0, 1});
  return b.dot(x, y, IntList{0}, IntList{0}, IntList{2}, IntList{1}, t);
}

void grouped_mm_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self"), y = l.in("mat2"), offs = l.opt("offs");
  DType t = compute_type(l).dtype();
  if (!offs) return put(l, out, b.dot(x, y, IntList{0}, IntList{0}, IntList{2}, IntList{1}, t));
  if (x.rank() == 2 && y.rank() == 2) return put(l, out, by_contracted(b, x, y, offs, t));
  V all;
  if (x.rank() == 2) {  // [m, groups, n]
    all = b.dot(x, y, IntList{}, IntList{}, IntList{1}, IntList{1}, t);
    all = masked(b, all, membership(b, offs, x.dim(0)), {1, 0});
    return put(l, out, b.reduce(all, IntList{1}, Builder::Red::kSum));
  }
  all = b.dot(x, y, IntList{}, IntList{}, IntList{2}, IntList{0}, t);  // [groups, m, n]
  all = masked(b, all, membership(b, offs, y.dim(1)), {0, 2});
  put(l, out, b.reduce(all, IntList{0}, Builder::Red::kSum));
}

const Row kRows[] = {
    {.name = "aten::_grouped_mm", .type = grouped_mm_type, .lower = grouped_mm_lower},
};

}  // namespace

Family grouped_mm() { return kRows; }

}  // namespace tp::ops
