#include "exec/numbers.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "ops/core/numbers.h"

namespace tp::exec {
namespace {

const ops::Row* general_row(const ir::Node& n) {
  if (n.role() != ir::Role::kInterior) return nullptr;
  const ops::Row* row = ops::row_of(n.kind());
  return row && *row->general ? row : nullptr;
}

}  // namespace

// Walks the signature, whose layout is Signer's (ir/graph.cpp), and puts each general node's
// structure in the place of its attribute words.
Numbers split_numbers(const ir::Graph& g) {
  Numbers out;
  const std::vector<uint64_t> sig = ir::signature(g);
  size_t at = 0, copied = 0;
  std::vector<uint64_t> words;
  for (const ir::Node* n : g.order) {
    out.first.push_back(static_cast<uint32_t>(out.values.size()));
    if (n->role() != ir::Role::kInterior) {
      at += 4;
    } else {
      at += 2 + n->operands().size() + n->types().size();  // now at the count of words
      size_t end = at + 1 + sig[at];
      if (const ops::Row* row = general_row(*n)) {
        words.clear();
        ops::split_numbers(*n, *row, words, out.values);
        out.structure.insert(out.structure.end(), sig.begin() + static_cast<std::ptrdiff_t>(copied),
                             sig.begin() + static_cast<std::ptrdiff_t>(at));
        out.structure.push_back(words.size());
        out.structure.insert(out.structure.end(), words.begin(), words.end());
        copied = end;
      }
      at = end;
    }
    at += n->sharding() != nullptr;
  }
  check(at + g.roots.size() + 1 == sig.size(),
        "a signature has the layout that split_numbers reads");
  out.first.push_back(static_cast<uint32_t>(out.values.size()));
  out.structure.insert(out.structure.end(), sig.begin() + static_cast<std::ptrdiff_t>(copied),
                       sig.end());
  return out;
}

std::vector<size_t> structural_order(const std::vector<ir::Value>& roots, const ir::Graph& g) {
  std::vector<Hash128> hashes(g.order.size());
  std::vector<uint64_t> words;
  std::vector<ops::Number> values;
  for (size_t i = 0; i < g.order.size(); ++i) {
    const ir::Node& n = *g.order[i];
    Hash128 h = n.node_hash();
    if (const ops::Row* row = general_row(n)) {
      words.clear();
      ops::split_numbers(n, *row, words, values);
      h = mix(n.kind().hash, hash_bytes(words.data(), words.size() * sizeof(uint64_t)).lo);
    }
    for (const ir::Value& v : n.operands()) h = mix(mix(h, hashes[v.node->slot]), v.index);
    if (n.sharding()) h = mix(h, hash_text(*n.sharding()));
    hashes[i] = h;
  }
  auto key = [&](size_t i) {
    const ir::Value& v = roots[i];
    bool inside = v.node->slot < g.order.size() && g.order[v.node->slot] == v.node.get();
    Hash128 h = inside ? hashes[v.node->slot] : v.node->dag_hash();
    return std::tuple(h.hi, h.lo, v.index);
  };
  std::vector<size_t> order(roots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

General make_general(const ir::Graph& g, Numbers numbers, const std::vector<bool>& varies) {
  General out;
  out.signature = std::move(numbers.structure);
  out.inputs.first = std::move(numbers.first);
  for (size_t i = 0; i < numbers.values.size(); ++i) {
    const ops::Number& n = numbers.values[i];
    uint32_t& count = n.real ? out.inputs.reals : out.inputs.integers;
    out.inputs.real.push_back(n.real);
    out.inputs.place.push_back(
        varies[i] ? static_cast<int32_t>((n.real ? g.num_reals : g.num_integers) + count++) : -1);
    out.signature.push_back(varies[i]);
    out.signature.push_back(varies[i] ? 0 : static_cast<uint64_t>(n.bits));
  }
  out.values = std::move(numbers.values);
  return out;
}

std::vector<bool> Families::varying(const Numbers& n) {
  Hash128 id = hash_bytes(n.structure.data(), n.structure.size() * sizeof(uint64_t));
  std::lock_guard lock(mu_);
  Family* f = families_.get(id);
  if (!f || f->first.size() != n.values.size()) {
    families_.put(id, {n.values, std::vector<bool>(n.values.size())});
    return {};
  }
  bool differs = false;
  for (size_t i = 0; i < n.values.size(); ++i) {
    bool now = !(n.values[i] == f->first[i]);
    differs = differs || now;
    f->varies[i] = f->varies[i] || now;
  }
  return differs ? f->varies : std::vector<bool>();
}

}  // namespace tp::exec
