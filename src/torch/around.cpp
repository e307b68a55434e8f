#include "torch/around.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TracerMode.h>
#include <ATen/ops/addbmm.h>
#include <ATen/ops/any.h>
#include <ATen/ops/convolution_native.h>
#include <ATen/ops/zeros_like.h>

#include "base/text.h"
#include "torch/kernels.h"
#include "torch/named_tables.h"

namespace tp::torch_room {
namespace {

// Replaces a call's arguments by its result.
void give(Stack& s, size_t args, at::Tensor result) {
  s.resize(s.size() - args);
  s.emplace_back(std::move(result));
}

using View = at::Tensor (*)(const at::Tensor& self, const c10::IValue* rest);

at::Tensor select_view(const at::Tensor& self, const c10::IValue* rest) {
  return self.select(rest[0].toInt(), rest[1].toInt());
}
at::Tensor slice_view(const at::Tensor& self, const c10::IValue* rest) {
  return self.slice(rest[0].toInt(), rest[1].toOptional<int64_t>(), rest[2].toOptional<int64_t>(),
                    rest[3].toInt());
}
at::Tensor diagonal_view(const at::Tensor& self, const c10::IValue* rest) {
  return self.diagonal(rest[0].toInt(), rest[1].toInt(), rest[2].toInt());
}

// The row's result is dense; eager's lies in memory as self does.
template <View view>
void scatter_window(Stack& s, size_t args, Record record) {
  const c10::IValue* call = &s[s.size() - args];
  at::Tensor self = call[0].toTensor(), src = call[1].toTensor();
  Impl* impl = impl_or_null(self);
  if (!impl || impl->whole() || self.device() != src.device()) return record();
  at::Tensor out =
      scatter_in_place(self, src, [&](const at::Tensor& t) { return view(t, call + 2); });
  give(s, args, std::move(out));
}

// Where several elements of self are one in memory, eager fills that one if it fills any of them.
template <bool masked>
void fill_expanded(Stack& s, size_t args, Record record) {
  at::Tensor self = s[s.size() - args].toTensor(), base = self;
  if (at::has_internal_overlap(self) != at::MemOverlap::Yes) return record();
  TORCH_WARN("Use of ", masked ? "masked_fill_" : "index_fill_",
             " on expanded tensors is deprecated. Please clone() the tensor before performing this "
             "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar");
  at::DimVector spread;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (self.stride(d) == 0 && self.size(d) > 1) base = base.narrow(d, 0, 1), spread.push_back(d);
  c10::IValue* call = &s[s.size() - args];
  if constexpr (masked) {
    call[1] = at::any(call[1].toTensor().expand(self.sizes()), spread, /*keepdim=*/true);
  } else {
    int64_t dim = at::maybe_wrap_dim(call[1].toInt(), self.dim());
    if (std::find(spread.begin(), spread.end(), dim) != spread.end())
      call[2] = at::zeros_like(call[2].toTensor());
  }
  call[0] = base;
  record();
  s.back() = std::move(self);
}

// Eager's kernel resizes what it writes to the product's shape, in the in-place form too.
void resizing_addbmm(Stack& s, size_t args, Record record) {
  const c10::IValue* c = &s[s.size() - args];
  at::Tensor self = c[0].toTensor(), a = c[1].toTensor(), b = c[2].toTensor();
  bool grows =
      a.dim() == 3 && b.dim() == 3 && self.sizes() != at::IntArrayRef{a.size(1), b.size(2)};
  if (!grows) return record();
  at::Tensor made = at::addbmm(self, a, b, c[3].toScalar(), c[4].toScalar());
  self.resize_(made.sizes()).copy_(made);
  give(s, args, std::move(self));
}

// torch.jit.trace leaves this op to PyTorch's own kernel, which calls one that is traced.
void traced_convolution(Stack& s, size_t args, Record record) {
  if (!at::tracer::impl::is_dispatch_enabled()) return record();
  const c10::IValue* c = &s[s.size() - args];
  at::Tensor out = at::native::convolution(
      c[0].toTensor(), c[1].toTensor(), c[2].toOptional<at::Tensor>(), c[3].toDimVector(),
      c[4].toDimVector(), c[5].toDimVector(), c[6].toBool(), c[7].toDimVector(), c[8].toInt());
  give(s, args, std::move(out));
}

// Whole numbers are never infinite, and eager's zeros have exactly their strides.
void isinf_of_whole(Stack& s, size_t args, Record record) {
  at::Tensor self = s[s.size() - args].toTensor();
  if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) return record();
  give(s, args, at::zeros_like(self, self.options().dtype(at::kBool), at::MemoryFormat::Preserve));
}

struct Entry {
  std::string_view overloads;
  Around around;
};
constexpr Entry kEntries[] = {
    {"aten::select_scatter", scatter_window<select_view>},
    {"aten::slice_scatter", scatter_window<slice_view>},
    {"aten::diagonal_scatter", scatter_window<diagonal_view>},
    {"aten::addbmm_", resizing_addbmm},
    {"aten::convolution", traced_convolution},
    {"aten::isinf", isinf_of_whole},
    {"aten::masked_fill_.Scalar aten::masked_fill_.Tensor", fill_expanded<true>},
    {"aten::index_fill_.int_Scalar aten::index_fill_.int_Tensor", fill_expanded<false>},
};

}  // namespace

std::vector<std::string_view> around_names() {
  std::vector<std::string_view> names;
  for (const Entry& e : kEntries)
    any_word(e.overloads, [&](std::string_view name) {
      names.push_back(name);
      return false;
    });
  return names;
}

Around around(std::string_view overload) {
  for (const Entry& e : kEntries)
    if (has_word(e.overloads, overload)) return e.around;
  return nullptr;
}

}  // namespace tp::torch_room
