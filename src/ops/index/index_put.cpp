// Advanced indexing: x[i, :, j] and its writing form, each one gather or scatter. Index tensors are
// broadcast among themselves; where they are neighbours their dims stand in place, otherwise in
// front. Any thread.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/index/indexing.h"
#include "ops/index/scatter.h"

namespace tp::ops {
namespace {

// Which dims of x are indexed, and the shape of the result.
struct Indexing {
  IntList axes;       // indexed dims of x
  IntList batch;      // the index tensors' common shape
  int64_t place = 0;  // where it stands in the result
  IntList shape;      // of the result
  bool mask = false;  // a bool or byte index: one that picks by value
};

IntList broadcast_shapes(const std::vector<Type>& types) {
  size_t rank = 0;
  for (Type t : types) rank = std::max(rank, t.dims().size());
  IntList out(rank, 1);
  for (Type t : types)
    for (size_t i = 0; i < t.dims().size(); ++i) {
      int64_t& o = out[rank - t.dims().size() + i];
      if (t.dim(i) == 1) continue;
      if (o != 1 && o != t.dim(i)) {
        std::string all;
        for (Type u : types) all += cat(all.empty() ? "" : ", ", size_text(u.dims()));
        fail(Code::kIndex,
             cat("shape mismatch: indexing tensors could not be broadcast together with "
                 "shapes ",
                 all));
      }
      o = t.dim(i);
    }
  return out;
}

Indexing indexing_of(Type self, const std::vector<Type>& indices) {
  Indexing x;
  std::vector<Type> given;
  if (static_cast<int>(indices.size()) > self.rank())
    fail(Code::kIndex, cat("too many indices for tensor of dimension ", self.rank(), " (got ",
                           indices.size(), ")"));
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    DType t = indices[d].dtype();
    x.mask |= t == DType::kPred || t == DType::kU8;
    if (t != DType::kS64 && t != DType::kS32 && t != DType::kPred && t != DType::kU8)
      fail(Code::kIndex, "tensors used as indices must be long, int, byte or bool tensors");
    x.axes.push_back(static_cast<int64_t>(d));
    given.push_back(indices[d]);
  }
  if (x.mask) return x;
  x.batch = broadcast_shapes(given);
  bool adjacent =
      x.axes.empty() || x.axes.back() - x.axes.front() + 1 == static_cast<int64_t>(x.axes.size());
  x.place = adjacent && !x.axes.empty() ? x.axes[0] : 0;
  for (int64_t d = 0; d < self.rank(); ++d)
    if (std::find(x.axes.begin(), x.axes.end(), d) == x.axes.end())
      x.shape.push_back(self.dim(static_cast<size_t>(d)));
  x.shape.insert(x.shape.begin() + x.place, x.batch.begin(), x.batch.end());
  return x;
}

std::vector<Type> types_of(const std::vector<V>& v) {
  std::vector<Type> t;
  for (const V& x : v) t.push_back(x ? x.type : Type());
  return t;
}

// [batch..., axes]: wrapped, of one integer type.
V index_vectors(Builder& b, V self, const std::vector<V>& indices, const Indexing& x) {
  DType t = DType::kS32;
  for (int64_t d : x.axes)
    if (indices[static_cast<size_t>(d)].dtype() == DType::kS64) t = DType::kS64;
  std::vector<V> parts;
  IntList one = x.batch;
  one.push_back(1);
  for (int64_t d : x.axes) {
    auto i = static_cast<size_t>(d);
    V v = wrap_index(b, b.convert(indices[i], t), self.dim(i));
    parts.push_back(b.reshape(b.broadcast_to(v, x.batch), one));
  }
  return b.concat(parts, static_cast<int64_t>(x.batch.size()));
}

// Dims of the result that x's own dims became.
IntList window_dims(const Indexing& x) {
  IntList v;
  auto end = x.place + static_cast<int64_t>(x.batch.size());
  for (int64_t d = 0; d < static_cast<int64_t>(x.shape.size()); ++d)
    if (d < x.place || d >= end) v.push_back(d);
  return v;
}

[[noreturn]] void mask_unsupported(std::string_view what) {
  fail(Code::kNotImplemented, cat(what, ": a bool index gives a shape that depends on data"),
       "use torch.where or masked_fill, or count on the host first");
}

// Where the one mask of `indices` stands; any second index makes the shape depend on data.
size_t mask_place(const std::vector<Type>& indices) {
  size_t at = indices.size();
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    if (at != indices.size()) mask_unsupported("index_put_");
    at = d;
  }
  return at;
}

void check_mask(Type self, const std::vector<Type>& indices) {
  size_t at = mask_place(indices);
  Type mask = indices[at];
  for (size_t i = 0; i < mask.dims().size(); ++i) {
    if (at + i < self.dims().size() && mask.dim(i) == self.dim(at + i)) continue;
    fail(Code::kIndex, cat("The shape of the mask ", size_text(mask.dims()), " at index ", i,
                           " does not match the shape of the indexed tensor ",
                           size_text(self.dims()), " at index ", at + i));
  }
}

// x[mask] = values, without counting the mask: each true place takes the next of the values' rows,
// or the same one where the values have a single row.
V masked_put(Lowering& l, V self, const std::vector<V>& indices, V values) {
  Builder& b = l.builder();
  size_t at = mask_place(types_of(indices));
  V mask = b.convert(indices[at], DType::kPred);
  auto place = static_cast<int64_t>(at), covered = int64_t{mask.rank()};
  IntList rows(self.dims().begin(), self.dims().begin() + place), map;
  rows.push_back(1);
  rows.insert(rows.end(), self.dims().begin() + place + covered, self.dims().end());
  int64_t behind = static_cast<int64_t>(rows.size()) - place - 1, row = values.rank() - 1 - behind;
  if (row >= 0) rows[at] = values.dim(static_cast<size_t>(row));
  V packed = b.broadcast_to(values, rows), wide;
  if (rows[at] == 1) {
    IntList ones = rows;
    ones.erase(ones.begin() + place);
    ones.insert(ones.begin() + place, static_cast<size_t>(covered), 1);
    wide = b.broadcast_to(b.reshape(packed, ones), self.dims());
  } else {
    wide = b.reshape(take_along_list(b, packed, mask_ranks(b, mask), place), self.dims());
  }
  for (int64_t d = 0; d < covered; ++d) map.push_back(place + d);
  V chosen = b.broadcast(mask, self.type.with(DType::kPred), map);
  return b.select(chosen, l.b_or("accumulate", false) ? b.add(self, wide) : wide, self);
}

}  // namespace

void index_tensor_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  std::vector<V> indices = l.list("indices");
  Indexing x = indexing_of(self.type, types_of(indices));
  if (x.mask) mask_unsupported("index");
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  if (x.axes.empty()) return out.push_back(self);
  hlo::GatherConfig c;
  c.offset_dims = window_dims(x);
  c.collapsed = x.axes;
  c.start_index_map = x.axes;
  c.slice_sizes = dims_of(self.type);
  for (int64_t d : x.axes) c.slice_sizes[static_cast<size_t>(d)] = 1;
  c.index_vector_dim = static_cast<int64_t>(x.batch.size());
  out.push_back(b.gather(self, index_vectors(b, self, indices, x), l.out(), c));
}

void index_put_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self"), values = a.type("values");
  if (self.dtype() != values.dtype())
    fail(Code::kRuntime, cat("Index put requires the source and destination dtypes match, got ",
                             eager_name(self.dtype()).scalar, " for the destination and ",
                             eager_name(values.dtype()).scalar, " for the source."));
  Indexing x = indexing_of(self, a.types("indices"));
  IntList have = dims_of(values);
  if (x.mask) check_mask(self, a.types("indices"));
  if (!x.mask) {
    for (int64_t d : x.axes)
      if (self.dim(static_cast<size_t>(d)) == 0 && std::ranges::find(x.batch, 0) == x.batch.end())
        fail(Code::kIndex, "index is out of bounds for dimension with size 0");
    // Leading ones of the values are dropped, as eager's expand of the indexing result does.
    while (have.size() > x.shape.size() && have[0] == 1) have.erase(have.begin());
    bool fits = have.size() <= x.shape.size();
    for (size_t i = 0; fits && i < have.size(); ++i)
      fits = have[i] == 1 || have[i] == x.shape[x.shape.size() - have.size() + i];
    if (!fits)
      fail(Code::kRuntime,
           cat("shape mismatch: value tensor of shape ", size_text(values.dims()),
               " cannot be broadcast to indexing result of shape ", size_text(x.shape)));
  }
  out.push_back(self);
}

// Of equal indices the last one stays, as in eager's loop on the CPU (GPUs leave that open).
void index_put_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self"), values = l.in("values");
  std::vector<V> indices = l.list("indices");
  Indexing x = indexing_of(self.type, types_of(indices));
  if (x.mask) {
    bool empty = self.type.numel() == 0 || values.type.numel() == 0;
    return out.push_back(empty ? self : masked_put(l, self, indices, values));
  }
  while (values.rank() > static_cast<int>(x.shape.size()))
    values = b.reshape(values, values.dims().subspan(1));
  values = b.broadcast_to(values, x.shape);
  if (self.type.numel() == 0 || values.type.numel() == 0) return out.push_back(self);
  bool accumulate = l.b_or("accumulate", false);
  if (x.axes.empty()) return out.push_back(accumulate ? b.add(self, values) : values);
  hlo::ScatterConfig c;
  c.update_window_dims = window_dims(x);
  c.inserted_window_dims = x.axes;
  c.scatter_dims_to_operand = x.axes;
  c.index_vector_dim = static_cast<int64_t>(x.batch.size());
  out.push_back(b.scatter(self, index_vectors(b, self, indices, x), values, c,
                          combine_region(accumulate ? Combine::kAdd : Combine::kSet)));
}

}  // namespace tp::ops
