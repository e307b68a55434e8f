// The compile key: a *named* list of ingredients, folded in this order. It knows nothing of
// buffers' bytes or of module text: two runs with other weights and equal shapes have one key. Each
// ingredient keeps its own digest, so that a miss can be explained against the nearest known key.
// Pure: any thread.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "ir/graph.h"

namespace tp::exec {

enum class Ingredient : unsigned char {
  kForceData,    // may this sync alias buffers? A read never may
  kEnvironment,  // platform, plugin, compile options, XLA flags
  kTorchRevision,
  kRevision,           // ours
  kRoots,              // each synced value's hash, in order
  kParameterSequence,  // which leaf feeds which operand, and whether a fill is a parameter
  kDonated,            // parameters that may be consumed
  kDevice,             // a program is compiled for its device
  kSharding,           // sharding mode and auto-sharding settings
  kCount
};
std::string_view ingredient_name(Ingredient i);

struct KeyInputs {
  bool force_data = false;
  Hash128 environment;
  std::string_view torch_revision, revision;
  std::span<const ir::Value> roots;
  // Of a general program (exec/numbers.h): its signature, in the place of the roots' hashes.
  std::span<const uint64_t> general;
  std::span<const uint32_t> parameter_sequence;
  std::span<const uint32_t> donated;
  int device = 0;
  std::string_view sharding;
};

struct Key {
  std::array<Hash128, static_cast<size_t>(Ingredient::kCount)> digests;
  Hash128 total;
};

inline Key make_key(const KeyInputs& in) {
  Key k;
  auto set = [&k](Ingredient i, Hash128 h) { k.digests[static_cast<size_t>(i)] = h; };
  set(Ingredient::kForceData, mix(Hash128{}, in.force_data));
  set(Ingredient::kEnvironment, in.environment);
  set(Ingredient::kTorchRevision, hash_text(in.torch_revision));
  set(Ingredient::kRevision, hash_text(in.revision));
  Hash128 roots;
  if (!in.general.empty())
    roots = mix(hash_bytes(in.general.data(), in.general.size_bytes()), in.roots.size());
  else
    for (const ir::Value& v : in.roots) roots = mix(mix(roots, v.node->dag_hash()), v.index);
  set(Ingredient::kRoots, roots);
  set(Ingredient::kParameterSequence,
      hash_bytes(in.parameter_sequence.data(), in.parameter_sequence.size_bytes()));
  set(Ingredient::kDonated,
      in.donated.empty() ? Hash128{} : hash_bytes(in.donated.data(), in.donated.size_bytes()));
  set(Ingredient::kDevice, mix(Hash128{}, static_cast<uint64_t>(in.device)));
  set(Ingredient::kSharding, in.sharding.empty() ? Hash128{} : hash_text(in.sharding));
  for (const Hash128& d : k.digests) k.total = mix(k.total, d);
  return k;
}

}  // namespace tp::exec
