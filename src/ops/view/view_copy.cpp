// View ops in the forms that make a tensor: *_copy, *_scatter and *_backward. Each is a function
// from the arguments to a ViewSpec over a contiguous tensor; reading, writing and spreading come
// from the resolver. Any thread.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/index/indexing.h"
#include "ops/view/shape_rows.h"
#include "ops/view/strided_view.h"
#include "ops/view/window.h"

namespace tp::ops {
namespace {

// The tensor itself, contiguous.
ViewSpec whole(Type t) {
  ViewSpec s{.base_stride = IntList(static_cast<size_t>(t.rank()), 1),
             .size = dims_of(t),
             .stride = {},
             .offset = 0,
             .dtype = t.dtype()};
  for (size_t d = s.size.size(); d-- > 1;) s.base_stride[d - 1] = s.base_stride[d] * s.size[d];
  s.stride = s.base_stride;
  return s;
}

// Contiguous strides for new sizes.
void reshape(ViewSpec& s, const IntList& size) {
  s.stride = whole(ir::make_type(s.dtype, size)).stride;
  s.size = size;
}

ViewSpec alias_view(const Args&, Type t) { return whole(t); }

// Sizes with one -1, as view() takes them.
IntList inferred_size(IntList size, int64_t numel) {
  std::string shape = size_text(size);
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i] == -1) {
      if (unknown >= 0) fail(Code::kRuntime, "only one dimension can be inferred");
      unknown = static_cast<int64_t>(i);
    } else if (size[i] < 0) {
      fail(Code::kRuntime,
           cat("invalid shape dimension ", size[i], " at index ", i, " of shape ", shape));
    } else {
      known *= size[i];
    }
  }
  bool fits = unknown >= 0 ? known > 0 && numel % known == 0 : known == numel;
  if (unknown >= 0 && known == 0 && numel == 0)
    fail(Code::kRuntime, cat("cannot reshape tensor of 0 elements into shape ", shape,
                             " because the unspecified dimension size -1 can be any value and is "
                             "ambiguous"));
  if (!fits) fail(Code::kRuntime, cat("shape '", shape, "' is invalid for input of size ", numel));
  if (unknown >= 0) size[static_cast<size_t>(unknown)] = numel / known;
  return size;
}
ViewSpec reshape_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  reshape(s, inferred_size(a.ints("size"), t.numel()));
  return s;
}

ViewSpec expand_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  expand(s, a.ints("size"), t.text());
  return s;
}
ViewSpec permute_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  permute(s, a.ints("dims"));
  return s;
}
ViewSpec transpose_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  transpose(s, a.i("dim0"), a.i("dim1"));
  return s;
}
ViewSpec t_view(const Args&, Type t) {
  ViewSpec s = whole(t);
  transpose_matrix(s);
  return s;
}

// --- dims that come and go

ViewSpec select_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  select(s, a.i("dim"), a.i("index"));
  return s;
}
ViewSpec squeeze_view(const Args&, Type t) {
  ViewSpec s = whole(t);
  squeeze(s);
  return s;
}
ViewSpec squeeze_dims_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  squeeze(s, a.ints("dim"));
  return s;
}
ViewSpec unsqueeze_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  unsqueeze(s, a.i("dim"));
  return s;
}

// --- parts of a dim

ViewSpec slice_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  auto given = [&](const char* name) {
    return a.has(name) ? std::optional(a.i(name)) : std::nullopt;
  };
  slice(s, a.i_or("dim", 0), given("start"), given("end"), a.i_or("step", 1));
  return s;
}
ViewSpec narrow_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  narrow(s, a.i("dim"), a.i("start"), a.i("length"));
  return s;
}
// Its kernel asks before it wraps the dim, in words of its own.
ViewSpec narrow_copy_view(const Args& a, Type t) {
  if (t.rank() > 0 && a.i("dim") >= t.rank())
    fail(Code::kRuntime,
         "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.");
  return narrow_view(a, t);
}
ViewSpec unfold_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  unfold(s, a.i("dimension"), a.i("size"), a.i("step"));
  return s;
}
ViewSpec diagonal_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  diagonal(s, a.i_or("offset", 0), a.i_or("dim1", 0), a.i_or("dim2", 1));
  return s;
}

// --- element types

ViewSpec dtype_view(const Args& a, Type t) {
  ViewSpec s = whole(t);
  s.dtype = a.dtype_or("dtype", t.dtype());
  view_dtype(s, t.dtype(), s.dtype);
  return s;
}
ViewSpec real_view(const Args&, Type t) {
  ViewSpec s = whole(t);
  view_as_real(s, t.dtype());
  s.dtype = ir::real_dtype(t.dtype());
  return s;
}
ViewSpec complex_view(const Args&, Type t) {
  ViewSpec s = whole(t);
  view_as_complex(s, t.dtype());
  if (t.dtype() == DType::kF16)
    fail(Code::kNotImplemented, "complex numbers of two halves (torch.complex32) have no XLA type",
         "convert the tensor to torch.float32 first");
  s.dtype = ir::complex_dtype(t.dtype());
  return s;
}

// --- the three forms

template <auto view>
void copy_type(const Args& a, std::vector<Type>& out) {
  ViewSpec s = view(a, a.type("self"));
  out.push_back(ir::make_type(s.dtype, s.size));
}
template <auto view>
void copy_lower(Lowering& l, std::vector<V>& out) {
  V self = l.in("self");
  out.push_back(read_view(l.builder(), self, view(l, self.type), l.inputs()));
}

template <auto view>
void scatter_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self"), src = a.type("src");
  ViewSpec s = view(a, self);
  if (!std::ranges::equal(s.size, src.dims()))
    fail(Code::kRuntime, cat("expected src to have a size equal to the slice of self. src size = ",
                             size_text(src.dims()), ", slice size = ", size_text(s.size)));
  out.push_back(self);
}
template <auto view>
void scatter_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  V src = b.convert(l.in("src"), self.dtype());
  out.push_back(write_view(b, self, src, view(l, self.type), l.inputs()));
}

template <auto view>
void backward_type(const Args& a, std::vector<Type>& out) {
  Type t = a.type("grad_output").with(a.ints("input_sizes"));
  view(a, t);
  out.push_back(t);
}
template <auto view>
void backward_lower(Lowering& l, std::vector<V>& out) {
  ViewSpec s = view(l, l.out());
  V grad = l.builder().broadcast_to(l.in("grad_output"), s.size);
  out.push_back(spread_view(l.builder(), l.out(), grad, s, l.inputs()));
}

// A view's arguments as the starts of its slices: of self, or of the tensor that a gradient is of.
template <auto view, ViewUse use>
void split(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values) {
  auto self = a.opt_type("self");
  Type root = self ? *self : a.type("grad_output").with(a.ints("input_sizes"));
  for (int64_t start : view_starts(view(a, root), root, use, structure))
    values.push_back({false, start});
}

// --- lists

// Sections of `dim`: one view each.
template <auto sections>
void list_type(const Args& a, std::vector<Type>& out) {
  for (const ViewSpec& s : sections(a, a.type("self")))
    out.push_back(ir::make_type(s.dtype, s.size));
}
template <auto sections>
void list_lower(Lowering& l, std::vector<V>& out) {
  V self = l.in("self");
  for (const ViewSpec& s : sections(l, self.type)) out.push_back(read_view(l.builder(), self, s));
}

std::vector<ViewSpec> sections_of(Type t, size_t d, const IntList& lengths) {
  std::vector<ViewSpec> out;
  int64_t at = 0;
  for (int64_t n : lengths) {
    ViewSpec s = whole(t);
    narrow_dim(s, d, at, n);
    out.push_back(std::move(s));
    at += n;
  }
  return out;
}
std::vector<ViewSpec> split_views(const Args& a, Type t) {
  if (t.rank() == 0) fail(Code::kRuntime, "split expects at least a 1-dimensional tensor");
  auto d = static_cast<size_t>(a.has("dim") ? a.dim("dim", t.rank()) : 0);
  int64_t size = a.i("split_size"), n = t.dim(d);
  if (size < 0)
    fail(Code::kRuntime,
         cat("split expects split_size be non-negative, but got split_size=", size));
  if (size == 0 && n != 0)
    fail(Code::kRuntime,
         cat("split_size can only be 0 if dimension size is 0, but got dimension size of ", n));
  IntList lengths;
  for (int64_t at = 0; at < n; at += size) lengths.push_back(std::min(size, n - at));
  if (lengths.empty()) lengths.push_back(0);
  return sections_of(t, d, lengths);
}
std::vector<ViewSpec> split_sizes_views(const Args& a, Type t) {
  if (t.rank() == 0) fail(Code::kRuntime, "split expects at least a 1-dimensional tensor");
  auto d = static_cast<size_t>(a.has("dim") ? a.dim("dim", t.rank()) : 0);
  IntList lengths = a.ints("split_sizes");
  int64_t sum = 0;
  for (int64_t n : lengths) sum += n;
  if (sum != t.dim(d))
    fail(Code::kRuntime, cat("split_with_sizes expects split_sizes to sum exactly to ", t.dim(d),
                             " (input tensor's size at dimension ", d,
                             "), but got split_sizes=", size_text(lengths)));
  return sections_of(t, d, lengths);
}
std::vector<ViewSpec> unbind_views(const Args& a, Type t) {
  if (t.rank() == 0)
    fail(Code::kIndex,
         cat("Dimension specified as ", a.i_or("dim", 0), " but tensor has no dimensions"));
  auto d = static_cast<size_t>(a.has("dim") ? a.dim("dim", t.rank()) : 0);
  auto views = sections_of(t, d, IntList(static_cast<size_t>(t.dim(d)), 1));
  for (ViewSpec& s : views) drop_dim(s, d);
  return views;
}

// A diagonal's tensor: the view's dims of the result are self's.
Type embedded(const Args& a, Type self, IntList* at) {
  int64_t rank = self.rank() + 1, offset = a.i_or("offset", 0);
  int64_t d1 = wrap_dim(a.i_or("dim1", -2), rank), d2 = wrap_dim(a.i_or("dim2", -1), rank);
  if (d1 == d2)
    fail(Code::kRuntime, cat("diagonal dimensions cannot be identical ", a.i_or("dim1", -2), ", ",
                             a.i_or("dim2", -1)));
  int64_t n = self.dims().back() + std::abs(offset);
  IntList size(self.dims().begin(), self.dims().end() - 1);
  size.insert(size.begin() + std::min(d1, d2), n);
  size.insert(size.begin() + std::max(d1, d2), n);
  *at = {offset, d1, d2};
  return self.with(size);
}
void diag_embed_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  IntList at;
  if (self.rank() == 0)
    fail(Code::kIndex, "Dimension specified as -1 but tensor has no dimensions");
  out.push_back(embedded(a, self, &at));
}
void diag_embed_lower(Lowering& l, std::vector<V>& out) {
  V self = l.in("self");
  IntList at;
  Type t = embedded(l, self.type, &at);
  ViewSpec s = whole(t);
  auto d1 = static_cast<size_t>(at[1]), d2 = static_cast<size_t>(at[2]);
  s.offset = at[0] >= 0 ? at[0] * s.stride[d2] : -at[0] * s.stride[d1];
  int64_t stride = s.stride[d1] + s.stride[d2];
  drop_dim(s, std::max(d1, d2));
  drop_dim(s, std::min(d1, d2));
  append_dim(s, self.dims().back(), stride);
  out.push_back(spread_view(l.builder(), t, self, s));
}

// `starts`: the arguments that say where the view begins and not how large it is.
template <auto view>
constexpr Row copy_row(const char* name, const char* starts = "") {
  return {.name = name,
          .type = copy_type<view>,
          .lower = copy_lower<view>,
          .general = starts,
          .split = *starts ? split<view, ViewUse::kRead> : nullptr};
}
template <auto view>
constexpr Row scatter_row(const char* name, const char* starts) {
  return {.name = name,
          .type = scatter_type<view>,
          .lower = scatter_lower<view>,
          .layout = Layout::kCopyOfFirst,
          .general = starts,
          .split = split<view, ViewUse::kWrite>};
}
template <auto view>
constexpr Row backward_row(const char* name, const char* starts) {
  return {.name = name,
          .type = backward_type<view>,
          .lower = backward_lower<view>,
          .general = starts,
          .split = split<view, ViewUse::kWrite>};
}
template <auto sections>
constexpr Row list_row(const char* name) {
  return {.name = name, .type = list_type<sections>, .lower = list_lower<sections>};
}

}  // namespace

Family view_copy_rows() {
  static const Row kRows[] = {
      copy_row<alias_view>("aten::alias_copy"),
      copy_row<alias_view>("aten::detach_copy"),
      copy_row<alias_view>("aten::lift_fresh_copy"),
      copy_row<reshape_view>("aten::view_copy"),
      copy_row<dtype_view>("aten::view_copy.dtype"),
      copy_row<expand_view>("aten::expand_copy"),
      copy_row<permute_view>("aten::permute_copy"),
      copy_row<transpose_view>("aten::transpose_copy.int"),
      copy_row<t_view>("aten::t_copy"),
      copy_row<select_view>("aten::select_copy.int", "index"),
      copy_row<squeeze_view>("aten::squeeze_copy"),
      copy_row<squeeze_dims_view>("aten::squeeze_copy.dim"),
      copy_row<squeeze_dims_view>("aten::squeeze_copy.dims"),
      copy_row<unsqueeze_view>("aten::unsqueeze_copy"),
      copy_row<slice_view>("aten::slice_copy.Tensor", "start end"),
      copy_row<narrow_copy_view>("aten::narrow_copy", "start"),
      copy_row<unfold_view>("aten::unfold_copy"),
      copy_row<diagonal_view>("aten::diagonal_copy", "offset"),
      copy_row<real_view>("aten::view_as_real_copy"),
      copy_row<complex_view>("aten::view_as_complex_copy"),
      list_row<split_views>("aten::split_copy.Tensor"),
      list_row<split_sizes_views>("aten::split_with_sizes_copy"),
      list_row<unbind_views>("aten::unbind_copy.int"),
      scatter_row<select_view>("aten::select_scatter", "index"),
      scatter_row<slice_view>("aten::slice_scatter", "start end"),
      scatter_row<diagonal_view>("aten::diagonal_scatter", "offset"),
      backward_row<select_view>("aten::select_backward", "index"),
      backward_row<slice_view>("aten::slice_backward", "start end"),
      backward_row<diagonal_view>("aten::diagonal_backward", "offset"),
      {.name = "aten::diag_embed", .type = diag_embed_type, .lower = diag_embed_lower},
  };
  return kRows;
}

}  // namespace tp::ops
