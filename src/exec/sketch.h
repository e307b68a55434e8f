// A sketch: what is kept of a compiled graph so that a later compile can be explained against it:
// its ops, leaves and roots, without the nodes. Pure functions over values; any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/donation.h"
#include "exec/key.h"
#include "ir/graph.h"
#include "shard/sharding.h"

namespace tp::exec {

// Steps that one graph holds, where nothing synced between them: nearly each line's ops stand in it
// that many times. 1 where it does not look like that.
struct Rounds {
  size_t count = 1;
  ir::LocationId where = 0;  // a line of them
};

struct Sketch {
  struct Op {
    const char* name;  // lives for the process
    uint64_t label;    // op and attributes; no shapes, no lines
    ir::LocationId where;
    uint32_t words_at, num_words;  // its attributes, in `words`
  };
  struct Leaf {
    ir::Type type;
    ir::Feed feed;
    bool fill;  // a tensor of one value
    ir::Scalar::Kind number;
    uint32_t index;
    ir::LocationId where;
    std::shared_ptr<const std::string> sharding;
    bool donated = false;  // given up to the program; no part of `same`
    bool same(const Leaf& o) const;
  };
  struct Root {
    const char* name;
    ir::Type type;
    ir::LocationId where;
  };
  Key key;
  std::string site;  // the user's line of the sync
  std::vector<Op> ops;
  std::vector<Leaf> leaves;
  std::vector<Root> roots;
  std::vector<uint64_t> words;
  std::vector<uint64_t> labels;  // of ops, sorted
  Rounds from{};                 // of a loop that was cut into segments (exec/segments.h)
  bool part = false;             // one op of a graph that is interpreted (exec/tiers.h)
  // Ingredients in words, for explanations across processes: environment, torch, torch_pjrt.
  std::string environment, torch, ours;
};

// `donors`: parameters that are given up to the program; `shardings`: of parameters, null where
// they are whole.
Sketch make_sketch(const ir::Graph& g, const Key& key, std::string site,
                   std::span<const Donor> donors = {}, std::span<const shard::Ref> shardings = {});

// How unlike two graphs are; 0 for equal ops and leaf types. Linear in their sizes.
size_t distance(const Sketch& a, const Sketch& b);

// How much of a graph another one has: ops of the same line, arguments of the same type.
struct Shared {
  size_t ops = 0, of_ops = 0, arguments = 0, of_arguments = 0;
  bool little() const;  // so little that no difference between the two explains anything
};
Shared shared(const Sketch& known, const Sketch& now);

Rounds rounds_of(const Sketch& s);

// Why `now` is not `known`: the first reason is the likeliest.
struct Reason {
  std::string kind;  // "argument", "alive", "dead", "new op", "gone op", "number", "size", ...
  std::string text;  // "arg 3 f32[8,128] -> f32[8,131] (train.py:41)"
  ir::LocationId where = 0;
};
std::vector<Reason> differences(const Sketch& known, const Sketch& now);

}  // namespace tp::exec
