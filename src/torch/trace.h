// Trace: records a function once, on stand-ins for its arguments, without running it; Compiled: the
// program that comes of it, called with tensors. This is what torch.compile's backend is made of
// (torch_pjrt/_compile.py).
//
// While a thread traces, the tensors that it makes are `traced`: no sync of any thread computes
// them. Reading one, or writing a tensor that is not traced, is refused: such a function cannot be
// one program.
//
// Threads: one trace at a time a thread; a Compiled may be called from any thread. Callers hold the
// GIL; it is released around compiles and launches.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/replay.h"
#include "torch/replayed.h"
#include "torch/tensor.h"

namespace tp::torch_room {

// What records without running: a Trace, or the body of a loop or branch (body.h) inside or outside
// of one.
class Tracing {
 public:
  virtual ~Tracing() = default;
  // Of a random op: its number leaves, and how far the generator was.
  virtual void drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t at) = 0;
  // Throws: what is recorded cannot be one program.
  [[noreturn]] virtual void refuse(std::string why) = 0;
  // Was this alias made by what is recorded, or given to it?
  bool owns(const Alias& a) const { return a.traced && a.id >= first_alias_; }

 protected:
  uint64_t first_alias_ = 0;
};

// The calling thread's innermost; null outside of all.
extern constinit thread_local Tracing* t_trace;
inline bool tracing() { return t_trace != nullptr; }

// A leaf that stands for an argument: an identity of that type, and no bytes.
ir::NodePtr stand_in_leaf(ir::Type type, int device, shard::Ref sharding = nullptr);

// What a call checks its arguments against.
struct ArgumentSpec {
  ir::Type type;
  Dims strides;
  bool cpu = false;  // a CPU tensor, uploaded at each call
  shard::Ref sharding = nullptr;
};

class Compiled {
 public:
  struct Recipe {
    std::vector<ArgumentSpec> arguments;
    std::vector<std::pair<uint32_t, uint32_t>> updates;  // argument, the value that it ends with
    std::vector<OutputRecipe> outputs;
    Layouts layouts;
    c10::Device device{c10::kXLA, 0};
    std::string name;  // for messages
  };
  Compiled(std::unique_ptr<exec::Replay> replay, Recipe recipe)
      : replay_(std::move(replay)), recipe_(std::move(recipe)) {}

  // Do these tensors have the types, strides, places and shardings that were traced? Where anything
  // is sharded, pending ones are computed.
  bool fits(c10::ArrayRef<at::Tensor> arguments) const;
  // Launches; pending arguments are computed first. An undefined tensor stands for None.
  std::vector<at::Tensor> call(std::vector<at::Tensor> arguments) const;
  int64_t draws() const { return replay_->draws(); }
  // Of its program, in hex; empty where all results are arguments and constants.
  std::string key() const;

 private:
  std::vector<at::Tensor> results(const std::vector<at::Tensor>& arguments,
                                  const std::vector<client::DataPtr>& values) const;
  std::unique_ptr<exec::Replay> replay_;
  Recipe recipe_;
};

class Trace final : public Tracing {
 public:
  // Starts tracing on this thread. Arguments are tensors of device xla or the CPU, those of xla all
  // on one device. Throws where this thread traces already.
  Trace(const std::vector<at::Tensor>& arguments, std::string name);
  ~Trace() override;
  Trace(const Trace&) = delete;

  const std::vector<at::Tensor>& stand_ins() const { return stand_ins_; }
  // Compiles what the outputs and the stand-ins' new values need, and ends the trace. An undefined
  // output is None.
  std::shared_ptr<Compiled> finish(const std::vector<at::Tensor>& outputs);
  // Ends the trace; the generator is where it was. finish() does it, and the destructor.
  void end();

  void drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t at) override;
  [[noreturn]] void refuse(std::string why) override;
  // Why it was refused; empty where it was not.
  const std::string& refused() const { return refused_; }

 private:
  int argument_of(const Alias& a) const;  // -1: none
  OutputRecipe recipe_of(const at::Tensor& t, exec::PlanRequest& request, Compiled::Recipe& recipe,
                         std::vector<const Alias*>& groups);

  bool active_ = true;
  std::string name_, refused_;
  c10::Device device_{c10::kXLA, 0};
  std::vector<ArgumentSpec> specs_;
  std::vector<at::Tensor> stand_ins_;
  std::vector<ir::NodePtr> leaves_;  // of the stand-ins
  std::vector<AliasPtr> aliases_;
  exec::LeafRoles roles_;
  int64_t first_offset_ = 0;
};

}  // namespace tp::torch_room
