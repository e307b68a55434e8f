// Capture: a step that ran as usual, kept as a program over the buffers that its tensors own. A
// replay runs none of the step's Python (torch_pjrt/_capture.py).
//
// While a capture records, random ops of every thread tell it their numbers. One at a time in the
// process.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/replay.h"
#include "torch/replayed.h"
#include "torch/runtime.h"
#include "torch/tensor.h"

namespace tp::torch_room {

class Capture;
extern std::atomic<Capture*> g_capture;

// A captured step. Thread-safe; callers hold the GIL.
class Captured {
 public:
  Captured() = default;
  // Runs the program. An error, naming what changed, where a tensor of the step is gone or an
  // argument has another type.
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& arguments) const;
  // Why a recording of the same step is another program than this one, in words; empty where it is
  // the same. The first difference: a shape, an op, or a number and its line.
  std::string difference(const Captured& now) const;
  int64_t draws() const { return replay_->draws(); }

 private:
  friend class Capture;
  struct State {
    c10::weak_intrusive_ptr<Alias> alias;
    ir::Type type;
  };
  std::unique_ptr<exec::Replay> replay_;
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) const;
  std::vector<at::Tensor> results(const std::vector<client::DataPtr>& values) const;
  exec::Key key_;
  // That are no generator's, each with its op and line.
  std::vector<std::pair<ir::Scalar, std::string>> numbers_;
  std::vector<State> states_;    // the first arguments of the replay; the step's come behind them
  std::vector<bool> replaced_;   // of states_: does the step give the tensor another buffer?
  std::vector<ir::Type> types_;  // of the step's arguments
  std::vector<std::pair<c10::weak_intrusive_ptr<Alias>, uint32_t>> updates_;  // alias, its value
  // Roots, and tensors that outlive the step, updated or not.
  std::vector<OutputRecipe> outputs_;
  Layouts layouts_;
  c10::Device device_{c10::kXLA, 0};
};

class Capture {
 public:
  // Computes what is pending, and from then on watches what is recorded. `arguments` are tensors of
  // device xla.
  explicit Capture(std::vector<at::Tensor> arguments);
  ~Capture();
  Capture(const Capture&) = delete;
  // Runs what was recorded since, as torch_pjrt.sync() does; the step as a program.
  std::shared_ptr<Captured> finish(const std::vector<at::Tensor>& outputs);
  void drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t at);
  // Watches no longer.
  void end();

 private:
  struct Before;
  void number_arguments(const exec::Plan& plan, Captured& to);
  void keep_numbers(const exec::Plan& plan, Captured& to) const;
  void keep_results(const Synced& synced, const std::vector<at::Tensor>& outputs, Captured& to);

  std::mutex mu_;  // guards roles_
  exec::LeafRoles roles_;
  std::vector<at::Tensor> arguments_;
  std::unique_ptr<Before> before_;  // the tensors that were there
  int64_t first_offset_ = 0;
  c10::Device device_{c10::kXLA, 0};
};

}  // namespace tp::torch_room
