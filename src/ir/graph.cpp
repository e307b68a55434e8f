#include "ir/graph.h"

#include <atomic>

#include "base/error.h"
#include "base/text.h"
#include "ir/region.h"

namespace tp::ir {
namespace {

uint64_t next_epoch() {
  static std::atomic<uint64_t> epoch{1};
  return epoch.fetch_add(1, std::memory_order_relaxed);
}

class Walk {
 public:
  Walk(Graph& g, const std::function<bool(const Node&)>& uploaded)
      : g_(g), uploaded_(uploaded), epoch_(next_epoch()) {}

  // Post-order without recursion. A node's `slot` is its position in g.order once `mark` is this
  // epoch.
  void visit(const Node* root) {
    if (root->mark == epoch_) return;
    stack_.push_back({root, 0});
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      std::span<const Value> ops = top.node->operands();
      while (top.next < ops.size() && ops[top.next].node->mark == epoch_) ++top.next;
      if (top.next < ops.size()) {
        const Node* child = ops[top.next++].node.get();
        stack_.push_back({child, 0});
        continue;
      }
      const Node* n = top.node;
      stack_.pop_back();
      if (n->mark != epoch_) place(n);
    }
  }

 private:
  struct Frame {
    const Node* node;
    size_t next;
  };

  void place(const Node* n) {
    n->mark = epoch_;
    n->slot = static_cast<uint32_t>(g_.order.size());
    g_.order.push_back(n);
    if (n->role() != Role::kInterior) return place_leaf(n);
    for (const Value& v : n->operands()) g_.sequence.push_back(v.node->slot);
  }

  void place_leaf(const Node* n) {
    LeafUse use = feed_of(n);
    g_.leaves.push_back(use);
    g_.sequence.push_back(uint32_t{static_cast<uint8_t>(use.feed)} << 28 | use.index);
  }

  LeafUse feed_of(const Node* n) {
    if (n->role() == Role::kData || (n->role() == Role::kFill && uploaded_(*n)))
      return {n, Feed::kBuffer, g_.num_buffers++};
    switch (n->scalar().kind) {
      case Scalar::Kind::kBool:
      case Scalar::Kind::kInt:
        return {n, Feed::kInteger, g_.num_integers++};
      case Scalar::Kind::kFloat:
        return {n, Feed::kReal, g_.num_reals++};
      case Scalar::Kind::kComplex:
        break;
    }
    g_.num_reals += 2;
    return {n, Feed::kReal, g_.num_reals - 2};
  }

  Graph& g_;
  const std::function<bool(const Node&)>& uploaded_;
  uint64_t epoch_;
  std::vector<Frame> stack_;
};

class Signer {
 public:
  explicit Signer(const Graph& g) : g_(g) { words_.reserve(16 * g.order.size()); }

  std::vector<uint64_t> run() {
    size_t leaf = 0;
    for (const Node* n : g_.order) {
      if (n->role() == Role::kInterior)
        interior(*n);
      else
        this->leaf(*n, g_.leaves[leaf++]);
      if (n->sharding()) put(hash_text(*n->sharding()).lo);
    }
    for (const Value& r : g_.roots) put(r);
    put(g_.roots.size());
    return std::move(words_);
  }

 private:
  void put(uint64_t w) { words_.push_back(w); }
  void put(const Value& v) { put(uint64_t{v.node->slot} << 16 | v.index); }

  void interior(const Node& n) {
    put(n.kind().hash.lo);
    put(n.operands().size() << 32 | n.types().size());
    for (const Value& v : n.operands()) put(v);
    for (Type t : n.types()) put(t ? t.hash().lo : 0);
    auto words = n.attrs().words();
    put(words.size());
    words_.insert(words_.end(), words.begin(), words.end());
  }
  void leaf(const Node& n, const LeafUse& use) {
    put(n.role() == Role::kNumber ? n.kind().hash.lo : data_kind().hash.lo);
    put(uint64_t{static_cast<uint8_t>(use.feed)} << 32 | use.index);
    put(n.types()[0].hash().lo);
    put(static_cast<uint64_t>(use.feed == Feed::kBuffer ? Scalar::Kind::kBool : n.scalar().kind));
  }

  const Graph& g_;
  std::vector<uint64_t> words_;
};

std::string node_line(const Node& n) {
  std::string s = cat("%", n.slot, " = ", n.kind().name);
  if (n.role() == Role::kNumber || n.role() == Role::kFill)
    s += cat("(", scalar_text(n.scalar()), ")");
  if (n.role() == Role::kInterior) {
    s += "(";
    for (size_t i = 0; i < n.operands().size(); ++i) {
      const Value& v = n.operands()[i];
      s += cat(i ? ", %" : "%", v.node->slot);
      if (v.index) s += cat(".", v.index);
    }
    s += ")";
  }
  std::string attrs;
  for (Attr a : n.attrs())
    if (a.kind != AttrKind::kOperand && a.kind != AttrKind::kOperands && a.kind != AttrKind::kNone)
      attrs += cat(attrs.empty() ? " {" : ", ",
                   AttrsView({a.payload - 1, a.payload_words() + 1}).text());
  if (!attrs.empty()) s += attrs + "}";
  s += " : ";
  for (size_t i = 0; i < n.types().size(); ++i)
    s += cat(i ? ", " : "", n.types()[i] ? n.types()[i].text() : "-");
  if (n.sharding()) s += cat(" sharding=", *n.sharding());
  return s;
}

// Indented below its node.
void append_region(std::string& to, std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n') + 1);
    to += cat("    ", line);
    text.remove_prefix(line.size());
  }
}

}  // namespace

std::mutex& graph_lock() {
  static std::mutex* mu = new std::mutex;
  return *mu;
}

Graph build_graph(std::vector<Value> roots, const std::function<bool(const Node&)>& uploaded) {
  // Steps are alike: the last graph's sizes save growing.
  static thread_local size_t nodes = 0, words = 0;
  Graph g;
  g.roots = std::move(roots);
  g.order.reserve(nodes);
  g.sequence.reserve(words);
  Walk walk(g, uploaded);
  for (const Value& r : g.roots) walk.visit(r.node.get());
  nodes = g.order.size();
  words = g.sequence.size();
  return g;
}

std::vector<uint64_t> signature(const Graph& g) { return Signer(g).run(); }

void verify(const Graph& g) {
  for (size_t i = 0; i < g.order.size(); ++i) {
    const Node& n = *g.order[i];
    check(n.slot == i, cat("node ", n.kind().name, ": its slot is its place in the order"));
    for (const Value& v : n.operands()) {
      check(v.node->slot < i, cat("operands of ", n.kind().name, " come before it"));
      check(v.index < v.node->types().size() && v.type(),
            cat("operands of ", n.kind().name, " exist"));
    }
    for (Attr a : n.attrs())
      if (a.kind == AttrKind::kOperand)
        check(a.integer() >= 0 && static_cast<size_t>(a.integer()) < n.operands().size(),
              cat("argument ", symbol_name(a.name), " of ", n.kind().name, " names an operand"));
  }
  for (const Value& r : g.roots) check(static_cast<bool>(r.type()), "a root has a type");
}

std::string dump_text(const Graph& g, Lines lines) {
  std::string s;
  for (const Node* n : g.order) {
    s += node_line(*n);
    if (lines == Lines::kYes && n->location()) {
      const std::string& scope = location_of(n->location()).scope;
      s += cat("  # ", line_text(n->location()), scope.empty() ? "" : cat(" in ", scope));
    }
    s += "\n";
    for (const RegionPtr& r : regions_of(*n)) append_region(s, dump_text(r->graph, lines));
  }
  s += "return ";
  for (size_t i = 0; i < g.roots.size(); ++i) {
    s += cat(i ? ", %" : "%", g.roots[i].node->slot);
    if (g.roots[i].index) s += cat(".", g.roots[i].index);
  }
  return s + "\n";
}

std::string dump_dot(const Graph& g) {
  std::string s = "digraph G {\n  node [shape=box, fontname=monospace];\n";
  for (const Node* n : g.order) {
    std::string label;
    for (char c : node_line(*n)) label += c == '"' ? "\\\"" : std::string(1, c);
    s += cat("  n", n->slot, " [label=\"", label, "\"];\n");
    for (const Value& v : n->operands()) s += cat("  n", v.node->slot, " -> n", n->slot, ";\n");
  }
  for (size_t i = 0; i < g.roots.size(); ++i)
    s += cat("  r", i, " [label=\"output ", i, "\", shape=oval];\n  n", g.roots[i].node->slot,
             " -> r", i, ";\n");
  return s + "}\n";
}

}  // namespace tp::ir
