#include "exec/sketch.h"

#include <algorithm>

namespace tp::exec {

bool Sketch::Leaf::same(const Leaf& o) const {
  bool sharded = sharding ? o.sharding && *sharding == *o.sharding : !o.sharding;
  return type == o.type && feed == o.feed && fill == o.fill && number == o.number && sharded;
}

namespace {

void add_op(Sketch& s, const ir::Node& n) {
  auto words = n.attrs().words();
  s.ops.push_back({n.kind().name, n.node_hash().lo, n.location(),
                   static_cast<uint32_t>(s.words.size()), static_cast<uint32_t>(words.size())});
  s.words.insert(s.words.end(), words.begin(), words.end());
  s.labels.push_back(n.node_hash().lo);
}

void add_leaf(Sketch& s, const ir::LeafUse& use) {
  const ir::Node& n = *use.node;
  bool data = n.role() == ir::Role::kData;
  s.leaves.push_back({n.types()[0], use.feed, n.role() == ir::Role::kFill,
                      data ? ir::Scalar::Kind::kBool : n.scalar().kind, use.index, n.location(),
                      n.sharding()});
}

}  // namespace

Sketch make_sketch(const ir::Graph& g, const Key& key, std::string site) {
  Sketch s;
  s.key = key;
  s.site = std::move(site);
  for (const ir::Node* n : g.order)
    if (n->role() == ir::Role::kInterior) add_op(s, *n);
  for (const ir::LeafUse& use : g.leaves) add_leaf(s, use);
  for (const ir::Value& r : g.roots)
    s.roots.push_back({r.node->kind().name, r.type(), r.node->location()});
  std::sort(s.labels.begin(), s.labels.end());
  return s;
}

size_t distance(const Sketch& a, const Sketch& b) {
  size_t common = 0;
  for (size_t i = 0, k = 0; i < a.labels.size() && k < b.labels.size();) {
    if (a.labels[i] == b.labels[k]) {
      ++common, ++i, ++k;
    } else {
      ++(a.labels[i] < b.labels[k] ? i : k);
    }
  }
  size_t leaves = std::max(a.leaves.size(), b.leaves.size()), same = 0;
  for (size_t i = 0; i < std::min(a.leaves.size(), b.leaves.size()); ++i)
    same += a.leaves[i].same(b.leaves[i]);
  size_t roots = a.roots.size() > b.roots.size() ? a.roots.size() - b.roots.size()
                                                 : b.roots.size() - a.roots.size();
  // An op weighs more than a leaf: a new batch size changes many leaves and no op.
  return 4 * (a.labels.size() + b.labels.size() - 2 * common) + (leaves - same) + roots;
}

}  // namespace tp::exec
