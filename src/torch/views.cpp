// View operators: pure metadata. A view is a new window (sizes, strides, offset) onto the same
// Alias; no node is recorded until somebody reads it. Checks and their words are eager's
// (aten/src/ATen/native/TensorShape.cpp).
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/alias_native.h>

#include "base/text.h"
#include "torch/checks.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

using at::DimVector;
using at::IntArrayRef;
using at::Tensor;

// FakeTensor's elem and other foreign tensors with the XLA key have no Alias: PyTorch's own code
// serves them.
#define OURS_OR(t, other)        \
  Impl* self_ = impl_or_null(t); \
  if (!self_) [[unlikely]]       \
    return other;                \
  Impl& self = *self_

Tensor foreign(const Tensor& t) {
  TORCH_CHECK(false, "device xla: a view of a foreign tensor implementation, of shape ", t.sizes(),
              ", reached the backend. try: keep fake and wrapped tensors inside their own mode");
}

Tensor alias(const Tensor& t) {
  OURS_OR(t, at::native::alias(t));
  return make_view(self, t.sizes(), t.strides(), t.storage_offset());
}

// As eager does it: the copy of an inference tensor may be written outside that mode.
Tensor detach(const Tensor& t) {
  OURS_OR(t, at::native::alias(t));
  return Tensor(self.shallow_copy_and_detach(c10::VariableVersion(0), false));
}

Tensor strided(const Tensor& t, IntArrayRef size, IntArrayRef stride,
               std::optional<int64_t> offset) {
  OURS_OR(t, foreign(t));
  int64_t at = offset.value_or(t.storage_offset());
  check_window(*self.alias(), t.element_size(), size, stride, at);
  return make_view(self, size, stride, at);
}

const Tensor& strided_(const Tensor& t, IntArrayRef size, IntArrayRef stride,
                       std::optional<int64_t> offset) {
  Tensor v = strided(t, size, stride, offset);
  Impl& self = impl_of(t);
  self.set_sizes_and_strides(size, stride, v.storage_offset());
  self.refresh_whole();
  return t;
}

Tensor view(const Tensor& t, IntArrayRef size) {
  OURS_OR(t, foreign(t));
  DimVector want = at::infer_size_dv(size, t.numel());
  if (plain_strides(self)) [[likely]] {
    auto impl = c10::make_intrusive<Impl>(self, t.dtype());
    impl->set_sizes_contiguous(want);
    if (t.storage_offset()) impl->set_storage_offset(t.storage_offset());
    impl->refresh_whole();
    return Tensor(std::move(impl));
  }
  auto stride = at::detail::computeStride(t.sizes(), t.strides(), want);
  TORCH_CHECK(stride.has_value(),
              "view size is not compatible with input tensor's size and stride (at least one "
              "dimension spans across two "
              "contiguous subspaces). Use .reshape(...) instead.");
  return make_view(self, want, *stride, t.storage_offset());
}

Tensor reshape_alias(const Tensor& t, IntArrayRef size, IntArrayRef stride) {
  OURS_OR(t, foreign(t));
  return make_view(self, size, stride, t.storage_offset());
}

Tensor stretch(const Tensor& t, IntArrayRef size, bool) {
  OURS_OR(t, foreign(t));
  TORCH_CHECK(size.size() >= static_cast<size_t>(t.dim()), "expand(", t.toString(), "{", t.sizes(),
              "}, size=", size, "): the number of sizes provided (", size.size(),
              ") must be greater or equal to the number of dimensions in the tensor (", t.dim(),
              ")");
  auto g = at::inferExpandGeometry_dimvector(t.sizes(), t.strides(), size);
  return make_view(self, g.sizes, g.strides, t.storage_offset());
}

Tensor permute(const Tensor& t, IntArrayRef dims) {
  OURS_OR(t, foreign(t));
  int64_t n = t.dim();
  TORCH_CHECK(n == static_cast<int64_t>(dims.size()),
              "permute(sparse_coo): number of dimensions in the tensor input does not match the "
              "length of the desired ordering of dimensions i.e. input.dim() = ",
              n, " is not equal to len(dims) = ", dims.size());
  DimVector sizes(n), strides(n);
  std::vector<bool> seen(n);
  for (int64_t i = 0; i < n; ++i) {
    int64_t d = at::maybe_wrap_dim(dims[i], n);
    TORCH_CHECK(!seen[d], "permute(): duplicate dims are not allowed.");
    seen[d] = true;
    sizes[i] = t.size(d);
    strides[i] = t.stride(d);
  }
  return make_view(self, sizes, strides, t.storage_offset());
}

Tensor swap_dims(const Tensor& t, int64_t a, int64_t b) {
  OURS_OR(t, foreign(t));
  a = at::maybe_wrap_dim(a, t.dim());
  b = at::maybe_wrap_dim(b, t.dim());
  DimVector sizes(t.sizes()), strides(t.strides());
  if (a != b) {
    std::swap(sizes[a], sizes[b]);
    std::swap(strides[a], strides[b]);
  }
  return make_view(self, sizes, strides, t.storage_offset());
}

Tensor t_(const Tensor& t) {
  TORCH_CHECK(t.dim() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ", t.dim(),
              "D");
  return swap_dims(t, 0, t.dim() < 2 ? 0 : 1);
}

Tensor slice(const Tensor& t, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
             int64_t step) {
  OURS_OR(t, foreign(t));
  TORCH_CHECK_INDEX(t.dim() != 0, "slice() cannot be applied to a 0-dim tensor.");
  dim = at::maybe_wrap_dim(dim, t.dim());
  TORCH_CHECK(step > 0, "slice step must be positive");
  DimVector sizes(t.sizes()), strides(t.strides());
  int64_t n = sizes[dim];
  auto clamp = [n](int64_t v) { return std::min(std::max<int64_t>(v < 0 ? v + n : v, 0), n); };
  int64_t from = clamp(start.value_or(0));
  int64_t to = std::max(end ? clamp(*end) : n, from);
  sizes[dim] = (to - from + step - 1) / step;
  int64_t offset = t.storage_offset() + from * strides[dim];
  strides[dim] *= step;
  return make_view(self, sizes, strides, offset);
}

Tensor select(const Tensor& t, int64_t dim, int64_t index) {
  OURS_OR(t, foreign(t));
  TORCH_CHECK_INDEX(t.dim() != 0, "select() cannot be applied to a 0-dim tensor.");
  dim = at::maybe_wrap_dim(dim, t.dim());
  int64_t n = t.size(dim);
  TORCH_CHECK_INDEX(index >= -n && index < n, "select(): index ", index,
                    " out of range for tensor of size ", t.sizes(), " at dimension ", dim);
  if (index < 0) index += n;
  DimVector sizes(t.sizes()), strides(t.strides());
  int64_t offset = t.storage_offset() + index * strides[dim];
  sizes.erase(sizes.begin() + dim);
  strides.erase(strides.begin() + dim);
  return make_view(self, sizes, strides, offset);
}

template <class Drop>
Tensor squeeze_if(const Tensor& t, Drop&& drop) {
  OURS_OR(t, foreign(t));
  DimVector sizes, strides;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) == 1 && drop(d)) continue;
    sizes.push_back(t.size(d));
    strides.push_back(t.stride(d));
  }
  return make_view(self, sizes, strides, t.storage_offset());
}

Tensor squeeze(const Tensor& t) {
  return squeeze_if(t, [](int64_t) { return true; });
}
Tensor squeeze_dim(const Tensor& t, int64_t dim) {
  dim = at::maybe_wrap_dim(dim, t.dim());
  return squeeze_if(t, [dim](int64_t d) { return d == dim; });
}
Tensor squeeze_dims(const Tensor& t, IntArrayRef dims) {
  auto mask = at::dim_list_to_bitset(dims, t.dim());
  return squeeze_if(t, [&](int64_t d) { return mask[d]; });
}

Tensor unsqueeze(const Tensor& t, int64_t dim) {
  OURS_OR(t, foreign(t));
  dim = at::maybe_wrap_dim(dim, t.dim() + 1);
  DimVector sizes(t.sizes()), strides(t.strides());
  int64_t stride = dim >= t.dim() ? 1 : sizes[dim] * strides[dim];
  sizes.insert(sizes.begin() + dim, 1);
  strides.insert(strides.begin() + dim, stride);
  return make_view(self, sizes, strides, t.storage_offset());
}

Tensor unfold(const Tensor& t, int64_t dim, int64_t size, int64_t step) {
  OURS_OR(t, foreign(t));
  dim = at::maybe_wrap_dim(dim, t.dim(), /*wrap_scalar=*/true);
  int64_t n = t.dim() == 0 ? 1 : t.size(dim);
  TORCH_CHECK(size <= n, "maximum size for tensor at dimension ", dim, " is ", n, " but size is ",
              size);
  TORCH_CHECK(step > 0, "step is ", step, " but must be > 0");
  TORCH_CHECK(size >= 0, "size is ", size, " but must be >= 0");
  DimVector sizes(t.sizes()), strides(t.strides());
  int64_t stride = t.dim() == 0 ? 1 : strides[dim];
  if (t.dim()) {
    sizes[dim] = (n - size) / step + 1;
    strides[dim] = step * stride;
  }
  sizes.push_back(size);
  strides.push_back(stride);
  return make_view(self, sizes, strides, t.storage_offset());
}

Tensor diagonal(const Tensor& t, int64_t offset, int64_t dim1, int64_t dim2) {
  OURS_OR(t, foreign(t));
  int64_t a = at::maybe_wrap_dim(dim1, t.dim()), b = at::maybe_wrap_dim(dim2, t.dim());
  TORCH_CHECK(a != b, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  DimVector sizes(t.sizes()), strides(t.strides());
  int64_t n =
      offset >= 0 ? std::min(sizes[a], sizes[b] - offset) : std::min(sizes[a] + offset, sizes[b]);
  n = std::max<int64_t>(n, 0);
  int64_t at = t.storage_offset();
  if (n) at += offset >= 0 ? offset * strides[b] : -offset * strides[a];
  int64_t stride = strides[a] + strides[b];
  for (int64_t d : {std::max(a, b), std::min(a, b)}) {
    sizes.erase(sizes.begin() + d);
    strides.erase(strides.begin() + d);
  }
  sizes.push_back(n);
  strides.push_back(stride);
  return make_view(self, sizes, strides, at);
}

// --- views of another element type: the same memory, counted in other elements
// -----------------------------

Tensor view_dtype(const Tensor& t, at::ScalarType dtype) {
  OURS_OR(t, foreign(t));
  to_dtype(dtype);  // or TypeError
  int64_t have = static_cast<int64_t>(t.element_size()),
          want = static_cast<int64_t>(c10::elementSize(dtype));
  TORCH_CHECK(!t.is_conj(),
              "torch.Tensor.view is not supported for conjugate view tensors when converting to a "
              "different dtype.");
  TORCH_CHECK(!t.is_neg(),
              "torch.Tensor.view is not supported for tensors with negative bit set when "
              "converting to a different dtype.");
  DimVector sizes(t.sizes()), strides(t.strides());
  int64_t offset = t.storage_offset();
  if (have != want) {
    TORCH_CHECK(t.dim() != 0, "self.dim() cannot be 0 to view ", t.scalar_type(), " as ", dtype,
                " (different element sizes)");
    TORCH_CHECK(strides.back() == 1, "self.stride(-1) must be 1 to view ", t.scalar_type(), " as ",
                dtype, " (different element sizes), but got ", strides.back());
  }
  auto scale = [&](int64_t v, const std::string& what) {
    TORCH_CHECK(v * have % want == 0, "self.", what, " must be divisible by ", want / have,
                " to view ", t.scalar_type(), " as ", dtype, " (different element sizes), but got ",
                v);
    return v * have / want;
  };
  if (have != want) {
    sizes.back() = scale(sizes.back(), "size(-1)");
    offset = scale(offset, "storage_offset()");
    for (size_t i = 0; i + 1 < strides.size(); ++i)
      strides[i] = scale(strides[i], cat("stride(", i, ")"));
  }
  // A tensor of its own to autograd, as eager's is: an inference tensor where that mode is on.
  auto impl =
      c10::make_intrusive<Impl>(self.unsafe_storage(), caffe2::TypeMeta::fromScalarType(dtype));
  impl->set_sizes_and_strides(sizes, strides, offset);
  impl->refresh_whole();
  return Tensor(std::move(impl));
}

Tensor view_as_real(const Tensor& t) {
  OURS_OR(t, foreign(t));
  TORCH_CHECK(t.is_complex(), "view_as_real is only supported for complex tensors");
  TORCH_CHECK(!t.is_conj(),
              "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the "
              "conjugate tensor so you can view it as real, use self.resolve_conj(); however, be "
              "warned that the resulting tensor will NOT alias the original.");
  DimVector sizes(t.sizes()), strides;
  for (int64_t s : t.strides()) strides.push_back(2 * s);
  sizes.push_back(2);
  strides.push_back(1);
  return make_view(self, sizes, strides, 2 * t.storage_offset(),
                   caffe2::TypeMeta::fromScalarType(c10::toRealValueType(t.scalar_type())));
}

Tensor view_as_complex(const Tensor& t) {
  OURS_OR(t, foreign(t));
  at::ScalarType from = t.scalar_type();
  TORCH_CHECK(from == at::kFloat || from == at::kDouble || from == at::kHalf,
              "view_as_complex is only supported for half, float and double tensors, but got a "
              "tensor of scalar type: ",
              from);
  TORCH_CHECK(t.dim() != 0, "Input tensor must have one or more dimensions");
  TORCH_CHECK(t.size(-1) == 2, "Tensor must have a last dimension of size 2");
  TORCH_CHECK(t.stride(-1) == 1, "Tensor must have a last dimension with stride 1");
  DimVector sizes(t.sizes().slice(0, t.dim() - 1)), strides;
  for (int64_t i = 0; i + 1 < t.dim(); ++i) {
    TORCH_CHECK(t.stride(i) % 2 == 0 || t.size(i) == 1,
                "Tensor must have a stride divisible by 2 for all but last dimension");
    strides.push_back(t.stride(i) / 2);
  }
  TORCH_CHECK(t.storage_offset() % 2 == 0, "Tensor must have a storage_offset divisible by 2");
  at::ScalarType to = c10::toComplexType(from);
  to_dtype(to);  // of half floats there is none: TypeError
  return make_view(self, sizes, strides, t.storage_offset() / 2,
                   caffe2::TypeMeta::fromScalarType(to));
}

#undef OURS_OR

// --- copies of strided views ---------------------------------------------------------------------

Tensor strided_copy(const Tensor& self, IntArrayRef size, IntArrayRef stride,
                    std::optional<int64_t> offset) {
  return self.as_strided(size, stride, offset).clone(at::MemoryFormat::Contiguous);
}

// A copy of all the memory behind self, seen through self's window: eager's clone_preserve_strides.
Tensor clone_in_place(const Tensor& self) {
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) return self.clone();
  int64_t bytes = impl_of(self).alias()->type.bytes();
  Tensor all = self.as_strided({bytes / static_cast<int64_t>(self.itemsize())}, {1}, 0).clone();
  return all.as_strided(self.sizes(), self.strides(), self.storage_offset());
}

Tensor strided_scatter(const Tensor& self, const Tensor& src, IntArrayRef size, IntArrayRef stride,
                       std::optional<int64_t> offset) {
  return scatter_in_place(self, src,
                          [&](const Tensor& out) { return out.as_strided(size, stride, offset); });
}

}  // namespace

Tensor scatter_in_place(const Tensor& self, const Tensor& src,
                        c10::function_ref<Tensor(const Tensor&)> view) {
  Tensor out = clone_in_place(self), slice = view(out);
  TORCH_CHECK(slice.sizes() == src.sizes(),
              "expected src to have a size equal to the slice of self. src size = ", src.sizes(),
              ", slice size = ", slice.sizes());
  slice.copy_(src);
  return out;
}

void register_views(torch::Library& m) {
  m.impl("alias", TP_FN(alias));
  m.impl("detach", TP_FN(detach));
  m.impl("as_strided", TP_FN(strided));
  m.impl("as_strided_", TP_FN(strided_));
  m.impl("as_strided_copy", TP_FN(strided_copy));
  m.impl("as_strided_scatter", TP_FN(strided_scatter));
  m.impl("view", TP_FN(view));
  m.impl("_unsafe_view", TP_FN(view));
  m.impl("_reshape_alias", TP_FN(reshape_alias));
  m.impl("expand", TP_FN(stretch));
  m.impl("permute", TP_FN(permute));
  m.impl("transpose.int", TP_FN(swap_dims));
  m.impl("t", TP_FN(t_));
  m.impl("slice.Tensor", TP_FN(slice));
  m.impl("select.int", TP_FN(select));
  m.impl("squeeze", TP_FN(squeeze));
  m.impl("squeeze.dim", TP_FN(squeeze_dim));
  m.impl("squeeze.dims", TP_FN(squeeze_dims));
  m.impl("unsqueeze", TP_FN(unsqueeze));
  m.impl("unfold", TP_FN(unfold));
  m.impl("diagonal", TP_FN(diagonal));
  m.impl("view.dtype", TP_FN(view_dtype));
  m.impl("view_as_real", TP_FN(view_as_real));
  m.impl("view_as_complex", TP_FN(view_as_complex));
}

}  // namespace tp::torch_room
