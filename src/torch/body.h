// Body: records the body of a loop or the branch of a condition, once, on stand-ins for what it is
// given; record_loop and record_branch make the node that runs it. This is what torch's cond,
// while_loop and scan are made of on device xla (torch_pjrt/_control.py).
//
// While a body records, its thread traces (trace.h): reading what it computes, or writing what it
// was not given, is refused at the user's line. Values of the graph around it are captured as they
// are. Bodies nest.
//
// Threads: a body belongs to the thread that made it. Callers hold the GIL.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "ir/region.h"
#include "shard/sharding.h"
#include "torch/trace.h"

namespace tp::torch_room {

class Body final : public Tracing {
 public:
  // Stand-ins have the types of these tensors of device xla. Starts recording.
  Body(const std::vector<at::Tensor>& like, std::string name);
  ~Body() override;
  Body(const Body&) = delete;

  const std::vector<at::Tensor>& stand_ins() const { return stand_ins_; }
  // Stops recording; the generator is where it was.
  void end();
  // Stand-ins that the body wrote.
  std::vector<int64_t> written() const;

  // Where what `t` shows comes from.
  struct Source {
    int64_t stand_in = -1;  // this one's memory, unwritten; else
    uint64_t value = 0;     // a value of the body; 0: it is not the body's
    at::Tensor base = {};   // with all of that value
    bool window = false;    // t is a window onto base's or the stand-in's memory; else all of it
  };
  Source source(const at::Tensor& t) const;
  // Behind the end: the value of `t` as a tensor of the graph around the body; undefined where it
  // depends on a stand-in.
  at::Tensor outside(const at::Tensor& t) const;

  // Behind the end: what the body computes. Once.
  void finish(const std::vector<at::Tensor>& results);
  // Does it, finished, use values of the other body, which has ended?
  bool uses(const Body& other) const;
  size_t draws() const { return offsets_.size(); }  // random ops of a round

  void drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t at) override;
  [[noreturn]] void refuse(std::string why) override;

 private:
  friend struct Recording;
  std::vector<ir::NodePtr> depended_on() const;
  int64_t stand_in_of(const Alias& a) const;

  bool active_ = true;
  std::string name_;
  Tracing* outer_;
  c10::Device device_;
  uint64_t first_ = 0;  // sequence of the first node
  std::vector<at::Tensor> stand_ins_;
  std::vector<AliasPtr> aliases_;
  std::vector<ir::NodePtr> leaves_;
  std::vector<ir::NodePtr> offsets_;  // of random draws
  int64_t first_offset_ = 0, draws_ = 0;
  ir::Extracted code_;
  std::vector<ir::Type> types_;  // of the results
  std::vector<std::vector<int64_t>> strides_;
};

struct LoopArguments {
  std::vector<at::Tensor> carried, scanned, invariants;
  int64_t length = -1;  // rounds; -1: while the condition holds
  bool reverse = false;
};
// The carried values behind the last round, then a stack of each further result of the body. The
// stand-ins of `body` are the carried values, a slice of each scanned one, the invariants; those of
// `condition` (null where the length is given) the carried values and the invariants.
std::vector<at::Tensor> record_loop(const Body* condition, const Body& body,
                                    const LoopArguments& args);
// The stand-ins of both are the operands.
std::vector<at::Tensor> record_branch(const at::Tensor& predicate, const Body& on_true,
                                      const Body& on_false,
                                      const std::vector<at::Tensor>& operands);

// `in` and `out` say how operands and results are cut; the stand-ins are parts of the operands.
std::vector<at::Tensor> record_manual(const Body& body, const std::vector<at::Tensor>& operands,
                                      const std::vector<shard::Ref>& in,
                                      const std::vector<shard::Ref>& out);
// The same, computed at once by a program of its own: each device runs it on its parts, as a
// replica. The operands' bytes are on the mesh as `in` says.
std::vector<at::Tensor> run_replicas(const Body& body, const std::vector<at::Tensor>& operands,
                                     const std::vector<shard::Ref>& in,
                                     const std::vector<shard::Ref>& out);

}  // namespace tp::torch_room
