#include "torch/index_check.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/scalar_tensor.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/rules_by_op.h"
#include "torch/recorder.h"
#include "torch/runtime.h"

namespace tp::torch_room {

namespace {

enum class Size : uint8_t { kDim, kFirstDim, kNumel, kClasses, kEachDim };

struct Found {
  int64_t value, dim, size;
};

using Words = std::string (*)(const Found&);

std::string in_self(const Found&) { return "index out of range in self"; }
std::string in_data(const Found& f) {
  return cat("INDICES element is out of DATA bounds, id=", f.value, " axis_dim=", f.size);
}
std::string of_dim(const Found& f) {
  return cat("index ", f.value, " is out of bounds for dimension ", f.dim, " with size ", f.size);
}
std::string of_copy(const Found& f) { return cat("index_copy_(): ", of_dim(f)); }
std::string of_elements(const Found& f) {
  return cat("out of range: tried to access index ", f.value, " on a tensor of ", f.size,
             " elements.");
}
std::string of_classes(const Found& f) { return cat("Target ", f.value, " is out of bounds."); }

}  // namespace

struct IndexRule {
  const char* ops;
  const char* index;  // the argument
  Size size;
  bool negative;  // do negative ones count from the end?
  Code code;
  Words words;
};

namespace {

constexpr IndexRule kRules[] = {
    {"embedding", "indices", Size::kFirstDim, false, Code::kIndex, in_self},
    {"index_select", "index", Size::kDim, false, Code::kIndex, in_self},
    {"index_reduce", "index", Size::kDim, false, Code::kIndex, in_self},
    {"index_copy", "index", Size::kDim, false, Code::kIndex, of_copy},
    {"index_fill.int_Scalar index_fill.int_Tensor", "index", Size::kDim, true, Code::kIndex,
     of_dim},
    {"gather scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add "
     "scatter_reduce.two",
     "index", Size::kDim, false, Code::kRuntime, of_dim},
    {"index_add", "index", Size::kDim, false, Code::kRuntime, of_dim},
    {"take put", "index", Size::kNumel, true, Code::kIndex, of_elements},
    {"index.Tensor index_put _index_put_impl", "indices", Size::kEachDim, true, Code::kIndex,
     of_dim},
    {"nll_loss_forward nll_loss2d_forward", "target", Size::kClasses, false, Code::kIndex,
     of_classes},
};

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
    host = a.host.defined() ? a.host : a.uploaded;
    row_major = !a.strides;
    if (a.pending() && a.value.node->role() == ir::Role::kFill) fill = a.value.node->scalar();
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
  std::string_view ops = r.ops;
  if (!index.numel() || ops == "index_add" || !at::isIntegralType(index.scalar_type(), false))
    return;
  if (ops == "embedding")
    fail(Code::kRuntime, "index_select(): self indexing axis dim should be positive");
  bool by_row = ops.starts_with("index_fill") || ops == "index_copy";
  fail(by_row ? Code::kRuntime : r.code, r.words({0, dim, 0}));
}

void check(const IndexRule& r, const at::Tensor& index, int64_t dim, int64_t size,
           std::optional<int64_t> exempt = {}) {
  if (size == 0 && !exempt) return check_nothing(r, index, dim);
  if (auto v = first_beyond(index, size, r.negative, exempt))
    fail(r.code, r.words({*v, dim, size}));
}

void check_each_dim(const IndexRule& r, const at::Tensor& self, const c10::IValue& list) {
  int64_t dim = 0;
  for (const std::optional<at::Tensor>& t : list.toOptionalTensorList()) {
    if (t && t->defined()) {
      if (t->scalar_type() == at::kBool || t->scalar_type() == at::kByte)
        return;  // masks take dims
      if (dim < self.dim()) check(r, *t, dim, self.size(dim));
    }
    ++dim;
  }
}

}  // namespace

const IndexRule* index_rule(std::string_view row) {
  static const auto* rules = new ops::RulesByOp<IndexRule>(kRules);
  return rules->find(row);
}

void check_indices(const OpInfo& op, c10::ArrayRef<c10::IValue> args) {
  const IndexRule& r = *op.index_rule;
  const c10::IValue& index = argument(op, args, r.index);
  const at::Tensor& self = args[0].toTensor();
  if (index.isNone()) return;
  switch (r.size) {
    case Size::kDim: {
      int64_t dim = at::maybe_wrap_dim(argument(op, args, "dim").toInt(), self.dim());
      IndexRule by_dim = r;
      if (std::string_view(r.ops) == "index_select" && dim != 0)  // eager has two kernels
        by_dim.code = Code::kRuntime, by_dim.words = in_data;
      return check(by_dim, index.toTensor(), dim, self.dim() ? self.size(dim) : 1);
    }
    case Size::kFirstDim:
      return check(r, index.toTensor(), 0, self.size(0));
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
