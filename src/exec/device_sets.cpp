#include "exec/device_sets.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ir/callers.h"

namespace tp::exec {
namespace {

std::string named(const ir::Node& n) {
  return cat(n.types()[0].text(), n.location() ? cat(" of ", ir::line_text(n.location())) : "");
}

constexpr const char* kFix = "use one mesh for both, or bring one to the host: x.cpu()";

}  // namespace

shard::Ref own_sharding(const ir::Node& n, const Layouts& layouts) {
  if (n.role() == ir::Role::kData) {
    auto* data = static_cast<const client::Data*>(n.payload().get());
    return data ? data->sharding() : nullptr;
  }
  if (n.role() == ir::Role::kInterior) return n.sharding() ? shard::find(*n.sharding()) : nullptr;
  auto it = layouts.fills.find(&n);
  return it == layouts.fills.end() ? nullptr : it->second;
}

int DeviceSets::add(const std::vector<int>& devices) {
  auto at = std::find(sets_.begin(), sets_.end(), devices);
  if (at == sets_.end()) at = sets_.insert(at, devices);
  return static_cast<int>(at - sets_.begin());
}

int DeviceSets::merge(int set, const ir::Node& n, int other) {
  if (other == kNone || set == other) return set;
  if (set == kNone) return other;
  if (!meeting_ && set != kSeveral && other != kSeveral) meeting_ = &n;
  return kSeveral;
}

DeviceSets::DeviceSets(const ir::Graph& g, const Layouts& layouts)
    : g_(g), of_(g.order.size(), kNone) {
  for (const ir::Node* n : g.order) {
    int set = kNone;
    if (shard::Ref s = own_sharding(*n, layouts)) set = add(s->devices);
    for (const ir::Value& v : n->operands()) set = merge(set, *n, of(*v.node));
    of_[n->slot] = set;
  }
}

std::string DeviceSets::example(int set) const {
  for (const ir::Node* n : g_.order)
    if (of(*n) == set) return named(*n);
  return "a result";
}

std::optional<Error> DeviceSets::meeting() const {
  if (!meeting_) return std::nullopt;
  std::vector<std::pair<int, std::string>> found;  // what is on each set
  auto note = [&](int set, const ir::Node& n) {
    bool known = std::ranges::any_of(found, [&](const auto& f) { return f.first == set; });
    if (set >= 0 && !known) found.emplace_back(set, named(n));
  };
  for (const ir::Value& v : meeting_->operands()) note(of(*v.node), *v.node);
  std::string text =
      cat(meeting_->kind().name, ": values on devices ",
          join(sets_[static_cast<size_t>(found[0].first)], ","), " (", found[0].second, ")");
  if (found.size() > 1)
    text += cat(" and on devices ", join(sets_[static_cast<size_t>(found[1].first)], ","), " (",
                found[1].second, ") meet");
  else
    text += cat(" cannot be on devices ", join(shard::find(*meeting_->sharding())->devices, ","));
  Error e(Code::kValue, std::move(text));
  if (meeting_->location())
    std::move(e).at(
        cat(ir::line_and_function(meeting_->location()), ir::caller_text(meeting_->location())));
  std::move(e).fix(kFix);
  return e;
}

namespace {

// By slot: the set of a value that needs this one, where it is on none itself.
std::vector<int> needed_on(const ir::Graph& g, const DeviceSets& sets) {
  std::vector<int> on(g.order.size(), DeviceSets::kNone);
  for (size_t i = g.order.size(); i-- > 0;) {
    const ir::Node& n = *g.order[i];
    int set = sets.of(n) >= 0 ? sets.of(n) : on[n.slot];
    if (set < 0) continue;
    for (const ir::Value& v : n.operands())
      if (on[v.node->slot] < 0) on[v.node->slot] = set;
  }
  return on;
}

}  // namespace

Programs by_devices(std::span<const ir::Value> roots, const Layouts& layouts) {
  ir::Graph g = ir::build_graph({roots.begin(), roots.end()}, [](const ir::Node&) { return true; });
  DeviceSets sets(g, layouts);
  std::vector<int> needed = needed_on(g, sets), program(roots.size(), DeviceSets::kNone);
  Programs out;
  for (size_t i = 0; i < roots.size(); ++i) {
    const ir::Node& n = *roots[i].node;
    const shard::Ref* pin = i < layouts.pins.size() ? &layouts.pins[i].sharding : nullptr;
    int set = sets.of(n), there = pin && *pin ? sets.add((*pin)->devices) : DeviceSets::kNone;
    if (set == DeviceSets::kNone) set = there >= 0 ? there : needed[n.slot];
    program[i] = set;
    if (set == DeviceSets::kSeveral) out.impossible.push_back(i);
  }
  std::vector<int> used;  // one program each; values on no mesh come last
  for (int set : program)
    if (set >= 0 && std::ranges::find(used, set) == used.end()) used.push_back(set);
  if (used.size() != 1) used.push_back(DeviceSets::kNone);
  for (int set : used) {
    std::vector<size_t> of;
    for (size_t i = 0; i < roots.size(); ++i)
      if (program[i] == set || (used.size() == 1 && program[i] != DeviceSets::kSeveral))
        of.push_back(i);
    if (!of.empty()) out.roots.push_back(std::move(of));
  }
  if (!out.impossible.empty()) out.why = sets.meeting();
  return out;
}

}  // namespace tp::exec
