// What compiled functions and captured steps share: how a replay of theirs is launched, and how its
// values become tensors. One thread; callers hold the GIL.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/replay.h"
#include "torch/tensor.h"

namespace tp::torch_room {

class Lent;

// Runs the replay on these buffers, without the GIL; moves the default generator behind its draws.
std::vector<client::DataPtr> launch(const exec::Replay& replay,
                                    const std::vector<client::DataPtr>& buffers, const Lent& lent,
                                    std::string where);

// How a call makes one of its results.
struct OutputRecipe {
  enum class Kind : uint8_t {
    kNone,
    kArgument,  // argument `at` itself
    kViewOfArgument,
    kRoot,     // over the replay's value `at`; recipes with one `at` share memory
    kConstant  // `constant` itself
  } kind = Kind::kNone;
  uint32_t at = 0;
  bool same = false;  // of a root: its memory's own sizes and strides; else the window below
  Dims sizes, strides;
  int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
  at::Tensor constant = {};
};

// By value of a replay: strides of its memory; null: row-major.
using Layouts = std::vector<std::unique_ptr<Dims>>;

// The window of a recipe onto base's memory.
at::Tensor as_strided(const at::Tensor& base, const OutputRecipe& r, int64_t offset);

// Tensors over the values of one call, each made when it is first asked for.
class Roots {
 public:
  Roots(const std::vector<client::DataPtr>& values, const Layouts& layouts, c10::Device device)
      : values_(values), layouts_(layouts), device_(device), bases_(values.size()) {}
  at::Tensor tensor(const OutputRecipe& r);  // of Kind::kRoot

 private:
  const std::vector<client::DataPtr>& values_;
  const Layouts& layouts_;
  c10::Device device_;
  std::vector<at::Tensor> bases_;
};

}  // namespace tp::torch_room
