// GraphLimit: how many different graphs a function may record
// (torch_pjrt.compile(max_different_graphs=)). While a thread is under one, a sync or read of
// another graph than those is refused before anything is compiled or run; what was pending stays
// so. Graphs that are one general program (exec/numbers.h) are one.
//
// Thread-safe: a function may be called from several threads.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "exec/plan.h"
#include "exec/sketch.h"

namespace tp::exec {

class GraphLimit {
 public:
  // `most` is 1 or more.
  GraphLimit(std::string name, size_t most) : name_(std::move(name)), most_(most) {}
  void set_most(size_t most);
  // `structure`: of the plan's graph, without its numbers. Throws where it is one too many.
  void check(const Hash128& structure, const Plan& plan);

 private:
  struct Known {
    Hash128 structure;
    Sketch sketch;
  };
  [[noreturn]] void refuse_locked(const Sketch& now) const;

  const std::string name_;  // of the function, for messages
  std::mutex mu_;
  size_t most_;
  std::vector<Known> known_;
};
using GraphLimitPtr = std::shared_ptr<GraphLimit>;

// The calling thread's; null: none.
const GraphLimitPtr& graph_limit();
GraphLimitPtr exchange_graph_limit(GraphLimitPtr to);

}  // namespace tp::exec
