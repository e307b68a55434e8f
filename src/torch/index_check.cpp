#include "torch/index_check.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/row.h"
#include "torch/recorder.h"
#include "torch/runtime.h"

namespace tp::torch_room {

namespace {

using ops::IndexRule;
using Size = IndexRule::Size;

// The values of an index tensor, where the host has them.
at::Tensor on_host(const at::Tensor& t) {
  if (t.device().is_cpu()) return t;
  Impl* p = impl_or_null(t);
  if (!p) return {};
  at::Tensor host;
  bool row_major;
  std::optional<ir::Scalar> fill;
  {
    std::lock_guard lock(state_lock());
    const Alias& a = *p->alias();
    host = a.host().defined() ? a.host() : a.uploaded();
    row_major = !a.strides;
    if (a.pending() && a.value().node->role() == ir::Role::kFill) fill = a.value().node->scalar();
  }
  if (host.defined()) {
    bool plain = host.is_contiguous() && row_major && host.scalar_type() == t.scalar_type();
    return plain ? host.as_strided(t.sizes(), t.strides(), t.storage_offset()) : at::Tensor();
  }
  if (fill && t.numel() > 0 && fill->kind == ir::Scalar::Kind::kInt)
    return at::scalar_tensor(at::Scalar(fill->integer), at::kLong);
  return {};
}

// The first value that is neither in range nor `exempt`.
std::optional<int64_t> first_beyond(const at::Tensor& index, int64_t size, bool negative,
                                    std::optional<int64_t> exempt) {
  at::Tensor values = on_host(index);
  if (!values.defined() || !at::isIntegralType(values.scalar_type(), false)) return std::nullopt;
  values = values.to(at::kLong).contiguous();
  int64_t low = negative ? -size : 0;
  auto span = static_cast<uint64_t>(size - low);
  for (int64_t v : c10::ArrayRef(values.const_data_ptr<int64_t>(), values.numel()))
    if (static_cast<uint64_t>(v - low) >= span && v != exempt) return v;
  return std::nullopt;
}

const c10::IValue& argument(const OpInfo& op, c10::ArrayRef<c10::IValue> args,
                            std::string_view name) {
  for (size_t i = 0; i < args.size() && i < op.args.size(); ++i)
    if (op.args[i].name == name) return args[i];
  static const c10::IValue none;
  return none;
}

// Where there is nothing, no index is right, whatever it is. Eager stumbles there, each op in its
// way.
void check_nothing(const IndexRule& r, const at::Tensor& index, int64_t dim) {
  if (!index.numel() || !at::isIntegralType(index.scalar_type(), false)) return;
  ops::BadIndex first{0, dim, 0};
  if (r.nothing) return r.nothing(first);
  fail(r.code, r.words(first));
}

void check(const IndexRule& r, const at::Tensor& index, int64_t dim, int64_t size,
           std::optional<int64_t> exempt = {}) {
  if (size == 0 && !exempt) return check_nothing(r, index, dim);
  if (auto v = first_beyond(index, size, r.negative, exempt))
    fail(r.code, r.words({*v, dim, size}));
}

using Indices = c10::List<std::optional<at::Tensor>>;

bool is_mask(const at::Tensor& t) {  // which takes several dims
  return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
}

// Without elements in the indices, or in what they select, no index is looked at; but where a dim
// that they select from is empty.
bool selects_nothing(const at::Tensor& self, const Indices& indices) {
  bool nothing = false;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    std::optional<at::Tensor> t;
    if (dim < static_cast<int64_t>(indices.size())) t = indices.get(static_cast<size_t>(dim));
    if (t && t->defined() && t->numel() == 0) return true;
    if (t && t->defined() && self.size(dim) == 0) return false;
    nothing = nothing || self.size(dim) == 0;
  }
  return nothing;
}

void check_each_dim(const IndexRule& r, const at::Tensor& self, const c10::IValue& list) {
  Indices indices = list.toOptionalTensorList();
  int64_t dim = 0;
  bool masks = std::any_of(indices.begin(), indices.end(), [](const std::optional<at::Tensor>& t) {
    return t && t->defined() && is_mask(*t);
  });
  if (!masks && selects_nothing(self, indices)) return;
  for (const std::optional<at::Tensor>& t : indices) {
    if (t && t->defined()) {
      if (is_mask(*t)) return;
      if (dim < self.dim()) check(r, *t, dim, self.size(dim));
    }
    ++dim;
  }
}

// Of an op that selects along one dim.
void check_dim(const IndexRule& r, const at::Tensor& self, const at::Tensor& index, int64_t dim) {
  int64_t size = self.dim() ? self.size(dim) : 1;
  bool empty = self.numel() == 0, rest = false;  // the dims besides `dim`
  for (int64_t d = 0; d < self.dim(); ++d) rest = rest || (d != dim && self.size(d) == 0);
  if (r.by_slices && rest) return;
  IndexRule as = r;
  if (r.words_of_later_dims && (dim != 0 || empty))
    as.code = Code::kRuntime, as.words = r.words_of_later_dims;
  if (r.words_of_vectors && self.dim() <= 1) as.code = Code::kIndex, as.words = r.words_of_vectors;
  check(as, index, dim, size);
}

}  // namespace

void check_indices(const OpInfo& op, c10::ArrayRef<c10::IValue> args) {
  const IndexRule& r = *op.row->index;
  const c10::IValue& index = argument(op, args, r.argument);
  const at::Tensor& self = args[0].toTensor();
  if (index.isNone()) return;
  switch (r.size) {
    case Size::kDim:
      return check_dim(r, self, index.toTensor(),
                       at::maybe_wrap_dim(argument(op, args, "dim").toInt(), self.dim()));
    case Size::kFirstDim:
      return check_dim(r, self, index.toTensor(), 0);
    case Size::kNumel:
      return check(r, index.toTensor(), 0, self.numel());
    case Size::kClasses:
      return check(r, index.toTensor(), 0, self.size(self.dim() == 1 ? 0 : 1),
                   argument(op, args, "ignore_index").toInt());
    case Size::kEachDim:
      return check_each_dim(r, self, index);
  }
}

}  // namespace tp::torch_room
