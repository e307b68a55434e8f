// A plan that is run as several programs, one behind the other (exec/segments.h): the plans of its
// segments, over leaves that stand for what earlier segments make.
//
// One sync's, on its thread. Holds the plan's nodes by the plan, which must outlive it.
#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/computation_client.h"
#include "exec/plan.h"
#include "exec/segments.h"

namespace tp::exec {

class Segments {
 public:
  // Under graph_lock(), the slots in place.
  Segments(const Plan& plan, const Split& split);
  size_t count() const { return nodes_.size(); }

  // What segment k computes: its part of the roots, and what later segments need of it. Until
  // take() was told what earlier segments made, their values are stood in for, which is enough to
  // compile. Buffers that nobody needs behind the segment are offered to be overwritten.
  PlanRequest request(size_t k);
  // By argument of `part`, a plan of request(k): may it be overwritten? `may`: the answer for the
  // whole plan's donors.
  std::vector<uint8_t> donated(const Plan& part, const std::vector<uint8_t>& may) const;
  // Segment k has made these, by request root. Lets go of what nobody needs behind it.
  void take(size_t k, const std::vector<client::DataPtr>& outputs);
  const client::DataPtr& made(const ir::Value& root) const { return value(root).data; }

 private:
  using Key = std::pair<const ir::Node*, uint32_t>;
  struct Hash {
    size_t operator()(const Key& k) const {
      return std::hash<const void*>()(k.first) * 31 + k.second;
    }
  };
  struct Passed {  // a value that leaves its segment
    uint32_t made_by = 0, last_user = 0;
    bool root = false;
    ir::NodePtr leaf;
    client::DataPtr data;
  };
  Passed& value(const ir::Value& v) { return passed_.at({v.node.get(), v.index}); }
  const Passed& value(const ir::Value& v) const { return passed_.at({v.node.get(), v.index}); }
  void find_passed();
  void find_donors();
  ir::NodePtr leaf_of(const ir::Value& v);
  ir::NodePtr copy(const ir::Node& n,
                   const std::unordered_map<const ir::Node*, ir::NodePtr>& copies);
  void offer(size_t k, PlanRequest& r) const;

  const Plan& plan_;
  const Split& split_;
  std::vector<std::vector<const ir::Node*>> nodes_;  // by segment, as they were recorded
  std::vector<std::vector<Key>> results_;            // by segment: what leaves it, in that order
  std::unordered_map<Key, Passed, Hash> passed_;
  std::vector<std::vector<Key>> ending_;  // by segment: what no later one needs, roots left out
  std::unordered_map<const ir::Node*, size_t> donor_of_;     // leaf -> which of the plan's donors
  std::vector<std::vector<const ir::Node*>> ending_donors_;  // by segment: such leaves, likewise
  std::shared_ptr<std::vector<const ir::Node*>> uploaded_;   // sorted
};

}  // namespace tp::exec
