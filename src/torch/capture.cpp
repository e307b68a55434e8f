#include "torch/capture.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "probe/probe.h"
#include "torch/asserts.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/lent.h"
#include "torch/random.h"
#include "torch/runtime.h"

namespace tp::torch_room {

using client::DataPtr;
using WeakAlias = c10::weak_intrusive_ptr<Alias>;

std::atomic<Capture*> g_capture{nullptr};

namespace {

// Who was there before the step, by the leaf that stands for its buffer.
struct Known {
  ir::NodePtr leaf;
  WeakAlias alias;
  uint64_t id;
};

}  // namespace

struct Capture::Before {
  std::vector<Known> all;
  std::unordered_map<const ir::Node*, size_t> by_leaf;
  std::unordered_map<uint64_t, size_t> by_id;
};

Capture::Capture(std::vector<at::Tensor> arguments)
    : arguments_(std::move(arguments)), before_(std::make_unique<Before>()) {
  for (const at::Tensor& t : arguments_) {
    Impl& impl = impl_of(t);
    if (!impl.whole() || t.is_conj() || t.is_neg())
      fail(Code::kValue, "capture: an argument is a view of a larger tensor",
           "give the step a copy: x.clone()");
    device_ = t.device();
  }
  if (arguments_.empty())
    device_ = c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(current_device()));
  sync_all();
  for (const AliasPtr& a :
       aliases_where([&](const Alias& x) { return x.device == device_ && !x.traced; })) {
    computed(*a);
    Known k{leaf_of(*a), WeakAlias(a), a->id};
    before_->by_leaf[k.leaf.get()] = before_->all.size();
    before_->by_id[k.id] = before_->all.size();
    before_->all.push_back(std::move(k));
  }
  first_offset_ = static_cast<int64_t>(random_offset());
  Capture* none = nullptr;
  if (!g_capture.compare_exchange_strong(none, this))
    fail(Code::kRuntime, "capture: another step is being captured", "one at a time");
}

Capture::~Capture() { end(); }

void Capture::end() {
  Capture* me = this;
  g_capture.compare_exchange_strong(me, nullptr);
}

void Capture::drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t at) {
  std::lock_guard lock(mu_);
  roles_.drew(seed, offset, at - first_offset_);
}

namespace {

// The line of the first op that takes the number.
std::string line_of(const ir::Graph& g, const ir::Node* number) {
  for (const ir::Node* n : g.order)
    for (const ir::Value& v : n->operands())
      if (v.node.get() == number && n->location())
        return cat(" of ", n->kind().name, " at ", ir::line_text(n->location()));
  return "";
}

}  // namespace

// Numbers the replay's arguments: tensors that were there before, as the graph meets them, then the
// step's own.
void Capture::number_arguments(const exec::Plan& plan, Captured& to) {
  std::unordered_map<const ir::Node*, size_t> own;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    to.types_.push_back(type_of(impl_of(arguments_[i])));
    auto it = before_->by_id.find(impl_of(arguments_[i]).alias()->id);
    if (it != before_->by_id.end()) own.emplace(before_->all[it->second].leaf.get(), i);
  }
  auto meet = [&](const ir::Node* leaf) {
    auto it = before_->by_leaf.find(leaf);
    if (it == before_->by_leaf.end() || own.contains(leaf) || roles_.arguments.contains(leaf))
      return;
    roles_.arguments[leaf] = static_cast<uint32_t>(to.states_.size());
    to.states_.push_back({before_->all[it->second].alias, leaf->types()[0]});
  };
  for (const ir::LeafUse& use : plan.graph.leaves) meet(use.node);
  for (const ir::Value& v : plan.passed)
    if (v) meet(v.node.get());
  for (auto [leaf, i] : own) roles_.arguments[leaf] = static_cast<uint32_t>(to.states_.size() + i);
}

void Capture::keep_numbers(const exec::Plan& plan, Captured& to) const {
  to.key_ = plan.key;
  for (const ir::LeafUse& use : plan.graph.leaves) {
    if (use.feed == ir::Feed::kBuffer || roles_.seeds.contains(use.node) ||
        roles_.offsets.contains(use.node))
      continue;
    to.numbers_.push_back({use.node->scalar(), line_of(plan.graph, use.node)});
  }
}

void Capture::keep_results(const Synced& synced, const std::vector<at::Tensor>& outputs,
                           Captured& to) {
  std::unordered_map<uint64_t, uint32_t> value_of_new;
  std::unordered_map<uint64_t, uint32_t> value_of;
  for (size_t i = 0; i < synced.ids.size(); ++i) {
    value_of[synced.ids[i]] = static_cast<uint32_t>(i);
    if (!before_->by_id.contains(synced.ids[i]))
      value_of_new[synced.ids[i]] = static_cast<uint32_t>(i);
  }
  to.layouts_.resize(synced.ids.size());
  std::vector<bool> returned(synced.ids.size());
  for (const at::Tensor& t : outputs) {
    OutputRecipe& out = to.outputs_.emplace_back();
    Impl* impl = t.defined() ? impl_or_null(t) : nullptr;
    auto it = impl ? value_of_new.find(impl->alias()->id) : value_of_new.end();
    if (it == value_of_new.end()) {
      out.kind = OutputRecipe::Kind::kConstant;
      out.constant = t;
      continue;
    }
    const Alias& a = *impl->alias();
    returned[it->second] = true;
    out.kind = OutputRecipe::Kind::kRoot;
    out.at = it->second;
    out.same = impl->whole();
    out.sizes = dims_of(t.sizes());
    out.strides = dims_of(t.strides());
    out.offset = t.storage_offset();
    out.dtype = t.scalar_type();
    if (a.strides) to.layouts_[it->second] = std::make_unique<Dims>(*a.strides);
  }
  auto updated = [&](const Alias& a) {
    auto it = value_of.find(a.id);
    return it != value_of.end() && !returned[it->second];
  };
  for (const AliasPtr& a : aliases_where(updated))
    to.updates_.emplace_back(WeakAlias(a), value_of.at(a->id));
  for (const Captured::State& s : to.states_) {
    AliasPtr a = s.alias.lock();
    to.replaced_.push_back(a && updated(*a));
  }
}

std::shared_ptr<Captured> Capture::finish(const std::vector<at::Tensor>& outputs) {
  end();
  roles_.draws = static_cast<int64_t>(random_offset()) - first_offset_;
  auto made = std::make_shared<Captured>();
  made->device_ = device_;
  Synced synced = sync_captured(device_index(device_));
  if (!synced.plan) fail(Code::kValue, "capture: the step records nothing");
  number_arguments(*synced.plan, *made);
  keep_numbers(*synced.plan, *made);
  keep_results(synced, outputs, *made);
  GilRelease no_gil;
  made->replay_ = std::make_unique<exec::Replay>(executor(), synced.plan, roles_);
  return made;
}

std::string Captured::difference(const Captured& now) const {
  // Which parameters may be overwritten depends on who holds the old values, not on the step.
  constexpr auto kDonated = static_cast<size_t>(exec::Ingredient::kDonated);
  for (size_t i = 0; i < key_.digests.size(); ++i)
    if (i != kDonated && !(key_.digests[i] == now.key_.digests[i]))
      return cat("it records another program (other ",
                 exec::ingredient_name(static_cast<exec::Ingredient>(i)), ")");
  for (size_t i = 0; i < numbers_.size() && i < now.numbers_.size(); ++i) {
    const auto& [was, where] = numbers_[i];
    const ir::Scalar& is = now.numbers_[i].first;
    if (was.kind != is.kind || was.integer != is.integer ||
        std::memcmp(&was.re, &is.re, sizeof was.re) || std::memcmp(&was.im, &is.im, sizeof was.im))
      return cat("a number", where, " was ", ir::scalar_text(was), " and is ", ir::scalar_text(is));
  }
  return "";
}

namespace {

// The alias of a captured tensor, with its value as a buffer.
AliasPtr alive(const WeakAlias& alias, ir::Type type) {
  AliasPtr a = alias.lock();
  if (!a)
    fail(Code::kRuntime, cat("a captured step needs a tensor ", type.text(), " that is gone"),
         "capture the step again: .reset()");
  if (!(a->type == type))
    fail(Code::kRuntime,
         cat("a captured step needs a tensor ", type.text(), " that is ", a->type.text(), " now"),
         "capture the step again: .reset()");
  return a;
}

}  // namespace

std::vector<at::Tensor> Captured::run(const std::vector<at::Tensor>& arguments) const {
  if (arguments.size() != types_.size())
    fail(Code::kValue,
         cat("a captured step takes ", types_.size(), " tensors, got ", arguments.size()));
  std::vector<AliasPtr> aliases;
  std::vector<DataPtr> buffers;
  for (const State& s : states_) aliases.push_back(alive(s.alias, s.type));
  for (size_t i = 0; i < arguments.size(); ++i) {
    Impl& impl = impl_of(arguments[i]);
    if (!impl.whole() || !(type_of(impl) == types_[i]))
      fail(Code::kValue,
           cat("argument ", i, " of a captured step: expected ", types_[i].text(), ", found ",
               type_of(impl).text(), impl.whole() ? "" : ", a view"),
           "capture the step again for it: .reset()");
    aliases.push_back(alias_ptr(impl));
  }
  for (const AliasPtr& a : aliases) buffers.push_back(computed(*a));
  Lent lent(buffers.size());
  // A buffer may only go where its tensor gets another one: which ones a recording gave away
  // depends on who held them then.
  for (uint32_t i : replay_->donors())
    if (i >= replaced_.size() || replaced_[i]) lent.take(i, aliases[i], buffers[i]);
  std::vector<DataPtr> values = launch(*replay_, buffers, lent, "a captured step");
  for (const auto& [alias, value] : updates_) {
    AliasPtr a = alias.lock();
    if (!a) continue;
    replace_data(*a, values[value]);
    lent.settled(a.get());
  }
  note_asserts_replayed();
  return results(values);
}

std::vector<at::Tensor> Captured::results(const std::vector<DataPtr>& values) const {
  Roots roots(values, layouts_, device_);
  std::vector<at::Tensor> out;
  for (const OutputRecipe& r : outputs_)
    out.push_back(r.kind == OutputRecipe::Kind::kRoot ? roots.tensor(r) : r.constant);
  return out;
}

std::vector<at::Tensor> Captured::call(const std::vector<at::Tensor>& arguments) const {
  static probe::Counter& replays = probe::counter("CapturedReplay");
  replays.add();
  return guarded([&] { return run(arguments); },
                 [] { return std::string("replaying a captured step"); });
}

}  // namespace tp::torch_room
