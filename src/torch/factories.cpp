// Tensors' beginnings and ends: empty, fill, copies between devices, reading one number, resize_.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/is_nonzero_native.h>
#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/row.h"
#include "torch/checks.h"
#include "torch/cuts.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/recorder.h"
#include "torch/runtime.h"
#include "torch/spmd.h"
#include "torch/storage.h"
#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

using at::IntArrayRef;
using at::Tensor;
using ir::Value;

// A fresh tensor of zeros (eager leaves the bytes undefined; ours are defined and equal on every
// run).
Tensor fresh(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
             std::optional<at::Device> device) {
  for (int64_t s : size)
    TORCH_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ", size);
  ir::DType t = to_dtype(dtype.value_or(c10::get_default_dtype_as_scalartype()));
  c10::Device where = checked_device(device);
  Value v = fill_value({}, ir::make_type(t, span_of(size)));
  Tensor out = make_tensor(v, span_of(stride), where);
  std::lock_guard lock(state_lock());
  impl_of(out).alias()->initial = v.node;
  return out;
}

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype,
             std::optional<at::Layout> layout, std::optional<at::Device> device,
             std::optional<bool>, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided,
              "device xla has dense tensors only, not layout ", *layout);
  if (!format || *format == at::MemoryFormat::Contiguous || *format == at::MemoryFormat::Preserve)
    return fresh(size, {}, dtype, device);
  auto strides = *format == at::MemoryFormat::ChannelsLast
                     ? c10::get_channels_last_strides_2d(size)
                     : c10::get_channels_last_strides_3d(size);
  return fresh(size, strides, dtype, device);
}

// Strides that are no dense permutation (holes, overlaps): a flat storage and a window onto it.
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device> device,
                     std::optional<bool>) {
  TORCH_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
              ") must match dimensionality of strides (", stride.size(), ")");
  Tensor like = at::detail::empty_strided_meta(
      size, stride, dtype.value_or(c10::get_default_dtype_as_scalartype()));
  if (like.is_non_overlapping_and_dense()) return fresh(size, stride, dtype, device);
  int64_t room = at::detail::computeStorageNbytes(size, stride, 1);
  Tensor flat = fresh({room}, {}, dtype, device);
  return make_view(impl_of(flat), size, stride, 0);
}

Tensor new_empty_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin) {
  at::Device where = device.value_or(self.device());
  at::ScalarType type = dtype.value_or(self.scalar_type());
  if (where.type() != c10::kXLA)
    return at::empty_strided(size, stride, at::TensorOptions(type).device(where).layout(layout));
  return empty_strided(size, stride, type, layout, where, pin);
}

// The strides of a new tensor like t: dense, in the order of t's, or those of a format.
std::vector<int64_t> strides_like(const Tensor& t, at::MemoryFormat f) {
  if (f != at::MemoryFormat::Preserve)
    return at::detail::empty_meta(t.sizes(), t.scalar_type(), f).strides().vec();
  return dense_strides(*t.unsafeGetTensorImpl());
}

// PyTorch's own asks for as_strided in autograd, which xla has not, and would drop the strides.
Tensor empty_like(const Tensor& t, std::optional<at::ScalarType> dtype,
                  std::optional<at::Layout> layout, std::optional<at::Device> device,
                  std::optional<bool>, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided,
              "device xla has dense tensors only, not layout ", *layout);
  at::TensorOptions options(dtype.value_or(t.scalar_type()));
  Tensor out =
      at::empty_strided(t.sizes(), strides_like(t, format.value_or(at::MemoryFormat::Preserve)),
                        options.device(device.value_or(t.device())));
  inherit_layout(out, t);
  return out;
}

void copy_value(const Tensor& dst, Value v) {
  Impl& to = impl_of(dst);
  write(to,
        with_lazy_bits(expand(cast(std::move(v), type_of(to).dtype()), span_of(dst.sizes())), dst));
}

// Filling a window that overlaps itself is allowed: each place gets the same value. Its distinct
// places.
Tensor without_repeats(const Tensor& t) {
  bool repeats = false;
  at::DimVector sizes(t.sizes());
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) != 0 || sizes[d] < 2) continue;
    sizes[d] = 1;
    repeats = true;
  }
  return repeats ? make_view(impl_of(t), sizes, t.strides(), t.storage_offset()) : t;
}

// The number as eager's fill_ converts it: checked for overflow, then cast.
Tensor& fill_scalar(Tensor& self, const at::Scalar& value) {
  guarded(
      [&] {
        at::Scalar number = value;
        check_fits(value, self.scalar_type());
        if (value.isComplex() && !at::isComplexType(self.scalar_type()))
          number = value.toComplexDouble().real();
        write_fill(impl_of(without_repeats(self)), to_scalar(number));
      },
      [] { return std::string("aten::fill_"); });
  return self;
}

Tensor& zero(Tensor& self) { return fill_scalar(self, 0); }

Tensor& fill_tensor(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  if (value.device().is_cpu()) return fill_scalar(self, value.item());
  guarded(
      [&] {
        check_overlap(self);
        copy_value(self, resolved_value(value));
      },
      [] { return std::string("aten::fill_.Tensor"); });
  return self;
}

void check_copy_shape(const Tensor& from, const Tensor& to) {
  // The words of eager's TensorIterator: a source that does not broadcast, then one that broadcasts
  // to more.
  at::DimVector both = at::infer_size_dimvector(to.sizes(), from.sizes());
  TORCH_CHECK(to.sizes() == both, "output with shape ", to.sizes(),
              " doesn't match the broadcast shape ", IntArrayRef(both));
}

void upload_copy(const Tensor& src, const Tensor& dst) {
  Impl& to = impl_of(dst);
  if (src.dim() == 0 || src.numel() == 1) {
    // One number: a fill or a run-time number, never a transfer.
    if (!dst.is_conj() && !dst.is_neg() && dst.numel() > 1) {
      write_fill(to, to_scalar(src.reshape({}).to(dst.scalar_type()).item()));
      return;
    }
  }
  Tensor host = at::empty(dst.sizes(), at::TensorOptions(dst.scalar_type()));
  host.copy_(src);  // converts, broadcasts, makes it dense; and the user may change src afterwards
  if (dst.is_conj()) host = host.conj().resolve_conj();
  if (dst.is_neg()) host = host.neg();
  if (!write_memory(to, host)) write_host(to, std::move(host));
}

void download_copy(const Tensor& src, const Tensor& dst) {
  Tensor host = read(impl_of(src), "cpu");
  if (src.is_conj()) host = host.conj();
  if (src.is_neg()) host = host._neg_view();
  Tensor(dst).copy_(host);
}

Tensor copy_from(const Tensor& src, const Tensor& dst, bool) {
  guarded(
      [&] {
        check_copy_shape(src, dst);
        if (dst.device().type() == c10::kXLA) check_overlap(dst);
        bool here = src.device().type() == c10::kXLA && src.device() == dst.device();
        if (!here && dst.device().type() == c10::kXLA) {  // from another xla device: by the host
          upload_copy(src.device().is_cpu() ? src : src.cpu(), dst);
        } else if (dst.device().type() != c10::kXLA) {
          download_copy(src, dst);
        } else {
          check_partial_overlap(dst, src);
          if (auto whole = as_memory(dst, src))
            return (void)copy_from(whole->second, whole->first, false);
          Value v = resolved_value(src);
          // A fill is copied as a new fill, so that each tensor keeps an initial value of its own.
          if (v.node->role() == ir::Role::kFill && impl_of(dst).whole() && !dst.is_conj() &&
              !dst.is_neg())
            return write_fill(impl_of(dst), v.node->scalar());
          copy_value(dst, std::move(v));
        }
      },
      [&] {
        return cat("aten::copy_ of a tensor of device ", src.device().str(), " into one of device ",
                   dst.device().str());
      });
  return dst;
}

Tensor copy_from_and_resize(const Tensor& src, const Tensor& dst) {
  if (src.sizes() != dst.sizes()) at::native::resize_output(dst, src.sizes());
  return copy_from(src, dst, false);
}

at::Scalar local_scalar(const Tensor& t) {
  Tensor host = read(impl_of(t), "item");
  if (t.is_conj()) host = host.conj();
  if (t.is_neg()) host = host._neg_view();
  return at::_local_scalar_dense(host.contiguous());
}

// `if t:` and bool(t): a read like item(), named for what the user wrote.
bool is_nonzero(const Tensor& t) {
  ReadKind kind("bool");
  return at::native::is_nonzero(t);
}

// A bool for the host: compared on the device, one number read.
bool equal(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  ReadKind kind("equal");
  return a.numel() == 0 || at::eq(a, b).all().item<bool>();
}

Tensor clone_value(const Tensor& t, std::optional<at::MemoryFormat> format) {
  Impl& self = impl_of(t);
  at::MemoryFormat f = format.value_or(at::MemoryFormat::Preserve);
  Value v = resolved_value(t);
  if (v.node->role() == ir::Role::kFill) v = fill_value(v.node->scalar(), v.type());
  return make_tensor(v, strides_like(t, f), self.device());
}

Tensor clone(const Tensor& t, std::optional<at::MemoryFormat> format) {
  return guarded([&] { return clone_value(t, format); }, [] { return std::string("aten::clone"); });
}

// PyTorch's own asks whether the device has as_strided in autograd and, for xla, would drop the
// strides.
Tensor to_copy(const Tensor& t, std::optional<at::ScalarType> dtype,
               std::optional<at::Layout> layout, std::optional<at::Device> device,
               std::optional<bool>, bool non_blocking, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided,
              "device xla has dense tensors only, not layout ", *layout);
  at::MemoryFormat f = format.value_or(at::MemoryFormat::Preserve);
  at::ScalarType to = dtype.value_or(t.scalar_type());
  at::Device where = device.value_or(t.device());
  std::vector<int64_t> strides = strides_like(t, f);
  bool same_device = where.type() == c10::kXLA && checked_device(where) == t.device();
  if (same_device)
    return guarded(
        [&] { return make_tensor(cast(resolved_value(t), to_dtype(to)), strides, t.device()); },
        [] { return std::string("aten::_to_copy"); });
  Tensor out = at::empty_strided(t.sizes(), strides, at::TensorOptions(to).device(where));
  return out.copy_(t, non_blocking);
}

// --- resize_
// ----------------------------------------------------------------------------------------------

// The alias's memory as a flat root of that many of its own elements: what was there stays, the
// rest is zero.
void grow(Impl& t, int64_t numel) {
  static const ops::Row* row = ops::find_row("torch_pjrt::resize");
  check(row != nullptr, "the op table has torch_pjrt::resize");
  Alias& a = *t.alias();
  Tensor flat = all_of(t);
  Value root = value_of(impl_of(flat));
  ir::AttrsBuilder attrs;
  attrs.operand(ir::symbol("self"), 0);
  attrs.ints(ir::symbol("base_stride"), span_of(flat.strides()));
  attrs.integer(ir::symbol("numel"), numel);
  ir::Type type = ir::make_type(a.type.dtype(), std::span(&numel, 1));
  Value made = root.node->role() == ir::Role::kFill
                   ? fill_value(root.node->scalar(), type)
                   : Value{ir::Node::make(ops::kind_of(*row), std::span(&root, 1),
                                          std::span(&type, 1), attrs.words()),
                           0};
  replace_root(a, std::move(made));
  resize_storage(a);
}

const Tensor& resize(const Tensor& self, IntArrayRef size, std::optional<at::MemoryFormat> format) {
  Impl& t = impl_of(self);
  if (self.sizes() == size && !format) return self;
  auto bytes = static_cast<int64_t>(at::detail::computeStorageNbytesContiguous(
      size, t.itemsize(), static_cast<size_t>(self.storage_offset())));
  int64_t need = c10::multiply_integers(size) ? bytes : 0;
  guarded(
      [&] {
        ir::Type memory = t.alias()->type;  // of another dtype where t is a view by dtype
        int64_t size = ir::dtype_size(memory.dtype());
        if (need > memory.bytes()) grow(t, (need + size - 1) / size);
      },
      [] { return std::string("aten::resize_"); });
  t.set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Contiguous && *format != at::MemoryFormat::Preserve)
    t.empty_tensor_restride(*format);
  t.refresh_whole();
  return self;
}

// Real tensors stay as they are, whatever their layout.
Tensor& conj_physical(Tensor& self) {
  return self.is_complex() ? self.copy_(at::_conj_physical(self)) : self;
}

// An ordinary zero: it costs the program nothing, so the ZeroTensor key's shortcuts have no use
// here.
Tensor efficient_zero(IntArrayRef size, std::optional<at::ScalarType> dtype,
                      std::optional<at::Layout> layout, std::optional<at::Device> device,
                      std::optional<bool> pin) {
  return at::zeros(size, dtype, layout, device, pin);
}

// `t.data = u` and Module.to ask this. PyTorch's own list of dense devices lacks XLA.
bool may_share_type(const Tensor& t, const Tensor& u) {
  constexpr c10::DispatchKeySet kDense(c10::DispatchKey::Dense);
  constexpr c10::DispatchKeySet kDevices(
      {c10::BackendComponent::CPUBit, c10::BackendComponent::XLABit});
  auto dense = [&](const Tensor& x) {
    return x.key_set().has_any(kDense) && x.key_set().has_any(kDevices);
  };
  return (dense(t) && dense(u)) ||
         t.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(u.key_set());
}

}  // namespace

void register_factories(torch::Library& m) {
  m.impl("empty.memory_format", TP_FN(empty));
  m.impl("empty_strided", TP_FN(empty_strided));
  m.impl("empty_like", TP_FN(empty_like));
  m.impl("new_empty_strided", TP_FN(new_empty_strided));
  m.impl("fill_.Scalar", TP_FN(fill_scalar));
  m.impl("fill_.Tensor", TP_FN(fill_tensor));
  m.impl("zero_", TP_FN(zero));
  m.impl("_copy_from", TP_FN(copy_from));
  m.impl("_copy_from_and_resize", TP_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TP_FN(local_scalar));
  m.impl("is_nonzero", TP_FN(is_nonzero));
  m.impl("equal", TP_FN(equal));
  m.impl("clone", TP_FN(clone));
  m.impl("_to_copy", TP_FN(to_copy));
  m.impl("resize_", TP_FN(resize));
  m.impl("conj_physical_", TP_FN(conj_physical));
  m.impl("_efficientzerotensor", TP_FN(efficient_zero));
  m.impl("_has_compatible_shallow_copy_type", TP_FN(may_share_type));
}

}  // namespace tp::torch_room
