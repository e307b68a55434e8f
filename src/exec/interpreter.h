// Interpreter: computes nodes of a graph one by one, by kernels of the host, without a compile. The
// executor knows it by this interface; the torch room has the kernels (torch/interpreter.h).
//
// Methods are called by whoever syncs, in any thread, without the GIL and with no lock of ours.
#pragma once
#include <utility>
#include <vector>

#include "client/computation_client.h"
#include "ir/node.h"

namespace tp::exec {

// Nodes to compute, operands before users, leaves included. Operands that are not among them have
// their bytes in `given`.
struct HostWork {
  std::vector<const ir::Node*> order;
  std::vector<std::pair<ir::Value, client::DataPtr>> given;
  std::vector<ir::Value> wanted;
  int device = 0;
};

class Interpreter {
 public:
  virtual ~Interpreter() = default;
  // May graphs be interpreted at all: the device's buffers are host memory, and nobody asked for
  // programs alone?
  virtual bool allowed() = 0;
  // May programs call the host's kernels where they run?
  virtual bool calls_back() = 0;
  // Has the host a kernel for the interior node `n`?
  virtual bool has_kernel(const ir::Node& n) = 0;
  // One buffer for each wanted value. Where a kernel raises: its Error, whose raised_by() is the
  // node's place in `order`. Any other Error is that of an operand's program.
  virtual std::vector<client::DataPtr> run(const HostWork& work) = 0;
};

}  // namespace tp::exec
