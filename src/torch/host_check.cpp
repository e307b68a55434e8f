// Factorisations that check themselves raise at their line, as on CUDA: `info` is read, a graph
// cut. torch.linalg.cholesky, inv, solve, ... are a factorisation and then _linalg_check_errors of
// its `info`; svd, eigh, eig, lstsq, ... look at it themselves.
// Where nothing may be read (no_cuts()), the check becomes part of the host op that made `info`,
// which then raises where the program runs.
#include <ATen/ops/_linalg_check_errors.h>

#include "base/text.h"
#include "ops/host/host.h"
#include "torch/cuts.h"
#include "torch/errors.h"
#include "torch/host_op.h"
#include "torch/named_tables.h"
#include "torch/runtime.h"
#include "torch/trace.h"

namespace tp::torch_room {
namespace {

ir::NodePtr checked(const ir::Node& n, uint32_t info, std::string_view name, bool is_matrix) {
  ir::AttrsBuilder more;
  more.text(kHostCheck, name);
  more.integer(kHostInfo, info);
  more.boolean(kHostIsMatrix, is_matrix);
  std::vector<uint64_t> words(n.attrs().words().begin(), n.attrs().words().end());
  words.insert(words.end(), more.words().begin(), more.words().end());
  ir::NodePtr made = ir::Node::make(n.kind(), n.operands(), n.types(), words);
  made->set_location(n.location());
  return made;
}

// Every tensor that holds a result of `from` holds that of `to` now.
void replace(const ir::NodePtr& from, const ir::NodePtr& to) {
  Dropped old(room_for_aliases());
  for_each_alias([&](Alias& a) {
    if (!a.pending() || !(a.value().node == from)) return;
    old.state(a, Alias::Pending{{to, a.value().index}, a.raised()});
    old.gathers(a);
  });
}

// The pending value of the tensor, where it is a whole result of a host op.
ir::Value host_value(const Impl& t) {
  ir::Value v;
  {
    std::lock_guard lock(state_lock());
    const Alias& a = *t.alias();
    if (t.whole() && a.pending()) v = a.value();
  }
  return v && v.node->kind().host ? v : ir::Value();
}

// Inside no_cuts(), which a captured step is, and while torch.compile traces.
bool may_not_read() { return cuts_forbidden() || tracing(); }

// "cholesky" -> what torch.linalg has without a check; null: nothing.
const char* unchecked_form(std::string_view name) {
  static constexpr std::string_view kForms[] = {
      "torch.linalg.cholesky_ex", "torch.linalg.inv_ex", "torch.linalg.solve_ex",
      "torch.linalg.lu_factor_ex", "torch.linalg.ldl_factor_ex"};
  name = name.substr(name.rfind('.') + 1);
  for (std::string_view f : kForms)
    if (f.substr(13, f.size() - 16) == name) return f.data();
  return nullptr;
}

constexpr const char* kInNoCuts =
    "inside torch_pjrt.no_cuts() the check is left to the program, and raises where it is read";

struct Named {
  const char *kind, *advice;
};
// `name` as the check's own message has it: "linalg.cholesky".
Named named(std::string_view name) {
  const char* form = unchecked_form(name);
  return {permanent(cat("the error check of ", name)),
          form ? permanent(cat("use ", form, ", which reads nothing; or ", kInNoCuts)) : kInNoCuts};
}

void check_errors(const at::Tensor& info, std::string_view name, bool is_matrix) {
  Impl& t = impl_of(info);
  ir::Value v = may_not_read() ? host_value(t) : ir::Value();
  if (v) return replace(v.node, checked(*v.node, v.index, name, is_matrix));
  guarded(
      [&] {
        Named n = named(name);
        ReadKind kind(n.kind, n.advice);
        at::_linalg_check_errors(read(t, n.kind).contiguous(), name, is_matrix);
      },
      [&] { return std::string(name); });
}

// Those whose own kernel looks at `info`, and their names there.
struct Checked {
  std::string_view op, name;
};
constexpr Checked kChecked[] = {{"aten::_linalg_svd", "linalg.svd"},
                                {"aten::_linalg_eigh", "linalg.eigh"},
                                {"aten::linalg_eig", "torch.linalg.eig"},
                                {"aten::_linalg_eigvals", "torch.linalg.eigvals"},
                                {"aten::linalg_lstsq", "torch.linalg.lstsq"},
                                {"aten::linalg_pinv", "linalg.pinv"},
                                {"aten::cholesky", "cholesky"},
                                {"aten::cholesky_inverse", "cholesky_inverse"}};

bool asks_for_check(const c10::FunctionSchema& s, c10::ArrayRef<c10::IValue> args) {
  auto at = s.argumentIndexWithName("check_errors");
  return at && args[static_cast<size_t>(*at)].isBool() && args[static_cast<size_t>(*at)].toBool();
}

}  // namespace

std::vector<std::string_view> checked_names() {
  std::vector<std::string_view> names;
  for (const Checked& c : kChecked) names.push_back(c.op);
  return names;
}

std::string_view checked_name(const c10::FunctionSchema& s, c10::ArrayRef<c10::IValue> args) {
  if (asks_for_check(s, args)) return std::string_view(s.name()).substr(6);
  for (const Checked& c : kChecked)
    if (c.op == s.name()) return c.name;
  return {};
}

void raise_here(std::string_view name, const Stack& results) {
  if (name.empty() || may_not_read()) return;
  for (const at::Tensor& t : tensors_of(results)) {
    Impl* p = t.defined() ? impl_or_null(t) : nullptr;
    if (!p || p->numel() == 0) continue;
    Named n = named(name);
    ReadKind kind(n.kind, n.advice);
    read(*p, n.kind);
    return;
  }
}

void register_host_check(torch::Library& m) {
  m.impl("_linalg_check_errors", TORCH_FN(check_errors));
}

}  // namespace tp::torch_room
