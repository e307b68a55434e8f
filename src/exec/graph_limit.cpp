#include "exec/graph_limit.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "exec/explain.h"
#include "exec/reasons.h"

namespace tp::exec {
namespace {

thread_local GraphLimitPtr t_limit;

Sketch sketch_of(const Plan& plan) {
  std::lock_guard lock(ir::graph_lock());
  number_slots(plan);
  return make_sketch(plan.graph, plan.key, plan.where, plan.donors, plan.placement.parameters);
}

}  // namespace

const GraphLimitPtr& graph_limit() { return t_limit; }
GraphLimitPtr exchange_graph_limit(GraphLimitPtr to) {
  return std::exchange(t_limit, std::move(to));
}

void GraphLimit::set_most(size_t most) {
  std::lock_guard lock(mu_);
  most_ = most;
}

void GraphLimit::refuse_locked(const Sketch& now) const {
  auto nearest = std::ranges::min_element(
      known_, {}, [&now](const Known& k) { return distance(k.sketch, now); });
  std::vector<Reason> reasons = compare(nearest->sketch, now).reasons;
  std::string_view help = cure(reasons);
  throw Error(Code::kRuntime, cat("compile: max_different_graphs of '", name_, "' is ", most_,
                                  ", and another graph came: ", summary(reasons)))
      .fix(cat(help, help.empty() ? "" : "; or ", "allow more graphs"));
}

void GraphLimit::check(const Hash128& structure, const Plan& plan) {
  {
    std::lock_guard lock(mu_);
    if (std::ranges::find(known_, structure, &Known::structure) != known_.end()) return;
  }
  Sketch now = sketch_of(plan);  // before mu_: that is a leaf among the locks
  std::lock_guard lock(mu_);
  if (std::ranges::find(known_, structure, &Known::structure) != known_.end()) return;
  if (known_.size() >= most_) refuse_locked(now);
  known_.push_back({structure, std::move(now)});
}

}  // namespace tp::exec
