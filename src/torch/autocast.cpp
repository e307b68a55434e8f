// Autocast for device xla: PyTorch's own lists (ATen/autocast_mode.h), the policy table that CUDA
// uses.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace tp::torch_room {
namespace {

// Names that PyTorch's lists use without `at::`.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

// As on CUDA: in float16 its log overflows, and casting up would hide a model's mistake.
Tensor banned(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "  try: binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which are safe");
}

}  // namespace

void register_autocast(torch::Library& m) {
#define LOWER(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32)
#define FP32_SET(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, promote)
#define OTHER(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE(c10::DeviceType::XLA, __VA_ARGS__)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(OTHER)
  AT_FORALL_PROMOTE(PROMOTE)
#undef LOWER
#undef FP32
#undef FP32_SET
#undef PROMOTE
#undef OTHER
  // cuDNN's kernels, which CUDA uses, compute all of a recurrent layer and its states in the low
  // precision; PyTorch's own composites mix them.
  KERNEL(c10::DeviceType::XLA, lstm, input, lower_precision_fp)
  KERNEL(c10::DeviceType::XLA, lstm, data, lower_precision_fp)
  KERNEL(c10::DeviceType::XLA, gru, input, lower_precision_fp)
  KERNEL(c10::DeviceType::XLA, gru, data, lower_precision_fp)
  KERNEL(c10::DeviceType::XLA, rnn_tanh, input, lower_precision_fp)
  KERNEL(c10::DeviceType::XLA, rnn_tanh, data, lower_precision_fp)
  KERNEL(c10::DeviceType::XLA, rnn_relu, input, lower_precision_fp)
  KERNEL(c10::DeviceType::XLA, rnn_relu, data, lower_precision_fp)
  m.impl("binary_cross_entropy", TORCH_FN(banned));
}

}  // namespace tp::torch_room
