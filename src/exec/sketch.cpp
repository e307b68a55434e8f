#include "exec/sketch.h"

#include <algorithm>
#include <map>

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

// Ops by what records them; their attributes may hold sizes.
using Line = std::pair<std::string_view, ir::LocationId>;
std::map<Line, size_t> lines_of(const Sketch& s) {
  std::map<Line, size_t> count;
  for (const Sketch::Op& o : s.ops) ++count[{o.name, o.where}];
  return count;
}

}  // namespace

Sketch make_sketch(const ir::Graph& g, const Key& key, std::string site,
                   std::span<const Donor> donors, std::span<const shard::Ref> shardings) {
  Sketch s;
  s.key = key;
  s.site = std::move(site);
  for (const ir::Node* n : g.order)
    if (n->role() == ir::Role::kInterior) add_op(s, *n);
  for (const ir::LeafUse& use : g.leaves) add_leaf(s, use);
  for (Sketch::Leaf& l : s.leaves)
    l.donated = l.feed == ir::Feed::kBuffer &&
                std::any_of(donors.begin(), donors.end(),
                            [&](const Donor& d) { return d.parameter == l.index; });
  for (Sketch::Leaf& l : s.leaves)
    if (l.feed == ir::Feed::kBuffer && l.index < shardings.size())
      if (const shard::Ref& r = shardings[l.index]) l.sharding = {r, &r->text};
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

Shared shared(const Sketch& known, const Sketch& now) {
  Shared s{.of_ops = now.ops.size()};
  auto before = lines_of(known);
  for (const auto& [line, n] : lines_of(now))
    if (auto it = before.find(line); it != before.end()) s.ops += std::min(n, it->second);
  std::map<std::string, size_t> types;
  for (const Sketch::Leaf& l : known.leaves)
    if (l.feed == ir::Feed::kBuffer) ++types[l.type.text()];
  for (const Sketch::Leaf& l : now.leaves) {
    if (l.feed != ir::Feed::kBuffer) continue;
    ++s.of_arguments;
    if (auto it = types.find(l.type.text()); it != types.end() && it->second > 0) {
      --it->second;
      ++s.arguments;
    }
  }
  return s;
}

bool Shared::little() const {
  constexpr size_t kFew = 8;  // a small graph's differences are few to read
  bool ops_differ = of_ops >= kFew && 2 * ops < of_ops;
  return ops_differ || (of_arguments >= kFew && 4 * arguments < of_arguments);
}

Rounds rounds_of(const Sketch& s) {
  constexpr size_t kLeastOps = 1000, kLeastRounds = 8;
  if (s.from.count > 1) return s.from;
  if (s.ops.size() < kLeastOps) return {};
  auto lines = lines_of(s);
  std::vector<size_t> counts;
  for (const auto& [line, n] : lines) counts.push_back(n);
  auto tenth = counts.begin() + static_cast<long>(counts.size() / 10);
  std::nth_element(counts.begin(), tenth, counts.end());
  if (*tenth < kLeastRounds) return {};
  for (const Sketch::Op& o : s.ops)
    if (o.where && lines[{o.name, o.where}] >= *tenth) return {*tenth, o.where};
  return {};
}

}  // namespace tp::exec
