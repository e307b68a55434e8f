// Embedding look-ups and bags. Rows are gathered by index and added up by scatters; an index to be
// left out (the padding) is sent out of range, where scatters drop it. Sums are taken in f32 for
// halves. Pure functions; any thread.
#include <algorithm>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/index/index_words.h"
#include "ops/index/indexing.h"
#include "ops/index/search.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

void check_index_type(Type t, std::string_view arg, int place, std::string_view op) {
  if (t.dtype() != DType::kS64 && t.dtype() != DType::kS32)
    fail(Code::kRuntime, cat("Expected tensor for argument #", place, " '", arg,
                             "' to have one of the following "
                             "scalar types: Long, Int; but got torch.",
                             eager_name(t.dtype()).scalar,
                             "Tensor instead (while checking arguments for ", op, ")"));
}

V computed(Lowering& l, std::string_view name) {
  V v = l.in(name);
  return l.builder().convert(v, ir::compute_dtype(v.dtype()));
}

V flat(Builder& b, V v) { return b.convert(as_1d(b, v), DType::kS64); }

// Where index is the padding; invalid where there is none: a padding below 0, which no index is.
V is_padding(Lowering& l, V index) {
  if (!l.input("padding_idx") && l.i("padding_idx") < 0) return {};
  return l.builder().compare(index, l.number("padding_idx", index.type), Cmp::kEq);
}

// index, or `outside` where it is the padding.
V without_padding(Lowering& l, V index, int64_t outside) {
  Builder& b = l.builder();
  V hit = is_padding(l, index);
  return hit ? b.select(hit, b.constant_int(outside, index.type), index) : index;
}

// v [n] over the columns of [n, d].
V over_rows(Builder& b, V v, V rows) {
  int64_t first = 0;
  return stretch(b, b.convert(v, rows.dtype()), rows, {&first, 1});
}

// How often each of n values occurs in index, at every index.
V counts_at(Builder& b, V index, int64_t n) {
  V counts = scatter_list(b, b.zeros(ir::make_type(DType::kS64, {&n, 1})), index,
                          b.ones(index.type), 0, Combine::kAdd);
  return take_along_list(b, counts, index, 0);
}

// --- embedding

void embedding_type(const Args& a, std::vector<Type>& out) {
  Type weight = a.type("weight"), index = a.type("indices");
  if (weight.rank() != 2) fail(Code::kRuntime, "'weight' must be 2-D");
  check_index_type(index, "indices", 1, "embedding");
  IntList dims = dims_of(index);
  dims.push_back(weight.dim(1));
  out.push_back(weight.with(dims));
}

void embedding_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  out.push_back(
      b.reshape(take_along_list(b, l.in("weight"), flat(b, l.in("indices")), 0), l.out().dims()));
}

void dense_backward_type(const Args& a, std::vector<Type>& out) {
  Type grad = a.type("grad_output"), index = a.type("indices");
  check_index_type(index, "indices", 2, "embedding_backward");
  out.push_back(grad.with(IntList{a.i("num_weights"), grad.dims().back()}));
}

void dense_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_output"), index = flat(b, l.in("indices"));
  int64_t words = l.out().dim(0);
  V rows = b.reshape(grad, IntList{index.dim(0), l.out().dim(1)});
  if (l.b("scale_grad_by_freq")) rows = b.div(rows, over_rows(b, counts_at(b, index, words), rows));
  index = without_padding(l, index, words);
  V sum = scatter_list(b, b.zeros(l.out().with(rows.dtype())), index, rows, 0, Combine::kAdd);
  out.push_back(b.convert(sum, l.out().dtype()));
}

// --- bags

int64_t bag_count(const Args& a) {
  return a.type("offsets").dim(0) - a.b_or("include_last_offset", false);
}

DType index_dtype(const Args& a) {
  return ir::promote(a.type("indices").dtype(), a.type("offsets").dtype());
}

// Where eager's kernel goes by offsets alone, it leaves offset2bag empty.
bool needs_bag_ids(const Args& a) {
  DType t = a.type("weight").dtype();
  return a.i("mode") != kSum || t == DType::kF64 || a.i("padding_idx") >= 0;
}

void check_bags(const Args& a) {
  Type weight = a.type("weight"), index = a.type("indices"), offsets = a.type("offsets");
  if (index.rank() != 1 && index.rank() != 2)
    fail(Code::kRuntime,
         cat("input has to be a 1D or 2D Tensor, but got Tensor of dimension ", index.rank()));
  if (offsets.rank() != 1)
    fail(Code::kRuntime,
         cat("offsets has to be a 1D Tensor, but got Tensor of dimension ", offsets.rank()));
  check_index_type(index, "indices", 1, "embedding_bag");
  check_index_type(offsets, "offsets", 1, "embedding_bag");
  if (!ir::is_float(weight.dtype()))
    fail(Code::kRuntime,
         cat("Expected tensor for argument #1 'weight' to have one of the following scalar types: "
             "Half, BFloat16, Float, Double; but got torch.",
             eager_name(weight.dtype()).scalar,
             "Tensor instead (while checking arguments for embedding_bag)"));
  if (bag_count(a) < 0)
    fail(Code::kRuntime, "include_last_offset: number of offset should be at least 1");
  std::optional<Type> scale = a.opt_type("per_sample_weights");
  if (!scale) return;
  if (a.i("mode") != kSum)
    fail(Code::kRuntime, "embedding_bag: per_sample_weights only supported with mode='sum'");
  if (scale->dtype() != weight.dtype())
    fail(Code::kRuntime,
         cat("Expected tensor for argument #1 'weight' to have the same type as tensor for "
             "argument #1 'per_sample_weights'; but type torch.",
             eager_name(weight.dtype()).scalar, "Tensor does not equal torch.",
             eager_name(scale->dtype()).scalar,
             "Tensor (while checking arguments for embedding_bag)"));
  if (scale->numel() != index.numel())
    fail(Code::kRuntime, "embedding_bag: per_sample_weights must have as many elements as indices");
}

template <bool for_backward>
void bag_type(const Args& a, std::vector<Type>& out) {
  check_bags(a);
  Type weight = a.type("weight");
  int64_t bags = bag_count(a), mode = a.i("mode");
  int64_t ids = needs_bag_ids(a) ? a.type("indices").numel() : 0;
  int64_t sizes = for_backward || mode != kSum ? bags : a.type("offsets").dim(0);
  DType t = index_dtype(a);
  Type size = ir::make_type(t, {&sizes, 1});
  out.push_back(weight.with(IntList{bags, weight.dim(1)}));
  out.push_back(ir::make_type(t, {&ids, 1}));
  out.push_back(size);
  out.push_back(mode == kMax ? ir::make_type(t, IntList{bags, weight.dim(1)}) : size);
}

// The bag of each of n positions: the last whose offset is not behind it.
V bag_ids(Builder& b, V offsets, int64_t bags, int64_t n) {
  Type t = ir::make_type(DType::kS64, {&n, 1});
  if (bags == 0) return b.zeros(t);
  V first = b.slice_dim(b.convert(offsets, DType::kS64), 0, 0, bags);
  return b.sub(insertion_points(b, first, b.iota(t, 0), true), 1.0);
}

struct Bags {
  V index, id, target;  // word and bag of each entry; its bag, or out of range for padding
  int64_t count;
  V add_up(Builder& b, V rows) const {
    IntList dims = dims_of(rows.type);
    dims[0] = count;
    return scatter_list(b, b.zeros(rows.type.with(dims)), target, rows, 0, Combine::kAdd);
  }
};

Bags bags_of(Lowering& l) {
  Builder& b = l.builder();
  Bags g{flat(b, l.in("indices")), {}, {}, bag_count(l)};
  g.id = bag_ids(b, l.in("offsets"), g.count, g.index.dim(0));
  V pad = is_padding(l, g.index);
  g.target = pad ? b.select(pad, b.constant_int(g.count, g.id.type), g.id) : g.id;
  return g;
}

struct BagMax {
  V value, word;
};

// The largest entry of each bag and column, and the word that it first came from; 0 where the bag
// is empty.
BagMax bag_max(Builder& b, const Bags& g, V rows, V sizes) {
  Type t = rows.type.with(IntList{g.count, rows.dim(1)});
  if (t.numel() == 0 || rows.dim(0) == 0) return {b.zeros(t), b.zeros(t.with(DType::kS64))};
  V most = scatter_list(b, b.min_value(t), g.target, rows, 0, Combine::kMax);
  V hit = b.compare(rows, take_along_list(b, most, g.id, 0), Cmp::kEq);
  int64_t n = rows.dim(0);
  V place = b.iota(rows.type.with(DType::kS64), 0), behind = b.constant_int(n, place.type);
  V first = scatter_list(b, b.constant_int(n, t.with(DType::kS64)), g.target,
                         b.select(hit, place, behind), 0, Combine::kMin);
  V at = b.min(as_1d(b, first), static_cast<double>(n - 1));
  V word = b.reshape(take_along_list(b, g.index, at, 0), t.dims());
  V filled = over_rows(b, b.compare(sizes, 0.0, Cmp::kGt), b.zeros(t.with(DType::kPred)));
  return {b.select(filled, most, b.zeros(t)), b.select(filled, word, b.zeros(word.type))};
}

void bag_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Bags g = bags_of(l);
  int64_t mode = l.i("mode");
  V rows = take_along_list(b, computed(l, "weight"), g.index, 0);
  if (l.has("per_sample_weights"))
    rows = b.mul(rows, over_rows(b, computed(l, "per_sample_weights"), rows));
  V sizes = g.add_up(b, b.ones(g.index.type)), result, most = sizes;
  if (mode == kMax) {
    BagMax m = bag_max(b, g, rows, sizes);
    result = m.value;
    most = m.word;
  } else {
    result = g.add_up(b, rows);
    if (mode == kMean) result = b.div(result, over_rows(b, b.max(sizes, 1.0), result));
  }
  out.push_back(b.convert(result, l.out(0).dtype()));
  out.push_back(l.out(1).numel() == 0 ? b.zeros(l.out(1)) : b.convert(g.id, l.out(1).dtype()));
  out.push_back(mode == kSum ? b.zeros(l.out(2)) : b.convert(sizes, l.out(2).dtype()));
  out.push_back(mode == kSum ? b.zeros(l.out(3)) : b.convert(most, l.out(3).dtype()));
}

// --- bags, backward

void bag_backward_type(const Args& a, std::vector<Type>& out) {
  if (a.b_or("sparse", false))
    fail(Code::kNotImplemented, "embedding_bag: sparse gradients are not supported on this device",
         "make the module with sparse=False");
  Type grad = a.type("grad");
  out.push_back(grad.with(IntList{a.i("num_weights"), grad.dim(1)}));
}

// As saved by the forward; where eager saved none, made again from the offsets.
V saved_bag_ids(Lowering& l, int64_t bags, int64_t n) {
  V ids = l.in("offset2bag");
  if (ids.dim(0) == n) return l.builder().convert(ids, DType::kS64);
  return bag_ids(l.builder(), l.in("offsets"), bags, n);
}

V max_backward(Lowering& l, V grad) {
  Builder& b = l.builder();
  int64_t words = l.out().dim(0), columns = l.out().dim(1), total = words * columns;
  V word = b.convert(l.in("maximum_indices"), DType::kS64);
  V place = b.add(b.mul(word, static_cast<double>(columns)), b.iota(word.type, 1));
  V filled = over_rows(b, b.compare(l.in("bag_size"), 0.0, Cmp::kNe),
                       b.zeros(word.type.with(DType::kPred)));
  place = b.select(filled, place, b.constant_int(total, place.type));
  V zero = b.zeros(ir::make_type(grad.dtype(), {&total, 1}));
  V sum = scatter_list(b, zero, as_1d(b, place), as_1d(b, grad), 0, Combine::kAdd);
  return b.reshape(sum, l.out().dims());
}

V sum_backward(Lowering& l, V grad) {
  Builder& b = l.builder();
  V index = flat(b, l.in("indices"));
  int64_t words = l.out().dim(0), n = index.dim(0);
  V ids = saved_bag_ids(l, grad.dim(0), n), rows = take_along_list(b, grad, ids, 0);
  if (l.has("per_sample_weights"))
    rows = b.mul(rows, over_rows(b, computed(l, "per_sample_weights"), rows));
  if (l.b("scale_grad_by_freq")) rows = b.div(rows, over_rows(b, counts_at(b, index, words), rows));
  if (l.i("mode") == kMean) {
    V size = b.max(take_along_list(b, l.in("bag_size"), ids, 0), 1.0);
    rows = b.div(rows, over_rows(b, size, rows));
  }
  index = without_padding(l, index, words);
  return scatter_list(b, b.zeros(l.out().with(rows.dtype())), index, rows, 0, Combine::kAdd);
}

void bag_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad"), r;
  if (l.out().numel() == 0 || grad.type.numel() == 0 || l.type("indices").numel() == 0)
    r = b.zeros(l.out());
  else
    r = l.i("mode") == kMax ? max_backward(l, grad) : sum_backward(l, grad);
  out.push_back(b.convert(r, l.out().dtype()));
}

void sample_backward_type(const Args& a, std::vector<Type>& out) {
  if (a.i("mode") != kSum)
    fail(Code::kRuntime,
         "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  int64_t n = a.type("indices").numel();
  out.push_back(ir::make_type(a.type("grad").dtype(), {&n, 1}));
}

void sample_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad"), weight = computed(l, "weight"), index = flat(b, l.in("indices"));
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  V ids = saved_bag_ids(l, grad.dim(0), index.dim(0));
  V products = b.mul(take_along_list(b, grad, ids, 0), take_along_list(b, weight, index, 0));
  int64_t column = 1;
  V dot = b.reduce(products, {&column, 1}, Builder::Red::kSum);
  if (V hit = is_padding(l, index)) dot = b.select(hit, b.zeros(dot.type), dot);
  out.push_back(b.convert(dot, l.out().dtype()));
}

void no_rows(const BadIndex&) {
  fail(Code::kRuntime, "index_select(): self indexing axis dim should be positive");
}
constexpr IndexRule kRowOfWeight = {.argument = "indices",
                                    .size = IndexRule::Size::kFirstDim,
                                    .words = in_self,
                                    .words_of_later_dims = in_data,
                                    .nothing = no_rows};

}  // namespace

Family embedding() {
  static const Row kRows[] = {
      {.name = "aten::embedding",
       .type = embedding_type,
       .lower = embedding_lower,
       .general = "padding_idx",
       .index = &kRowOfWeight},
      {.name = "aten::embedding_dense_backward",
       .type = dense_backward_type,
       .lower = dense_backward_lower,
       .general = "padding_idx"},
      {.name = "aten::_embedding_bag",
       .type = bag_type<true>,
       .lower = bag_lower,
       .general = "padding_idx"},
      {.name = "aten::_embedding_bag_forward_only",
       .type = bag_type<false>,
       .lower = bag_lower,
       .general = "padding_idx"},
      {.name = "aten::_embedding_bag_backward",
       .type = bag_backward_type,
       .lower = bag_backward_lower,
       .general = "padding_idx"},
      {.name = "aten::_embedding_bag_dense_backward",
       .type = bag_backward_type,
       .lower = bag_backward_lower,
       .general = "padding_idx"},
      {.name = "aten::_embedding_bag_per_sample_weights_backward",
       .type = sample_backward_type,
       .lower = sample_backward_lower,
       .general = "padding_idx"},
  };
  return kRows;
}

}  // namespace tp::ops
