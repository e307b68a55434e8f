// The hot rows: overloads that a training step records thousands of times. Only a list.
#include "torch/typed.h"

#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/convolution_overrideable_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/where_ops.h>

#include <unordered_map>

#include "torch/kernels.h"
#include "torch/named_tables.h"

namespace tp::torch_room {
namespace {

struct Entry {
  const char* overload;
  TypedAdd add;
};

#define HOT(name, op) {name, &Typed<at::_ops::op>::add}
constexpr Entry kHot[] = {
    HOT("aten::add.Tensor", add_Tensor),
    HOT("aten::add_.Tensor", add__Tensor),
    HOT("aten::sub.Tensor", sub_Tensor),
    HOT("aten::mul.Tensor", mul_Tensor),
    HOT("aten::mul_.Tensor", mul__Tensor),
    HOT("aten::div.Tensor", div_Tensor),
    HOT("aten::div_.Tensor", div__Tensor),
    HOT("aten::neg", neg),
    HOT("aten::exp", exp),
    HOT("aten::sqrt", sqrt),
    HOT("aten::rsqrt", rsqrt),
    HOT("aten::tanh", tanh),
    HOT("aten::sigmoid", sigmoid),
    HOT("aten::silu", silu),
    HOT("aten::relu", relu),
    HOT("aten::gelu", gelu),
    HOT("aten::gelu_backward", gelu_backward),
    HOT("aten::threshold_backward", threshold_backward),
    HOT("aten::where.self", where_self),
    HOT("aten::addcmul_", addcmul_),
    HOT("aten::addcdiv_", addcdiv_),
    HOT("aten::lerp_.Scalar", lerp__Scalar),
    HOT("aten::pow.Tensor_Scalar", pow_Tensor_Scalar),
    HOT("aten::mm", mm),
    HOT("aten::bmm", bmm),
    HOT("aten::addmm", addmm),
    HOT("aten::sum.dim_IntList", sum_dim_IntList),
    HOT("aten::mean.dim", mean_dim),
    HOT("aten::_softmax", _softmax),
    HOT("aten::_softmax_backward_data", _softmax_backward_data),
    HOT("aten::_log_softmax", _log_softmax),
    HOT("aten::_log_softmax_backward_data", _log_softmax_backward_data),
    HOT("aten::native_layer_norm", native_layer_norm),
    HOT("aten::native_layer_norm_backward", native_layer_norm_backward),
    HOT("aten::native_batch_norm", native_batch_norm),
    HOT("aten::convolution_overrideable", convolution_overrideable),
    HOT("aten::embedding_dense_backward", embedding_dense_backward),
};
#undef HOT

}  // namespace

std::vector<std::string_view> typed_names() {
  std::vector<std::string_view> names;
  for (const Entry& e : kHot) names.push_back(e.overload);
  return names;
}

TypedAdd typed_kernel(std::string_view overload) {
  for (const Entry& e : kHot)
    if (overload == e.overload) return e.add;
  return nullptr;
}

}  // namespace tp::torch_room
