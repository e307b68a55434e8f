// Donation: which parameters a program may overwrite with its outputs, so that an optimizer step
// updates weights in place in device memory.
//
// The rule. A buffer is given away only in a full sync, where its tensor is overwritten and nobody
// else can ask for its old bytes. Who could:
//   tensors       another live tensor has the buffer, or gets it as its result (`Kept`)
//   views         they share their tensor's alias: whoever reads one reads the new value, as eager
//   pending nodes a graph that is not part of this program reads it (references beyond `known`):
//                 another thread's, one in flight, or one kept to recompute a failed program's
//                 value
//   handles       somebody reads the bytes right now (a shared_ptr beside the leaf's)
//
// Why no less will do: `old = w.clone(); w.add_(1); sync()`. A clone that nobody wrote to has w's
// own buffer as its result. The rule "w is overwritten, so its buffer is free" gives it away, and
// `old` reads what was added. The like holds for each line above (tests/core/donation_test.cpp).
//
// There are two halves, because the first enters the compile key and so may not depend on timing.
// `choose_donors` looks at tensors alone: equal steps give equal donors. `releasable` looks at
// references at the moment of the launch; a donor that it refuses is passed as not donatable, and
// the same program copies it.
//
// Failure. Compile and launch errors come before anything is consumed. A program that fails *while*
// it runs has consumed its donors: the old bytes are gone and the new ones never came. Its other
// outputs are computed anew as ever; a read of what needs the lost bytes tells which and what to do
// (exec/launches.h). TORCH_PJRT_DONATION=0 trades memory for never losing any.
//
// Pure functions. choose_donors and count_references: under graph_lock(), they read node slots.
#pragma once
#include <functional>
#include <span>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"

namespace tp::exec {

// A parameter (its number among the buffers) that an output (its place among the graph's roots)
// may overwrite.
struct Donor {
  uint32_t parameter, output;
  friend bool operator==(const Donor&, const Donor&) = default;
};

// Output `output` is the new value of a tensor that held `previous`: its buffer (a client::Data),
// or the fill node that was its initial value.
struct Overwrite {
  uint32_t output;
  const void* previous;
};

// What live tensors go on holding. Two questions, because the first is cheap.
struct Kept {
  std::unordered_set<const void*> results;     // leaves that are a tensor's new value as they are
  std::function<bool(const void*)> by_tensor;  // asked only where a buffer has several owners
};

// What tells one leaf's bytes from another's: its buffer, or, for a fill, the node.
const void* identity(const ir::Node& leaf);

// Ascending by parameter.
std::vector<Donor> choose_donors(const ir::Graph& g, std::span<const Overwrite> overwritten,
                                 const Kept& kept);

// For each node of the graph, by slot, the references that its users in the graph and its roots
// hold.
std::vector<uint32_t> count_references(const ir::Graph& g);

// By donor: may its buffer be given away now, its leaf being the only owner? `known` are the
// references that are accounted for, by slot.
std::vector<uint8_t> releasable(const ir::Graph& g, std::span<const Donor> donors,
                                std::span<const uint32_t> known);

}  // namespace tp::exec
