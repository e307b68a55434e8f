// The index family's rows, and its reading half: index_select, gather, take, nonzero_static.
// Out-of-range indices cannot raise inside a program; gathers clamp them. Any thread.
#include "base/error.h"
#include "base/text.h"
#include "ops/eager_text.h"
#include "ops/families.h"
#include "ops/indexing.h"
#include "ops/scatter.h"

namespace tp::ops {
namespace {

void index_select_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self"), index = a.type("index");
  int64_t dim = a.dim("dim", self.rank());
  if (index.rank() > 1) fail(Code::kIndex, "index_select(): Index is supposed to be a vector");
  if (self.rank() == 0 && index.numel() != 1)
    fail(Code::kRuntime, cat("index_select(): Index to scalar can have only 1 value, got ",
                             index.numel(), " value(s)"));
  if (index.dtype() != DType::kS64 && index.dtype() != DType::kS32)
    fail(Code::kRuntime, "index_select(): Expected dtype int32 or int64 for index");
  IntList dims = dims_of(self);
  if (dims.empty()) return out.push_back(self);
  int64_t& size = dims[static_cast<size_t>(dim)];
  if (size == 0 && index.numel() > 0)
    fail(Code::kRuntime, "index_select(): self indexing axis dim should be positive");
  size = index.numel();
  out.push_back(self.with(dims));
}
void index_select_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  if (self.rank() == 0) return out.push_back(self);
  int64_t dim = l.dim("dim", self.rank());
  V index = wrap_index(b, as_1d(b, l.in("index")), self.dim(static_cast<size_t>(dim)));
  out.push_back(take_along_list(b, self, index, dim));
}

void gather_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = at_least_1d(b, l.in("self")), index = at_least_1d(b, l.in("index"));
  int64_t dim = l.dim("dim", self.rank());
  index = wrap_index(b, index, self.dim(static_cast<size_t>(dim)));
  out.push_back(b.reshape(gather_along(b, self, index, dim), l.out().dims()));
}

void take_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self"), index = a.type("index");
  if (index.dtype() != DType::kS64)
    fail(Code::kRuntime, cat("take(): Expected a long tensor for index, but got ",
                             eager_name(index.dtype()).scalar));
  if (self.numel() == 0 && index.numel() != 0)
    fail(Code::kIndex, "take(): tried to take from an empty tensor");
  out.push_back(self.with(index.dims()));
}
void take_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = as_1d(b, l.in("self")), index = as_1d(b, l.in("index"));
  V got = take_along_list(b, self, wrap_index(b, index, self.dim(0)), 0);
  out.push_back(b.reshape(got, l.out().dims()));
}

void nonzero_static_type(const Args& a, std::vector<Type>& out) {
  if (a.i("size") < 0)
    fail(Code::kRuntime, "nonzero_static: 'size' must be an non-negative integer");
  out.push_back(ir::make_type(DType::kS64, IntList{a.i("size"), a.type("self").rank()}));
}
// The k-th nonzero's coordinates go to row k; rows past `size` are dropped by the scatter.
void nonzero_static_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  V result = b.constant_int(l.i_or("fill_value", -1), l.out());
  int64_t n = self.type.numel(), size = l.out().dim(0);
  if (n == 0 || l.out().numel() == 0) return out.push_back(result);
  V mask = as_1d(b, b.convert(self, DType::kPred));
  Type list = ir::make_type(DType::kS64, IntList{n});
  V row = b.sub(running_sum(b, b.convert(mask, DType::kS64), 0), 1);
  row = b.select(mask, row, b.constant_int(size, list));
  std::vector<V> coordinates;
  IntList column{n, 1};
  for (int64_t d = 0; d < self.rank(); ++d)
    coordinates.push_back(b.reshape(positions(b, self.dims(), d, DType::kS64), column));
  V update = b.concat(coordinates, 1);
  out.push_back(scatter_list(b, result, row, update, 0, Combine::kSet));
}

}  // namespace

Family index() {
  static const Row kRows[] = {
      {.name = "aten::index_select", .type = index_select_type, .lower = index_select_lower},
      {.name = "aten::gather", .lower = gather_lower},
      {.name = "aten::take", .type = take_type, .lower = take_lower},
      {.name = "aten::nonzero_static", .type = nonzero_static_type, .lower = nonzero_static_lower},
      {.name = "aten::index.Tensor", .lower = index_tensor_lower},
      {.name = "aten::_index_put_impl",
       .type = index_put_type,
       .lower = index_put_lower,
       .also = "aten::_index_put_impl_"},
      {.name = "aten::index_put", .type = index_put_type, .lower = index_put_lower},
      {.name = "aten::scatter.src", .lower = scatter_src_lower},
      {.name = "aten::scatter.value", .lower = scatter_value_lower},
      {.name = "aten::scatter.reduce", .lower = scatter_reduce_lower},
      {.name = "aten::scatter.value_reduce", .lower = scatter_value_reduce_lower},
      {.name = "aten::scatter_add", .lower = scatter_add_lower},
      {.name = "aten::scatter_reduce.two", .lower = scatter_reduce_two_lower},
      {.name = "aten::index_add", .lower = index_add_lower},
      {.name = "aten::index_copy", .lower = index_copy_lower},
      {.name = "aten::index_reduce", .lower = index_reduce_lower},
      {.name = "aten::index_fill.int_Scalar", .type = index_fill_type, .lower = index_fill_lower},
      {.name = "aten::index_fill.int_Tensor", .type = index_fill_type, .lower = index_fill_lower},
      {.name = "aten::put", .type = put_type, .lower = put_lower},
      {.name = "aten::masked_scatter", .type = masked_scatter_type, .lower = masked_scatter_lower},
      {.name = "aten::masked_scatter_backward",
       .type = masked_scatter_backward_type,
       .lower = masked_scatter_backward_lower},
  };
  return kRows;
}

}  // namespace tp::ops
