#include "exec/split.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"
#include "exec/executor.h"
#include "ir/callers.h"
#include "probe/probe.h"

namespace tp::exec {

using client::DataPtr;
using ir::Node;
using ir::Role;
using ir::Value;

namespace {

// What a segment will be given, while it is only compiled.
struct StandIn final : ir::Leaf {};

// The leaves that are buffers, by parameter.
std::vector<const Node*> buffers_of(const ir::Graph& g) {
  std::vector<const Node*> buffers(g.num_buffers);
  for (const ir::LeafUse& use : g.leaves)
    if (use.feed == ir::Feed::kBuffer) buffers[use.index] = use.node;
  return buffers;
}

// Which fills become buffers: those that the plan uploads, and what a loop starts from, which is a
// buffer in every other round. A fill that comes again is made by the rounds themselves.
std::vector<const Node*> uploaded_fills(const ir::Graph& g) {
  uint64_t first = UINT64_MAX;
  for (const Node* n : g.order)
    if (n->role() == Role::kInterior) first = std::min(first, n->sequence());
  std::unordered_set<uint64_t> again;
  for (const Node* n : g.order)
    if (n->role() == Role::kFill && n->sequence() > first) again.insert(n->types()[0].hash().lo);
  std::vector<const Node*> fills;
  for (const ir::LeafUse& use : g.leaves) {
    if (use.node->role() != Role::kFill) continue;
    bool start = use.node->sequence() < first && !again.contains(use.node->types()[0].hash().lo);
    if (use.feed == ir::Feed::kBuffer || start) fills.push_back(use.node);
  }
  std::sort(fills.begin(), fills.end());
  return fills;
}

}  // namespace

Segments::Segments(const Plan& plan, const Split& split)
    : plan_(plan),
      split_(split),
      nodes_(split.num_segments),
      results_(split.num_segments),
      ending_(split.num_segments),
      ending_donors_(split.num_segments),
      uploaded_(std::make_shared<std::vector<const Node*>>(uploaded_fills(plan.graph))) {
  for (const Node* n : plan.graph.order)
    if (n->role() == Role::kInterior) nodes_[split.segment_of[n->slot]].push_back(n);
  find_passed();
  find_donors();
}

void Segments::find_passed() {
  auto segment = [this](const Node* n) { return split_.segment_of[n->slot]; };
  for (const Value& r : plan_.graph.roots) {
    Passed& p = passed_[{r.node.get(), r.index}];
    p.made_by = p.last_user = segment(r.node.get());
    p.root = true;
  }
  for (size_t k = 0; k < nodes_.size(); ++k)
    for (const Node* n : nodes_[k])
      for (const Value& v : n->operands()) {
        const Node* from = v.node.get();
        if (from->role() != Role::kInterior || segment(from) == k) continue;
        Passed& p = passed_[{from, v.index}];
        p.made_by = segment(from);
        p.last_user = std::max(p.last_user, static_cast<uint32_t>(k));
      }
  for (size_t k = 0; k < nodes_.size(); ++k) {
    std::sort(nodes_[k].begin(), nodes_[k].end(),
              [](const Node* a, const Node* b) { return a->sequence() < b->sequence(); });
    for (const Node* n : nodes_[k])
      for (uint32_t i = 0; i < n->types().size(); ++i)
        if (auto it = passed_.find({n, i}); it != passed_.end()) {
          results_[k].push_back(it->first);
          ending_[it->second.last_user].push_back(it->first);
        }
  }
}

void Segments::find_donors() {
  if (plan_.donors.empty()) return;
  std::vector<const Node*> buffers = buffers_of(plan_.graph);
  std::unordered_map<const Node*, size_t> last_user;
  for (size_t i = 0; i < plan_.donors.size(); ++i) {
    const Node* leaf = buffers[plan_.donors[i].parameter];
    donor_of_[leaf] = i;
    last_user[leaf] = 0;
  }
  for (size_t k = 0; k < nodes_.size(); ++k)
    for (const Node* n : nodes_[k])
      for (const Value& v : n->operands())
        if (auto it = last_user.find(v.node.get()); it != last_user.end()) it->second = k;
  for (const auto& [leaf, k] : last_user) ending_donors_[k].push_back(leaf);
}

ir::NodePtr Segments::leaf_of(const Value& v) {
  Passed& p = value(v);
  if (!p.leaf) {
    std::shared_ptr<ir::Leaf> holds = p.data;
    if (!holds) holds = std::make_shared<StandIn>();
    p.leaf = Node::make_data(v.type(), std::move(holds));
    p.leaf->set_location(v.node->location());
  }
  return p.leaf;
}

ir::NodePtr Segments::copy(const Node& n,
                           const std::unordered_map<const Node*, ir::NodePtr>& copies) {
  std::vector<Value> operands;
  bool same = true;
  for (const Value& v : n.operands()) {
    auto own = copies.find(v.node.get());
    if (v.node->role() != Role::kInterior)
      operands.push_back(v);
    else if (own != copies.end())
      operands.push_back({own->second, v.index});
    else
      operands.push_back({leaf_of(v), 0});
    same = same && operands.back() == v;
  }
  if (same) return ir::NodePtr::share(const_cast<Node*>(&n));
  return n.with_operands(operands);
}

PlanRequest Segments::request(size_t k) {
  std::unordered_map<const Node*, ir::NodePtr> copies;
  for (const Node* n : nodes_[k]) copies.emplace(n, copy(*n, copies));
  PlanRequest r;
  for (const auto& [n, index] : results_[k]) r.roots.push_back({copies.at(n), index});
  r.uploaded = [fills = uploaded_](const Node& n) {
    return std::binary_search(fills->begin(), fills->end(), &n);
  };
  r.device = plan_.device;
  r.force_data = plan_.force_data;
  r.where = plan_.where;
  r.rounds = split_.rounds;
  r.rounds_at = split_.where;
  // A loop that updates nothing in place would only have a second program by that.
  if (!plan_.donors.empty()) offer(k, r);
  return r;
}

// In-place updates have the old value for their first operand, many times over.
void Segments::offer(size_t k, PlanRequest& r) const {
  std::unordered_set<const Node*> given(ending_donors_[k].begin(), ending_donors_[k].end());
  for (const Key& key : ending_[k])
    if (const Passed& p = passed_.at(key); p.leaf && !p.root) given.insert(p.leaf.get());
  r.previous.assign(r.roots.size(), nullptr);
  r.kept = [](const void*) { return false; };
  for (size_t i = 0; i < r.roots.size(); ++i) {
    const Node* n = r.roots[i].node.get();
    while (n->role() == Role::kInterior && !n->operands().empty()) n = n->operands()[0].node.get();
    if (!given.contains(n) || !(n->types()[0] == r.roots[i].type())) continue;
    r.previous[i] = identity(*n);
    given.erase(n);
  }
}

std::vector<uint8_t> Segments::donated(const Plan& part, const std::vector<uint8_t>& may) const {
  if (part.donors.empty() || !part.replaced.empty()) return {};
  std::vector<const Node*> buffers = buffers_of(part.graph);
  std::vector<uint8_t> out(count_arguments(part));
  for (const Donor& d : part.donors) {
    auto it = donor_of_.find(buffers[d.parameter]);
    out[d.parameter] = it == donor_of_.end() || (!may.empty() && may[it->second]);
  }
  return out;
}

void Segments::take(size_t k, const std::vector<DataPtr>& outputs) {
  for (size_t i = 0; i < results_[k].size(); ++i) {
    Passed& p = passed_.at(results_[k][i]);
    p.data = outputs[i];
    p.leaf = {};
  }
  for (const Key& key : ending_[k]) {
    Passed& p = passed_.at(key);
    p.leaf = {};
    if (!p.root) p.data = nullptr;
  }
}

namespace {

void tell_loop(const Split& s, const std::string& where) {
  static std::atomic<bool> told{false};
  if (!s.rounds || told.exchange(true)) return;
  std::string line = s.where ? ir::line_text(s.where) : where;
  probe::say(0, cat(s.rounds, " steps were recorded", line.empty() ? "" : cat(" at ", line),
                    " without a sync between them: they run one by one, as ", s.num_segments,
                    " runs of small programs\n  try: call torch_pjrt.sync() at the end of a step"));
}

}  // namespace

std::shared_ptr<Executor::KnownSplit> Executor::split_of(const Plan& plan) {
  auto least = static_cast<size_t>(flag_int(Flag::kSplitNodes));
  if (!least || plan.straight || plan.placement.partitioned() || plan.graph.order.size() < 64)
    return nullptr;
  {
    std::lock_guard lock(mu_);
    if (auto* known = splits_.get(plan.key.total)) return *known;
  }
  auto made = std::make_shared<KnownSplit>();
  {
    std::lock_guard lock(ir::graph_lock());
    number_slots(plan);
    made->split = split_graph(plan.graph, least);
  }
  std::lock_guard lock(mu_);
  return *splits_.put(plan.key.total, std::move(made));
}

std::vector<DataPtr> Executor::run_segment(Segments& segments, size_t k,
                                           const std::vector<uint8_t>& may, SyncResult& result) {
  throttle();
  Prepared p = prepare(this->plan(segments.request(k)));
  const Plan& part = *p.plan;
  std::vector<DataPtr> made(part.output_of.size());
  std::vector<uint8_t> donated = segments.donated(part, may);
  std::vector<DataPtr> args = arguments(part, result.uploads);
  std::vector<DataPtr> outputs =
      run(p.program, {args, donated, part.device, part.where, part.graph.roots});
  explainer_.runs_of(part.key.total)->fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = outputs[static_cast<size_t>(part.output_of[i])];
  return made;
}

// Nothing where the graph is one program, or where a host op raises: the whole program tells which
// roots that concerns.
std::optional<SyncResult> Executor::run_split(const PlanPtr& plan,
                                              const std::function<bool()>& take) {
  static probe::Counter& splits = probe::counter("SplitSync");
  static probe::Counter& runs = probe::counter("SplitRun");
  std::shared_ptr<KnownSplit> known = split_of(*plan);
  if (!known || known->split.segment_of.empty()) return std::nullopt;
  // All of them are compiled before one runs: a failure leaves every tensor as it was.
  auto segments_of = [&plan, &known] {
    std::lock_guard lock(ir::graph_lock());
    number_slots(*plan);
    return Segments(*plan, known->split);
  };
  if (!known->prepared) {
    Segments segments = segments_of();
    for (size_t k = 0; k < segments.count(); ++k) prepare(this->plan(segments.request(k)));
    known->prepared = true;
  }
  tell_loop(known->split, plan->where);
  std::vector<uint8_t> may = given(*plan, take);
  SyncResult result = pass_leaves(*plan);
  try {
    Segments now = segments_of();
    for (size_t k = 0; k < now.count(); ++k) now.take(k, run_segment(now, k, may, result));
    for (size_t i = 0; i < plan->output_of.size(); ++i)
      if (plan->output_of[i] >= 0) result.outputs[i] = now.made(plan->root(i));
    runs.add(static_cast<int64_t>(now.count()));
  } catch (const Error& e) {
    if (e.raised_by() >= 0) return std::nullopt;
    throw;
  }
  splits.add();
  return result;
}

}  // namespace tp::exec
