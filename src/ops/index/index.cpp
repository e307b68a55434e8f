// The index family's rows, and its reading half: index_select, gather, take, nonzero_static.
// Out-of-range indices cannot raise inside a program; gathers clamp them. What the host still knows
// is checked where the op is recorded (torch/index_check.h). Any thread.
#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/index/indexing.h"
#include "ops/index/scatter.h"

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
  if (size == 0 && index.numel() > 0 && self.rank() == 1)
    fail(Code::kIndex, "index out of range in self");
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

// Nothing can be in bounds of a dim of size 0: known without reading the index.
void check_places(const Args& a) {
  Type self = a.type("self"), index = a.type("index");
  int64_t dim = a.dim("dim", self.rank());
  if (self.rank() > 0 && self.dim(static_cast<size_t>(dim)) == 0 && index.numel() > 0)
    fail(Code::kRuntime, cat("index 0 is out of bounds for dimension ", dim, " with size 0"));
}

// A write into a copy of self, whose strides it keeps.
constexpr Row writes(const char* name, TypeRule type, LowerRule lower, const char* also = "") {
  return {.name = name, .type = type, .lower = lower, .layout = Layout::kCopyOfFirst, .also = also};
}
constexpr Row scatters(const char* name, LowerRule lower) {
  return {.name = name, .lower = lower, .layout = Layout::kCopyOfFirst, .check = check_places};
}
constexpr Row reads(const char* name, TypeRule type, LowerRule lower) {
  return {.name = name, .type = type, .lower = lower};
}

}  // namespace

Family index() {
  static const Row kRows[] = {
      reads("aten::index_select", index_select_type, index_select_lower),
      {.name = "aten::gather", .lower = gather_lower, .check = check_places},
      reads("aten::take", take_type, take_lower),
      reads("aten::nonzero_static", nonzero_static_type, nonzero_static_lower),
      reads("aten::index.Tensor", nullptr, index_tensor_lower),
      writes("aten::_index_put_impl", index_put_type, index_put_lower, "aten::_index_put_impl_"),
      writes("aten::index_put", index_put_type, index_put_lower),
      scatters("aten::scatter.src", scatter_src_lower),
      scatters("aten::scatter.value", scatter_value_lower),
      scatters("aten::scatter.reduce", scatter_reduce_lower),
      scatters("aten::scatter.value_reduce", scatter_value_reduce_lower),
      scatters("aten::scatter_add", scatter_add_lower),
      scatters("aten::scatter_reduce.two", scatter_reduce_two_lower),
      writes("aten::index_add", nullptr, index_add_lower),
      writes("aten::index_copy", nullptr, index_copy_lower),
      writes("aten::index_reduce", nullptr, index_reduce_lower),
      writes("aten::index_fill.int_Scalar", index_fill_type, index_fill_lower),
      writes("aten::index_fill.int_Tensor", index_fill_type, index_fill_lower),
      writes("aten::put", put_type, put_lower),
      reads("aten::masked_scatter", masked_scatter_type, masked_scatter_lower),
      reads("aten::masked_scatter_backward", masked_scatter_backward_type,
            masked_scatter_backward_lower),
  };
  return kRows;
}

}  // namespace tp::ops
