// Executor: graphs without a program that are interpreted (exec/tiers.h), whole or peeled.
#include <bit>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "exec/executor.h"
#include "exec/interpreter.h"
#include "exec/peel.h"
#include "probe/events.h"
#include "probe/probe.h"

namespace tp::exec {

using client::DataPtr;
using ir::Node;
using ir::Value;

namespace {

constexpr size_t kMostSmallNodes = 64;
constexpr int64_t kMostElements = 1 << 16;

// Values that the host or a program made.
class Made {
 public:
  void put(const Value& v, DataPtr data) {
    all_[v.node.get()].emplace_back(v.index, std::move(data));
  }
  DataPtr get(const Value& v) const {
    auto it = all_.find(v.node.get());
    if (it == all_.end()) return nullptr;
    for (const auto& [index, data] : it->second)
      if (index == v.index) return data;
    return nullptr;
  }

 private:
  std::unordered_map<const Node*, std::vector<std::pair<uint32_t, DataPtr>>> all_;
};

size_t place_of(const ir::Graph& g, const Node* n) {
  for (size_t i = 0; i < g.order.size(); ++i)
    if (g.order[i] == n) return i;
  return 0;
}

// Computes `nodes` for `wanted`, which with all their other operands go into and come from `made`.
void compute(Interpreter& interpreter, const Plan& plan, const std::vector<const Node*>& nodes,
             std::vector<Value> wanted, Made& made) {
  if (nodes.empty()) return;
  HostWork work{
      .order = with_leaves(nodes), .given = {}, .wanted = std::move(wanted), .device = plan.device};
  std::unordered_set<const Node*> own(work.order.begin(), work.order.end());
  for (const Node* n : nodes)
    for (const Value& v : n->operands())
      if (!own.contains(v.node.get())) work.given.emplace_back(v, made.get(v));
  int64_t start = probe::now_ns();
  std::vector<DataPtr> out;
  try {
    out = interpreter.run(work);
  } catch (const Error& e) {
    if (e.raised_by() < 0) throw;
    const Node* raised = work.order[static_cast<size_t>(e.raised_by())];
    throw_host_failure(Error(e).raised_by(static_cast<int64_t>(place_of(plan.graph, raised))),
                       plan);
  }
  probe::event(probe::Phase::kExecute, start, probe::now_ns(), plan.key.total.hi);
  for (size_t i = 0; i < out.size(); ++i) made.put(work.wanted[i], std::move(out[i]));
}

// The roots among `nodes`, and what `users` read of them.
std::vector<Value> wanted_of(const ir::Graph& g, const std::vector<const Node*>& nodes,
                             std::vector<Value> more, const std::vector<const Node*>& users) {
  std::unordered_set<const Node*> own(nodes.begin(), nodes.end());
  auto add = [&](const Value& v) {
    if (!own.contains(v.node.get())) return;
    for (const Value& w : more)
      if (w == v) return;
    more.push_back(v);
  };
  for (const Value& v : g.roots) add(v);
  for (const Node* n : users)
    for (const Value& v : n->operands()) add(v);
  return more;
}

bool is_sharded(const ir::Graph& g) {
  for (const Node* n : g.order)
    if (n->sharding()) return true;
  return false;
}

// Of a line's graphs the first ones, then every power of two: a sketch takes a pass over the graph,
// and texts take longer.
constexpr int64_t kExplained = 32, kKeptAsText = 8;
bool is_explained(int64_t graphs) {
  return graphs <= kExplained || std::has_single_bit(static_cast<uint64_t>(graphs));
}

void count_interpreted(size_t nodes) {
  static probe::Counter& graphs = probe::counter("Interpreted");
  static probe::Counter& ops = probe::counter("InterpretedOps");
  graphs.add();
  ops.add(static_cast<int64_t>(nodes));
}

}  // namespace

SyncResult Executor::results_of(const Plan& plan, const std::vector<DataPtr>& outputs) {
  SyncResult result = pass_leaves(plan);
  for (size_t i = 0; i < plan.output_of.size(); ++i)
    if (plan.output_of[i] >= 0) result.outputs[i] = outputs[static_cast<size_t>(plan.output_of[i])];
  return result;
}

SyncResult Executor::interpret_whole(const Plan& plan, const std::vector<const Node*>& nodes) {
  Made made;
  compute(*interpreter_, plan, nodes, plan.graph.roots, made);
  count_interpreted(nodes.size());
  tiers_.note(plan.key.total, plan.where, nodes.size(), false);
  {
    std::lock_guard lock(mu_);
    last_ = {plan.key.total, plan.graph.num_nodes()};
  }
  std::vector<DataPtr> outputs;
  for (const Value& v : plan.graph.roots) outputs.push_back(made.get(v));
  return results_of(plan, outputs);
}

namespace {

PlanRequest core_request(const Plan& plan, std::vector<Value> roots) {
  auto uploaded = std::make_shared<std::unordered_set<const Node*>>();
  for (const ir::LeafUse& use : plan.graph.leaves)
    if (use.feed == ir::Feed::kBuffer) uploaded->insert(use.node);
  PlanRequest r;
  r.roots = std::move(roots);
  r.uploaded = [uploaded](const Node& n) { return uploaded->contains(&n); };
  r.device = plan.device;
  r.force_data = plan.force_data;
  r.where = plan.where;
  return r;
}

}  // namespace

// Of the graph without its numbers.
Hash128 Executor::structure_of(const Plan& plan) {
  std::lock_guard lock(ir::graph_lock());
  number_slots(plan);
  std::vector<uint64_t> words = split_numbers(plan.graph).structure;
  words.push_back(plan.force_data);
  return hash_bytes(words.data(), words.size() * sizeof(uint64_t));
}

bool Executor::core_varies(const Plan& plan, const Peeled& p) {
  PlanPtr core = this->plan(core_request(plan, make_core(plan.graph, p, {}).roots));
  if (core->graph.roots.empty()) return false;
  return tiers_.varies(structure_of(*core), structure_of(plan), !plan.general);
}

// Nothing where a host op of the core raises: the whole program tells which roots that concerns.
std::optional<SyncResult> Executor::interpret_glue(const Plan& plan, const Peeled& p) {
  static probe::Counter& peeled = probe::counter("PeeledSync");
  const ir::Graph& g = plan.graph;
  Made made;
  compute(*interpreter_, plan, p.before, wanted_of(g, p.before, p.given, p.after), made);
  std::vector<DataPtr> buffers;
  for (const Value& v : p.given) buffers.push_back(made.get(v));
  Core core = make_core(g, p, buffers);
  std::vector<Value> asked = core.roots;
  PlanPtr part = this->plan(core_request(plan, std::move(core.roots)));
  SyncResult of_core;
  try {
    of_core = run_program(prepare(part), {});
  } catch (const HostFailure&) {
    return std::nullopt;
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    bool root = i < core.root_of.size();
    made.put(root ? g.roots[core.root_of[i]] : p.taken[i - core.root_of.size()],
             of_core.outputs[i]);
  }
  compute(*interpreter_, plan, p.after, wanted_of(g, p.after, {}, {}), made);
  count_interpreted(p.before.size() + p.after.size());
  peeled.add();
  tiers_.note(plan.key.total, plan.where, p.before.size() + p.after.size(), true);
  std::vector<DataPtr> outputs;
  for (const Value& v : g.roots) outputs.push_back(made.get(v));
  return results_of(plan, outputs);
}

void Executor::explain_interpreted(const Plan& plan, int64_t graphs) {
  if (!is_explained(graphs)) return;
  const ir::Graph& g = plan.graph;
  std::shared_ptr<GraphRecord> record;
  std::optional<Sketch> sketch;
  {
    std::lock_guard lock(ir::graph_lock());
    number_slots(plan);
    sketch = make_sketch(g, plan.key, plan.where, plan.donors);
    if (graphs <= kKeptAsText)
      record = std::make_shared<GraphRecord>(GraphRecord{
          g.num_nodes(), ir::dump_text(g, ir::Lines::kYes), "", ir::dump_dot(g), plan.key.total});
  }
  sketch->environment = explainer_.words(client_())[0].second;
  explainer_.interpreted(std::move(*sketch), g.num_nodes());
  std::lock_guard lock(mu_);
  if (record) records_.put(plan.key.total, std::move(record));
}

// Behind the small graphs: interpreted until it came as often as its line needs (Tiers::count). The
// last time its compile begins, in a thread of its own, while Python goes on.
std::optional<SyncResult> Executor::interpret_any(const PlanPtr& plan, Tier tier) {
  bool wanted =
      tier == Tier::kOn || (tier == Tier::kVarying && tiers_.compiled_before(plan->where));
  auto [seen, needed, graphs] = tiers_.count(plan->key.total, plan->where);
  if (seen >= needed || (!wanted && seen == 0) || plan->placement.partitioned() ||
      is_sharded(plan->graph))
    return std::nullopt;
  if (seen == 0 && is_stored(*plan)) return std::nullopt;
  if (seen == 0) explain_interpreted(*plan, graphs);
  std::vector<const Node*> nodes;
  for (const Node* n : plan->graph.order)
    if (n->role() == ir::Role::kInterior) nodes.push_back(n);
  SyncResult result = interpret_whole(*plan, nodes);
  // Behind it, not beside: kernels that share their processors with a compiler take five times as
  // long (OpenMP's threads wait for each other), and both together the most memory.
  if (seen + 1 == needed) compile_beside(*plan);
  return result;
}

std::optional<SyncResult> Executor::interpret(const PlanPtr& plan) {
  Tier tier = tier_setting();
  if (!interpreter_ || tier == Tier::kOff || plan->straight || !interpreter_->allowed())
    return std::nullopt;
  Peeled p = peel(plan->graph, [&](const Node& n) {
    return is_whole_numbers(n, kMostElements) && !n.sharding() && interpreter_->has_kernel(n);
  });
  if (p.core.empty()) {
    if (p.before.size() > kMostSmallNodes || tiers_.seen(plan->key.total)) return std::nullopt;
    return interpret_whole(*plan, p.before);
  }
  bool glue = !p.before.empty() || !p.after.empty();
  if (glue && plan->donors.empty() && core_varies(*plan, p))
    if (auto done = interpret_glue(*plan, p)) return done;
  return interpret_any(plan, tier);
}

}  // namespace tp::exec
