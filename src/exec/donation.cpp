#include "exec/donation.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tp::exec {

const void* identity(const ir::Node& leaf) {
  return leaf.role() == ir::Role::kData ? static_cast<const void*>(leaf.payload().get()) : &leaf;
}

namespace {

struct Place {
  uint32_t parameter;
  int times;  // one buffer under two leaves would be two parameters: neither can be given away
  const ir::Node* leaf;
};

std::unordered_map<const void*, Place> places(const ir::Graph& g) {
  std::unordered_map<const void*, Place> found;
  found.reserve(g.num_buffers);
  for (const ir::LeafUse& use : g.leaves)
    if (use.feed == ir::Feed::kBuffer)
      ++found.try_emplace(identity(*use.node), Place{use.index, 0, use.node}).first->second.times;
  return found;
}

bool is_kept(const ir::Node& leaf, const Kept& kept) {
  const void* p = identity(leaf);
  if (kept.results.contains(p)) return true;
  // One owner is the leaf itself.
  return leaf.role() == ir::Role::kData && leaf.payload().use_count() > 1 && kept.by_tensor(p);
}

// Every node that those held from outside can reach.
std::unordered_set<const ir::Node*> reached(const ir::Graph& g, std::span<const uint32_t> known) {
  std::unordered_set<const ir::Node*> seen;
  std::vector<const ir::Node*> todo;
  for (size_t i = 0; i < g.order.size(); ++i)
    if (g.order[i]->references() > known[i] && seen.insert(g.order[i]).second)
      todo.push_back(g.order[i]);
  while (!todo.empty()) {
    const ir::Node* n = todo.back();
    todo.pop_back();
    for (const ir::Value& v : n->operands())
      if (seen.insert(v.node.get()).second) todo.push_back(v.node.get());
  }
  return seen;
}

}  // namespace

std::vector<Donor> choose_donors(const ir::Graph& g, std::span<const Overwrite> overwritten,
                                 const Kept& kept) {
  std::vector<Donor> donors;
  if (overwritten.empty()) return donors;
  std::unordered_map<const void*, Place> at = places(g);
  std::vector<bool> taken(g.roots.size());
  for (const Overwrite& o : overwritten) {
    auto it = at.find(o.previous);
    if (it == at.end() || it->second.times != 1 || taken[o.output]) continue;
    const Place& p = it->second;
    if (!(p.leaf->types()[0] == g.roots[o.output].type())) continue;
    if (is_kept(*p.leaf, kept)) continue;
    donors.push_back({p.parameter, o.output});
    taken[o.output] = true;
    at.erase(it);
  }
  std::sort(donors.begin(), donors.end(),
            [](const Donor& a, const Donor& b) { return a.parameter < b.parameter; });
  return donors;
}

std::vector<uint32_t> count_references(const ir::Graph& g) {
  std::vector<uint32_t> counts(g.order.size());
  for (const ir::Node* n : g.order)
    for (const ir::Value& v : n->operands()) ++counts[v.node->slot];
  for (const ir::Value& r : g.roots) ++counts[r.node->slot];
  return counts;
}

std::vector<uint8_t> releasable(const ir::Graph& g, std::span<const Donor> donors,
                                std::span<const uint32_t> known) {
  std::unordered_set<const ir::Node*> held = reached(g, known);
  std::vector<const ir::Node*> leaf_of(g.num_buffers);
  for (const ir::LeafUse& use : g.leaves)
    if (use.feed == ir::Feed::kBuffer) leaf_of[use.index] = use.node;
  std::vector<uint8_t> may;
  for (const Donor& d : donors) {
    const ir::Node& leaf = *leaf_of[d.parameter];
    bool read = leaf.role() == ir::Role::kData && leaf.payload().use_count() > 1;
    may.push_back(!read && !held.contains(&leaf));
  }
  return may;
}

}  // namespace tp::exec
