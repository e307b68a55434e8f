// Which devices the values of a graph are on. A sharded buffer and a constraint are on their mesh's
// devices, and with them all that depends on them; other values go wherever they are needed. One
// program has one set of devices: pending values of several sets are several programs, and a value
// that needs two sets can be computed nowhere.
//
// Pure functions; under graph_lock(), the nodes' slots those of the graph.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "exec/placement.h"
#include "ir/graph.h"

namespace tp::exec {

class DeviceSets {
 public:
  static constexpr int kNone = -1, kSeveral = -2;
  DeviceSets(const ir::Graph& g, const Layouts& layouts);

  // Of a node: a place in sets(), kNone or kSeveral.
  int of(const ir::Node& n) const { return of_[n.slot]; }
  const std::vector<std::vector<int>>& sets() const { return sets_; }
  // The place of these devices, new where there was none.
  int add(const std::vector<int>& devices);
  // What to tell who asks for a value of kSeveral: where its sets first meet. Nothing where no two
  // sets meet in a node.
  std::optional<Error> meeting() const;
  // A value of this set, for messages.
  std::string example(int set) const;

 private:
  int merge(int set, const ir::Node& n, int other);
  const ir::Graph& g_;
  std::vector<std::vector<int>> sets_;
  std::vector<int> of_;  // by slot
  const ir::Node* meeting_ = nullptr;
};

// The sharding of a leaf's buffer or of a constraint; null: it is on no mesh.
shard::Ref own_sharding(const ir::Node& n, const Layouts& layouts);

// Pending values by the program that computes them, as places of roots.
struct Programs {
  std::vector<std::vector<size_t>> roots;  // none of them empty
  std::vector<size_t> impossible;          // need several sets of devices
  std::optional<Error> why;                // where there are such
};
// `layouts.pins` by root. A value that is on no mesh goes with one that needs it; one that nothing
// needs has a program of its own where there are several sets, and goes with the one else.
Programs by_devices(std::span<const ir::Value> roots, const Layouts& layouts);

}  // namespace tp::exec
