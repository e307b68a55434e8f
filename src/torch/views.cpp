// View operators: pure metadata. A view is a new window (sizes, strides, offset) onto the same
// Alias; no node is recorded until somebody reads it. The arithmetic, with eager's checks, is that
// of ops/view/window.h, or a function that PyTorch exports.
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/alias_native.h>

#include "ops/view/window.h"
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

struct TensorWindow {
  DimVector size, stride;
  int64_t offset;
};

// The tensor's window, as `change` leaves it.
template <class Change>
Tensor viewed(const Tensor& t, Change&& change) {
  OURS_OR(t, foreign(t));
  TensorWindow w{DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset()};
  change(w);
  return make_view(self, w.size, w.stride, w.offset);
}

Tensor permute(const Tensor& t, IntArrayRef dims) {
  return viewed(t, [&](TensorWindow& w) { ops::permute(w, span_of(dims)); });
}
Tensor transpose(const Tensor& t, int64_t a, int64_t b) {
  return viewed(t, [&](TensorWindow& w) { ops::transpose(w, a, b); });
}
Tensor t_(const Tensor& t) {
  return viewed(t, [](TensorWindow& w) { ops::transpose_matrix(w); });
}
Tensor slice(const Tensor& t, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
             int64_t step) {
  return viewed(t, [&](TensorWindow& w) { ops::slice(w, dim, start, end, step); });
}
Tensor select(const Tensor& t, int64_t dim, int64_t index) {
  return viewed(t, [&](TensorWindow& w) { ops::select(w, dim, index); });
}
Tensor squeeze(const Tensor& t) {
  return viewed(t, [](TensorWindow& w) { ops::squeeze(w); });
}
Tensor squeeze_dim(const Tensor& t, int64_t dim) {
  return viewed(t, [&](TensorWindow& w) { ops::squeeze(w, {&dim, 1}); });
}
Tensor squeeze_dims(const Tensor& t, IntArrayRef dims) {
  return viewed(t, [&](TensorWindow& w) { ops::squeeze(w, span_of(dims)); });
}
Tensor unsqueeze(const Tensor& t, int64_t dim) {
  return viewed(t, [&](TensorWindow& w) { ops::unsqueeze(w, dim); });
}
Tensor unfold(const Tensor& t, int64_t dim, int64_t size, int64_t step) {
  return viewed(t, [&](TensorWindow& w) { ops::unfold(w, dim, size, step); });
}
Tensor diagonal(const Tensor& t, int64_t offset, int64_t dim1, int64_t dim2) {
  return viewed(t, [&](TensorWindow& w) { ops::diagonal(w, offset, dim1, dim2); });
}

// --- views of another element type: the same memory, counted in other elements -------------------

Tensor view_dtype(const Tensor& t, at::ScalarType dtype) {
  OURS_OR(t, foreign(t));
  ir::DType to = to_dtype(dtype);  // or TypeError
  TORCH_CHECK(!t.is_conj(),
              "torch.Tensor.view is not supported for conjugate view tensors when converting to a "
              "different dtype.");
  TORCH_CHECK(!t.is_neg(),
              "torch.Tensor.view is not supported for tensors with negative bit set when "
              "converting to a different dtype.");
  TensorWindow w{DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset()};
  ops::view_dtype(w, to_dtype(t.scalar_type()), to);
  // A tensor of its own to autograd, as eager's is: an inference tensor where that mode is on.
  auto impl =
      c10::make_intrusive<Impl>(self.unsafe_storage(), caffe2::TypeMeta::fromScalarType(dtype));
  impl->set_sizes_and_strides(w.size, w.stride, w.offset);
  impl->refresh_whole();
  return Tensor(std::move(impl));
}

Tensor view_as_real(const Tensor& t) {
  OURS_OR(t, foreign(t));
  TensorWindow w{DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset()};
  ops::view_as_real(w, to_dtype(t.scalar_type()));
  TORCH_CHECK(!t.is_conj(),
              "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the "
              "conjugate tensor so you can view it as real, use self.resolve_conj(); however, be "
              "warned that the resulting tensor will NOT alias the original.");
  return make_view(self, w.size, w.stride, w.offset,
                   caffe2::TypeMeta::fromScalarType(c10::toRealValueType(t.scalar_type())));
}

Tensor view_as_complex(const Tensor& t) {
  OURS_OR(t, foreign(t));
  TensorWindow w{DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset()};
  ops::view_as_complex(w, to_dtype(t.scalar_type()));
  at::ScalarType to = c10::toComplexType(t.scalar_type());
  to_dtype(to);  // of half floats there is none: TypeError
  return make_view(self, w.size, w.stride, w.offset, caffe2::TypeMeta::fromScalarType(to));
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
  m.impl("transpose.int", TP_FN(transpose));
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
