#include "exec/peel.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tp::exec {

using ir::Node;
using ir::Role;
using ir::Value;

namespace {

bool is_interior(const Node& n) { return n.role() == Role::kInterior; }

bool whole(ir::Type t, int64_t most) {
  return t && (ir::is_int(t.dtype()) || t.dtype() == ir::DType::kPred) && t.numel() <= most;
}

using Nodes = std::unordered_set<const Node*>;

// Glue all of whose operands are leaves or such glue.
Nodes find_before(const ir::Graph& g, const Nodes& glue) {
  Nodes out;
  for (const Node* n : g.order) {
    if (!glue.contains(n)) continue;
    bool ready = std::ranges::all_of(n->operands(), [&](const Value& v) {
      return !is_interior(*v.node) || out.contains(v.node.get());
    });
    if (ready) out.insert(n);
  }
  return out;
}

// Glue all of whose users are such glue.
Nodes find_after(const ir::Graph& g, const Nodes& glue, const Nodes& before) {
  Nodes needed, out;
  for (size_t i = g.order.size(); i-- > 0;) {
    const Node* n = g.order[i];
    if (!is_interior(*n)) continue;
    if (glue.contains(n) && !before.contains(n) && !needed.contains(n)) {
      out.insert(n);
      continue;
    }
    for (const Value& v : n->operands()) needed.insert(v.node.get());
  }
  return out;
}

void add_once(std::vector<Value>& to, const Value& v) {
  if (std::ranges::find(to, v) == to.end()) to.push_back(v);
}

}  // namespace

bool is_whole_numbers(const Node& n, int64_t most) {
  for (ir::Type t : n.types())
    if (!whole(t, most)) return false;
  for (const Value& v : n.operands())
    if (!whole(v.type(), most)) return false;
  return true;
}

Peeled peel(const ir::Graph& g, const std::function<bool(const Node&)>& is_glue) {
  Nodes glue;
  for (const Node* n : g.order)
    if (is_interior(*n) && is_glue(*n)) glue.insert(n);
  Nodes before = find_before(g, glue), after = find_after(g, glue, before);
  Peeled p;
  for (const Node* n : g.order) {
    if (!is_interior(*n)) continue;
    bool is_before = before.contains(n), is_after = after.contains(n);
    (is_before ? p.before : is_after ? p.after : p.core).push_back(n);
    if (is_before) continue;
    for (const Value& v : n->operands()) {
      if (!is_interior(*v.node)) continue;
      if (!is_after && before.contains(v.node.get())) add_once(p.given, v);
      if (is_after && !before.contains(v.node.get()) && !after.contains(v.node.get()))
        add_once(p.taken, v);
    }
  }
  return p;
}

Core make_core(const ir::Graph& g, const Peeled& p, std::span<const client::DataPtr> buffers) {
  std::unordered_map<const Node*, ir::NodePtr> made;
  auto now = [&](const Value& v) -> Value {
    auto it = made.find(v.node.get());
    return it == made.end() ? v : Value{it->second, v.index};
  };
  std::vector<std::pair<Value, Value>> leaves;
  for (size_t i = 0; i < p.given.size(); ++i) {
    ir::NodePtr leaf = Node::make_data(p.given[i].type(), buffers.empty() ? nullptr : buffers[i]);
    leaf->set_location(p.given[i].node->location());
    leaves.emplace_back(p.given[i], Value{std::move(leaf), 0});
  }
  auto operand = [&](const Value& v) {
    for (const auto& [was, is] : leaves)
      if (was == v) return is;
    return now(v);
  };
  for (const Node* n : p.core) {
    std::vector<Value> operands;
    bool same = true;
    for (const Value& v : n->operands()) {
      operands.push_back(operand(v));
      same = same && operands.back() == v;
    }
    if (!same) made.emplace(n, n->with_operands(operands));
  }
  Core core;
  Nodes own(p.core.begin(), p.core.end());
  for (size_t i = 0; i < g.roots.size(); ++i) {
    if (!own.contains(g.roots[i].node.get())) continue;
    core.roots.push_back(now(g.roots[i]));
    core.root_of.push_back(i);
  }
  for (const Value& v : p.taken) core.roots.push_back(now(v));
  return core;
}

std::vector<const Node*> with_leaves(const std::vector<const Node*>& nodes) {
  std::vector<const Node*> order;
  Nodes seen;
  for (const Node* n : nodes) {
    for (const Value& v : n->operands())
      if (!is_interior(*v.node) && seen.insert(v.node.get()).second) order.push_back(v.node.get());
    order.push_back(n);
  }
  return order;
}

}  // namespace tp::exec
