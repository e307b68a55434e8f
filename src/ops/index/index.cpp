// The index family's rows, and its reading half: index_select, gather, take, nonzero_static.
// Out-of-range indices cannot raise inside a program; gathers clamp them. What the host still knows
// is checked where the op is recorded (torch/index_check.h). Any thread.
#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/index/index_words.h"
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
  V result = number_or(l, "fill_value", l.out(), -1);
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
// --- what eager refuses

std::string same_as_self(DType, DType) {
  return "index_select(): self and result must have the same scalar type";
}
std::string take_words(DType want, DType have) {
  return cat("take(): self and out expected to have the same dtype, but got self.dtype = ",
             eager_name(want).scalar, " and out.dtype = ", eager_name(have).scalar);
}

std::string of_dim(const BadIndex& i) {
  return cat("index ", i.value, " is out of bounds for dimension ", i.dim, " with size ", i.size);
}
std::string of_copy(const BadIndex& i) { return cat("index_copy_(): ", of_dim(i)); }
std::string of_elements(const BadIndex& i) {
  return cat("out of range: tried to access index ", i.value, " on a tensor of ", i.size,
             " elements.");
}
template <std::string (*words)(const BadIndex&)>
void as_runtime_error(const BadIndex& i) {
  fail(Code::kRuntime, words(i));
}
void is_ignored(const BadIndex&) {}

using Size = IndexRule::Size;
constexpr IndexRule kSelected = {
    .argument = "index", .size = Size::kDim, .words = in_self, .words_of_later_dims = in_data};
constexpr IndexRule kInDim = {.argument = "index", .size = Size::kDim, .words = in_self};
constexpr IndexRule kCopied = {.argument = "index",
                               .size = Size::kDim,
                               .words = of_copy,
                               .by_slices = true,
                               .nothing = as_runtime_error<of_copy>};
constexpr IndexRule kFilled = {.argument = "index",
                               .size = Size::kDim,
                               .negative = true,
                               .words = of_dim,
                               .by_slices = true,
                               .nothing = as_runtime_error<of_dim>};
constexpr IndexRule kPlaces = {
    .argument = "index", .size = Size::kDim, .code = Code::kRuntime, .words = of_dim};
constexpr IndexRule kAdded = {.argument = "index",
                              .size = Size::kDim,
                              .code = Code::kRuntime,
                              .words = of_dim,
                              .words_of_vectors = in_self,
                              .by_slices = true,
                              .nothing = is_ignored};
constexpr IndexRule kElements = {
    .argument = "index", .size = Size::kNumel, .negative = true, .words = of_elements};
constexpr IndexRule kEachDim = {
    .argument = "indices", .size = Size::kEachDim, .negative = true, .words = of_dim};

constexpr Row writes(Row r) {
  r.layout = Layout::kCopyOfFirst;
  return r;
}
constexpr Row scatters(Row r) {
  r.layout = Layout::kCopyOfFirst;
  r.check = check_places;
  r.iterates = Iterates::kYes;
  r.index = &kPlaces;
  return r;
}

}  // namespace

Family index() {
  static const Row kRows[] = {
      {.name = "aten::index_select",
       .type = index_select_type,
       .lower = index_select_lower,
       .iterates = Iterates::kYes,
       .out = {.check = out_wants<same_as_self>, .may_alias = false},
       .index = &kSelected},
      {.name = "aten::gather",
       .lower = gather_lower,
       .check = check_places,
       .out = {.may_alias = false},
       .index = &kPlaces},
      {.name = "aten::take",
       .type = take_type,
       .lower = take_lower,
       .iterates = Iterates::kYes,
       .out = {.check = out_wants<take_words>, .may_alias = false},
       .index = &kElements},
      {.name = "aten::nonzero_static",
       .type = nonzero_static_type,
       .lower = nonzero_static_lower,
       .general = "fill_value"},
      {.name = "aten::index.Tensor",
       .lower = index_tensor_lower,
       .masks = Masks::kRead,
       .index = &kEachDim},
      writes({.name = "aten::_index_put_impl",
              .type = index_put_type,
              .lower = index_put_lower,
              .also = "aten::_index_put_impl_",
              .masks = Masks::kWritten,
              .index = &kEachDim}),
      writes({.name = "aten::index_put",
              .type = index_put_type,
              .lower = index_put_lower,
              .index = &kEachDim}),
      scatters({.name = "aten::scatter.src", .lower = scatter_src_lower}),
      scatters({.name = "aten::scatter.value", .lower = scatter_value_lower}),
      scatters({.name = "aten::scatter.reduce", .lower = scatter_reduce_lower}),
      scatters({.name = "aten::scatter.value_reduce", .lower = scatter_value_reduce_lower}),
      scatters({.name = "aten::scatter_add", .lower = scatter_add_lower}),
      scatters({.name = "aten::scatter_reduce.two",
                .lower = scatter_reduce_two_lower,
                .kernels = {{"scatter_gather_tensor_cpu_reduce_mean",
                             takes::kNoBools | takes::kEmpty, "self", "reduce", "mean"},
                            {"scatter_gather_tensor_cpu_reduce_amax", takes::kReals | takes::kEmpty,
                             "self", "reduce", "amax"},
                            {"scatter_gather_tensor_cpu_reduce_amin", takes::kReals | takes::kEmpty,
                             "self", "reduce", "amin"}}}),
      writes({.name = "aten::index_add", .lower = index_add_lower, .index = &kAdded}),
      writes({.name = "aten::index_copy", .lower = index_copy_lower, .index = &kCopied}),
      writes({.name = "aten::index_reduce",
              .lower = index_reduce_lower,
              .kernels = {{"index_func_", takes::kNumbers, "self"}},
              .index = &kInDim}),
      writes({.name = "aten::index_fill.int_Scalar",
              .type = index_fill_type,
              .lower = index_fill_lower,
              .index = &kFilled}),
      writes({.name = "aten::index_fill.int_Tensor",
              .type = index_fill_type,
              .lower = index_fill_lower,
              .index = &kFilled}),
      writes({.name = "aten::put", .type = put_type, .lower = put_lower, .index = &kElements}),
      {.name = "aten::masked_scatter", .type = masked_scatter_type, .lower = masked_scatter_lower},
      {.name = "aten::masked_scatter_backward",
       .type = masked_scatter_backward_type,
       .lower = masked_scatter_backward_lower},
  };
  return kRows;
}

}  // namespace tp::ops
