// torch.linalg.cholesky, inv, solve, ... are a factorisation and then _linalg_check_errors of its
// `info`, which reads it: a graph cut in each. Here the check becomes part of the host op that made
// `info`, which then raises where the program runs.
#include <ATen/ops/_linalg_check_errors.h>

#include "ops/host.h"
#include "torch/errors.h"
#include "torch/host_op.h"
#include "torch/runtime.h"

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
    if (!a.pending() || !(a.value.node == from)) return;
    ir::Value now{to, a.value.index};
    old.value(a);
    a.value = std::move(now);
    old.gathers(a);
  });
}

// The pending value of the tensor, where it is a whole result of a host op.
ir::Value host_value(const Impl& t) {
  ir::Value v;
  {
    std::lock_guard lock(state_lock());
    const Alias& a = *t.alias();
    if (t.whole() && a.pending()) v = a.value;
  }
  return v && v.node->kind().host ? v : ir::Value();
}

void check_errors(const at::Tensor& info, std::string_view name, bool is_matrix) {
  Impl& t = impl_of(info);
  if (ir::Value v = host_value(t))
    return replace(v.node, checked(*v.node, v.index, name, is_matrix));
  at::_linalg_check_errors(read(t, "linalg error check").contiguous(), name, is_matrix);
}

}  // namespace

void register_host_check(torch::Library& m) {
  m.impl("_linalg_check_errors", TORCH_FN(check_errors));
}

}  // namespace tp::torch_room
