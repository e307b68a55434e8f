#include "ir/region.h"

#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"

namespace tp::ir {
namespace {

struct Carried final : Leaf {
  std::vector<RegionPtr> regions;
};

// A node is made with its operands, types and words; what it holds on to is added before anybody
// else sees it.
void hold(Node& n, std::shared_ptr<Leaf> what) {
  const_cast<std::shared_ptr<Leaf>&>(n.payload()) = std::move(what);
}

// Which nodes depend on a set of leaves. Nodes older than the leaves do not.
class Dependence {
 public:
  Dependence(std::span<const NodePtr> leaves, uint64_t first) : first_(first) {
    for (const NodePtr& n : leaves) known_[n.get()] = true;
  }
  bool operator()(const Node* root) {
    std::vector<const Node*> stack{root};
    while (!stack.empty()) {
      const Node* n = stack.back();
      if (known_.contains(n)) {
        stack.pop_back();
        continue;
      }
      bool ready = true, any = false;
      if (n->sequence() >= first_)
        for (const Value& v : n->operands()) {
          auto it = known_.find(v.node.get());
          if (it == known_.end()) {
            stack.push_back(v.node.get());
            ready = false;
          } else {
            any = any || it->second;
          }
        }
      if (!ready) continue;
      known_[n] = any;
      stack.pop_back();
    }
    return known_.at(root);
  }

 private:
  uint64_t first_;
  std::unordered_map<const Node*, bool> known_;
};

// Copies the nodes that depend on the parameters, over leaves of their own.
class Copy {
 public:
  Copy(std::span<const NodePtr> parameters, uint64_t first)
      : depends_(parameters, first), region_(std::make_shared<Region>()) {
    for (const NodePtr& p : parameters) copies_[p.get()] = parameter({p, 0});
  }

  Extracted run(std::span<const Value> results) {
    std::vector<Value> roots;
    for (const Value& r : results) {
      if (depends_(r.node.get())) visit(r.node.get());
      roots.push_back(inner(r));
    }
    Region& r = *region_;
    std::lock_guard lock(graph_lock());
    r.graph = build_graph(std::move(roots), [](const Node&) { return true; });
    std::unordered_map<const Node*, uint32_t> place;
    for (size_t i = 0; i < r.leaves.size(); ++i)
      place[r.leaves[i].get()] = static_cast<uint32_t>(i);
    for (const LeafUse& use : r.graph.leaves) r.parameters.push_back(place.at(use.node));
    std::vector<uint64_t> words = signature(r.graph);
    words.insert(words.end(), r.parameters.begin(), r.parameters.end());
    for (Type t : r.parameter_types) words.push_back(t.hash().lo);
    r.id = hash_bytes(words.data(), words.size() * sizeof(uint64_t));
    return {region_, std::move(captured_)};
  }

 private:
  // A number stays one: promotion asks, and its value is no part of the region.
  NodePtr parameter(const Value& v) {
    const Node& n = *v.node;
    NodePtr leaf = n.role() == Role::kNumber
                       ? Node::make_number(n.scalar(), &n.kind() == &number_kind(true))
                       : Node::make_data(v.type(), nullptr);
    region_->leaves.push_back(leaf);
    region_->parameter_types.push_back(v.type());
    return leaf;
  }

  // The value in the region; its node, where it depends on a parameter, has been copied.
  Value inner(const Value& v) {
    if (depends_(v.node.get())) return {copies_.at(v.node.get()), v.index};
    for (auto& [at, leaf] : outer_[v.node.get()])
      if (at == v.index) return {leaf, 0};
    NodePtr leaf = parameter(v);
    captured_.push_back(v);
    outer_[v.node.get()].emplace_back(v.index, leaf);
    return {std::move(leaf), 0};
  }

  void visit(const Node* root) {
    std::vector<const Node*> stack{root};
    while (!stack.empty()) {
      const Node* n = stack.back();
      bool ready = true;
      if (!copies_.contains(n))
        for (const Value& v : n->operands())
          if (depends_(v.node.get()) && !copies_.contains(v.node.get())) {
            stack.push_back(v.node.get());
            ready = false;
          }
      if (!ready) continue;
      if (!copies_.contains(n)) copies_[n] = copy(*n);
      stack.pop_back();
    }
  }

  NodePtr copy(const Node& n) {
    std::vector<Value> operands;
    for (const Value& v : n.operands()) operands.push_back(inner(v));
    return n.with_operands(operands);
  }

  Dependence depends_;
  std::shared_ptr<Region> region_;
  std::unordered_map<const Node*, NodePtr> copies_;
  std::unordered_map<const Node*, std::vector<std::pair<uint32_t, NodePtr>>> outer_;
  std::vector<Value> captured_;
};

const Symbol kLength = symbol("length"), kReverse = symbol("reverse"), kCounts = symbol("counts"),
             kExtra = symbol("extra"), kIds = symbol("regions"), kIn = symbol("in"),
             kOut = symbol("out"), kReplicas = symbol("replicas");

NodePtr make_control(const OpKind& kind, AttrsBuilder& attrs, std::span<const Extra> extra,
                     std::vector<RegionPtr> regions, std::span<const Value> operands,
                     std::span<const Type> types) {
  std::vector<int64_t> counts, ids;
  for (const Extra& e : extra) counts.insert(counts.end(), {e.draws, e.step, e.captured});
  for (const RegionPtr& r : regions)
    ids.insert(ids.end(), {static_cast<int64_t>(r->id.lo), static_cast<int64_t>(r->id.hi)});
  attrs.ints(kExtra, counts);
  attrs.ints(kIds, ids);
  NodePtr n = Node::make(kind, operands, types, attrs.words());
  auto held = std::make_shared<Carried>();
  held->regions = std::move(regions);
  hold(*n, std::move(held));
  return n;
}

std::span<const int64_t> ints_of(const Node& n, Symbol name) {
  Attr a{};
  check(n.attrs().find(name, &a), "a node with regions has its attributes");
  return a.ints();
}

}  // namespace

Extracted extract_region(std::span<const Value> results, std::span<const NodePtr> parameters,
                         uint64_t first) {
  return Copy(parameters, first).run(results);
}

bool depends_on(const Value& v, std::span<const NodePtr> leaves, uint64_t first) {
  return Dependence(leaves, first)(v.node.get());
}

const OpKind& loop_kind() {
  static const OpKind k = make_kind("torch_pjrt.loop");
  return k;
}
const OpKind& branch_kind() {
  static const OpKind k = make_kind("torch_pjrt.branch");
  return k;
}

NodePtr make_loop(const LoopShape& s, std::vector<RegionPtr> regions,
                  std::span<const Value> operands, std::span<const Type> types) {
  AttrsBuilder attrs;
  attrs.integer(kLength, s.length);
  attrs.boolean(kReverse, s.reverse);
  attrs.ints(kCounts, std::vector<int64_t>{s.carried, s.scanned, s.invariants});
  return make_control(loop_kind(), attrs, s.extra, std::move(regions), operands, types);
}

NodePtr make_branch(std::span<const Extra> extra, std::vector<RegionPtr> regions,
                    std::span<const Value> operands, std::span<const Type> types) {
  AttrsBuilder attrs;
  return make_control(branch_kind(), attrs, extra, std::move(regions), operands, types);
}

const OpKind& manual_kind() {
  static const OpKind k = make_kind("torch_pjrt.manual");
  return k;
}

NodePtr make_manual(const Extra& extra, const std::vector<std::string>& in,
                    const std::vector<std::string>& out, RegionPtr region,
                    std::span<const Value> operands, std::span<const Type> types, bool replicas) {
  AttrsBuilder attrs;
  if (replicas) attrs.boolean(kReplicas, true);
  attrs.text(kIn, join(in, "\n"));
  attrs.text(kOut, join(out, "\n"));
  return make_control(manual_kind(), attrs, {&extra, 1}, {std::move(region)}, operands, types);
}

ManualShape manual_shape(const Node& n) {
  ManualShape shape;
  for (auto [name, to] : {std::pair(kIn, &shape.in), std::pair(kOut, &shape.out)}) {
    Attr a{};
    check(n.attrs().find(name, &a), "a manual region knows its shardings");
    std::string_view text = a.text();
    while (!text.empty()) {
      size_t end = std::min(text.find('\n'), text.size());
      to->emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  return shape;
}

bool is_of_replicas(const Node& n) {
  Attr a{};
  return &n.kind() == &manual_kind() && n.attrs().find(kReplicas, &a);
}

std::span<const RegionPtr> regions_of(const Node& n) {
  if (n.role() != Role::kInterior || !n.payload()) return {};
  return static_cast<const Carried&>(*n.payload()).regions;
}

std::vector<Extra> extra_of(const Node& n) {
  std::vector<Extra> out;
  auto counts = ints_of(n, kExtra);
  for (size_t i = 0; i < counts.size(); i += 3)
    out.push_back({counts[i], counts[i + 1], counts[i + 2]});
  return out;
}

LoopShape loop_shape(const Node& n) {
  Attr length{}, reverse{};
  check(n.attrs().find(kLength, &length) && n.attrs().find(kReverse, &reverse),
        "a loop knows its length");
  auto counts = ints_of(n, kCounts);
  return {length.integer(), reverse.boolean(), counts[0], counts[1], counts[2], extra_of(n)};
}

}  // namespace tp::ir
