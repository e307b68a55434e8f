#include "exec/plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/flags.h"
#include "base/text.h"

namespace tp::exec {

using ir::Value;

namespace {

bool is_leaf(const Value& v) {
  return v.node->role() == ir::Role::kData || v.node->role() == ir::Role::kFill;
}

std::vector<size_t> canonical_order(const std::vector<Value>& roots) {
  std::vector<std::pair<Hash128, uint32_t>> keys;
  keys.reserve(roots.size());
  for (const Value& r : roots) keys.emplace_back(r.node->dag_hash(), r.index);
  std::vector<size_t> order(roots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto& [x, i] = keys[a];
    const auto& [y, k] = keys[b];
    return std::tie(x.hi, x.lo, i) < std::tie(y.hi, y.lo, k);
  });
  return order;
}

// Puts the distinct interior values of `roots`, in `order`, into `to`; where each went, by root.
std::vector<int> place_roots(const std::vector<Value>& roots, const std::vector<size_t>& order,
                             std::vector<Value>& to) {
  std::vector<int> output_of(roots.size(), -1);
  std::unordered_map<const ir::Node*, int> first;  // of a node: its place for output 0, if alone
  std::unordered_map<uint64_t, int> others;        // by node sequence and output
  first.reserve(roots.size());
  to.reserve(roots.size());
  for (size_t i : order) {
    const Value& r = roots[i];
    if (is_leaf(r)) continue;
    int next = static_cast<int>(to.size());
    int at = r.index == 0
                 ? first.try_emplace(r.node.get(), next).first->second
                 : others.try_emplace(r.node->sequence() << 16 | r.index, next).first->second;
    if (at == next) to.push_back(r);
    output_of[i] = at;
  }
  return output_of;
}

bool calls_host(const ir::Graph& g) {
  return std::any_of(g.order.begin(), g.order.end(),
                     [](const ir::Node* n) { return n->kind().host; });
}

std::vector<Donor> find_donors(const PlanRequest& request, const Plan& p) {
  if (request.previous.empty() || !flag_bool(Flag::kDonation)) return {};
  std::vector<Overwrite> overwritten;
  for (size_t i = 0; i < p.output_of.size(); ++i)
    if (request.previous[i] && p.output_of[i] >= 0)
      overwritten.push_back({static_cast<uint32_t>(p.output_of[i]), request.previous[i]});
  // A host op may raise while the program runs, as it would in eager mode: no tensor may pay for
  // that with its value.
  if (overwritten.empty() || calls_host(p.graph)) return {};
  Kept kept{.results = {}, .by_tensor = request.kept};
  for (const Value& v : p.passed)
    if (v) kept.results.insert(identity(*v.node));
  return choose_donors(p.graph, overwritten, kept);
}

// Adds the references that a plan holds to nodes of `g` outside of g itself. Under graph_lock().
void add_references(const Plan& p, const ir::Graph& g, std::vector<uint32_t>& known) {
  auto add = [&](const ir::Node* n) {
    if (n && n->slot < g.order.size() && g.order[n->slot] == n) ++known[n->slot];
  };
  for (const Value& v : p.passed) add(v.node.get());
  for (const ir::NodePtr& n : p.held) add(n.get());
  if (&p.graph != &g)
    for (const Value& v : p.graph.roots) add(v.node.get());
  if (p.base) add_references(*p.base, g, known);
}

std::span<const uint32_t> as_words(const std::vector<Donor>& donors) {
  static_assert(sizeof(Donor) == 2 * sizeof(uint32_t));
  return {reinterpret_cast<const uint32_t*>(donors.data()), 2 * donors.size()};
}

Key key_of(const Plan& p, const KeyContext& context) {
  std::span<const uint64_t> general;
  if (p.general) general = p.general->signature;
  return make_key({.force_data = p.force_data,
                   .environment = context.environment,
                   .torch_revision = context.torch_revision,
                   .revision = context.revision,
                   .roots = p.graph.roots,
                   .general = general,
                   .parameter_sequence = p.graph.sequence,
                   .donated = as_words(p.donors),
                   .device = p.device,
                   .sharding = p.placement.text});
}

void finish(Plan& p, const KeyContext& context) {
  if (!p.donors.empty()) {
    p.known = count_references(p.graph);
    add_references(p, p.graph, p.known);
  }
  p.key = key_of(p, context);
}

void number_slots(const ir::Graph& g) {
  for (size_t i = 0; i < g.order.size(); ++i) g.order[i]->slot = static_cast<uint32_t>(i);
}

// The roots in the one order of a family's graphs: hashes of roots hold the numbers, and ties stay
// in the caller's order. place[i]: where root i of the plan went.
std::vector<Value> by_structure(const Plan& plan, std::vector<int>& place) {
  std::vector<size_t> asked;  // places among the plan's roots, in the caller's order
  std::vector<Value> values, ordered;
  std::vector<bool> seen(plan.graph.roots.size());
  for (int at : plan.output_of) {
    if (at < 0 || seen[static_cast<size_t>(at)]) continue;
    seen[static_cast<size_t>(at)] = true;
    asked.push_back(static_cast<size_t>(at));
    values.push_back(plan.graph.roots[static_cast<size_t>(at)]);
  }
  place.assign(plan.graph.roots.size(), -1);
  for (size_t i : structural_order(values, plan.graph)) {
    place[asked[i]] = static_cast<int>(ordered.size());
    ordered.push_back(values[i]);
  }
  return ordered;
}

// `donors` of graph `from` as donors of `to`, a graph of the same nodes whose root i stands at
// `place[i]`. Slots are those of `to`.
std::vector<Donor> renumber(const std::vector<Donor>& donors, const ir::Graph& from,
                            const ir::Graph& to, const std::vector<int>& place) {
  std::vector<const ir::Node*> leaf_of(from.num_buffers);
  for (const ir::LeafUse& use : from.leaves)
    if (use.feed == ir::Feed::kBuffer) leaf_of[use.index] = use.node;
  std::unordered_map<const ir::Node*, uint32_t> parameter;
  for (const ir::LeafUse& use : to.leaves)
    if (use.feed == ir::Feed::kBuffer) parameter[use.node] = use.index;
  std::vector<Donor> out;
  for (const Donor& d : donors)
    out.push_back({parameter.at(leaf_of[d.parameter]), static_cast<uint32_t>(place[d.output])});
  std::sort(out.begin(), out.end(),
            [](const Donor& a, const Donor& b) { return a.parameter < b.parameter; });
  return out;
}

}  // namespace

std::vector<uint64_t> signature_of(const Plan& plan) {
  std::vector<uint64_t> s = plan.general ? plan.general->signature : ir::signature(plan.graph);
  if (!plan.placement.partitioned()) return s;
  Hash128 h = hash_text(plan.placement.text);
  s.insert(s.end(), {h.lo, h.hi});
  return s;
}

void number_slots(const Plan& plan) { number_slots(plan.graph); }

PlanPtr make_plan(PlanRequest request, std::vector<Value> replaced, const KeyContext& context) {
  auto p = std::make_shared<Plan>();
  std::vector<Value> roots;
  p->output_of = place_roots(request.roots, canonical_order(request.roots), roots);
  p->passed.resize(request.roots.size());
  for (size_t i = 0; i < request.roots.size(); ++i)
    if (p->output_of[i] < 0) p->passed[i] = std::move(request.roots[i]);
  request.roots.clear();  // the plan is the only holder now: donation counts on it
  p->graph = ir::build_graph(std::move(roots), request.uploaded);
  if (flag_int(Flag::kVerify) >= 2) ir::verify(p->graph);
  p->held = std::move(request.held);
  p->replaced = std::move(replaced);
  p->device = request.device;
  p->force_data = request.force_data;
  p->straight = request.straight;
  p->part = request.part;
  p->where = std::move(request.where);
  p->rounds = request.rounds;
  p->rounds_at = request.rounds_at;
  p->donors = find_donors(request, *p);
  p->layouts = std::move(request.layouts);
  p->placement = place(p->graph, p->output_of, p->layouts, p->donors);
  finish(*p, context);
  return p;
}

PlanPtr make_general_plan(const PlanPtr& plan, Families& families, const KeyContext& context) {
  Numbers numbers = split_numbers(plan->graph);
  if (numbers.values.empty()) return nullptr;
  auto p = std::make_shared<Plan>();
  std::vector<int> at;  // of the plan's roots
  std::vector<Value> roots = by_structure(*plan, at);
  std::unordered_map<const ir::Node*, bool> uploaded;
  for (const ir::LeafUse& use : plan->graph.leaves)
    uploaded[use.node] = use.feed == ir::Feed::kBuffer;
  p->graph =
      ir::build_graph(std::move(roots), [&](const ir::Node& fill) { return uploaded.at(&fill); });
  numbers = split_numbers(p->graph);
  std::vector<bool> varies = families.varying(numbers);
  if (varies.empty()) {
    number_slots(plan->graph);  // they are p's now
    return nullptr;
  }
  p->general = make_general(p->graph, std::move(numbers), varies);
  for (int was : plan->output_of)
    p->output_of.push_back(was < 0 ? was : at[static_cast<size_t>(was)]);
  p->passed = plan->passed;
  p->device = plan->device;
  p->force_data = plan->force_data;
  p->straight = plan->straight;
  p->part = plan->part;
  p->where = plan->where;
  p->rounds = plan->rounds;
  p->rounds_at = plan->rounds_at;
  p->base = plan;
  p->donors = renumber(plan->donors, plan->graph, p->graph, at);
  p->layouts = plan->layouts;
  p->placement = place(p->graph, p->output_of, p->layouts, p->donors);
  finish(*p, context);
  return p;
}

}  // namespace tp::exec
