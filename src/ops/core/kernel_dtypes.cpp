// Which dtypes eager's CPU kernels take, as data. PyTorch's shape functions do not look: without
// this table an unsupported dtype would fail at the sync, in the compiler's words, far from the
// line that asked for it. Constant; any thread.
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/core/row.h"

namespace tp::ops {
namespace {

enum Kinds : unsigned {
  kBools = 1,
  kIntegers = 2,
  kWide = 4,   // f32, f64
  kSmall = 8,  // f16, bf16
  kComplexes = 16,
  kBytes = 32,  // u8 and s64, where other integers are refused
  kLongs = 64,
  kEmpty = 128,    // whatever is empty: eager returns before it comes to its kernel
  kScalars = 256,  // so is a tensor without dims
  kFloats = kWide | kSmall,
  kInexact = kFloats | kComplexes,
  kNumbers = kIntegers | kFloats,
  kReals = kBools | kNumbers,
  kNoBools = kNumbers | kComplexes,
  kBits = kBools | kIntegers,
  kExactOrWide = kBools | kIntegers | kWide,  // exact ones count as the default float
};

constexpr unsigned kind(DType t) {
  if (t == DType::kPred) return kBools;
  if (ir::is_complex(t)) return kComplexes;
  if (ir::is_small_float(t)) return kSmall;
  return ir::is_float(t) ? kWide : kIntegers;
}

struct Kernel {
  const char* op;
  const char* name;  // as eager's message has it
  unsigned takes;
  const char* decides = nullptr;  // the argument that is asked; by default all, promoted
  const char* choice = nullptr;   // only where this text argument ...
  const char* chosen = nullptr;   // ... is this
  const char* given = "";         // only where these arguments are given
  const char* lacks = "";         // only where none of these is
};

constexpr std::string_view kBounded = "self min max";  // these, promoted

constexpr Kernel kKernels[] = {
    {"aten::abs", "abs_cpu", kNoBools},
    {"aten::bitwise_not", "bitwise_not_cpu", kBits},
    {"aten::floor", "floor_vml_cpu", kNoBools},
    {"aten::ceil", "ceil_vml_cpu", kNoBools},
    {"aten::round", "round_vml_cpu", kNumbers},
    {"aten::round.decimals", "round_cpu", kFloats},
    {"aten::trunc", "trunc_vml_cpu", kNoBools},
    {"aten::frac", "frac_cpu", kFloats},
    {"aten::logit", "logit_cpu", kReals},
    {"aten::erf", "erf_vml_cpu", kReals},
    {"aten::erfc", "erfc_vml_cpu", kReals},
    {"aten::erfinv", "erfinv_vml_cpu", kReals},
    {"aten::lgamma", "lgamma_vml_cpu", kReals},
    {"aten::digamma", "digamma", kReals},
    {"aten::polygamma", "trigamma", kReals},
    {"aten::mish", "mish_cpu", kFloats},
    {"aten::special_entr", "entr_cpu", kReals},
    {"aten::i0", "i0_vml_cpu", kReals},
    {"aten::special_i0e", "i0e_cpu", kReals},
    {"aten::special_i1", "i1_cpu", kReals},
    {"aten::special_i1e", "i1e_cpu", kReals},
    {"aten::igamma", "igamma_cpu", kFloats},
    {"aten::igammac", "igammac_cpu", kFloats},
    {"aten::special_airy_ai", "airy_ai_cpu", kExactOrWide},
    {"aten::special_bessel_j0", "bessel_j0_cpu", kExactOrWide},
    {"aten::special_bessel_j1", "bessel_j1_cpu", kExactOrWide},
    {"aten::special_bessel_y0", "bessel_y0_cpu", kExactOrWide},
    {"aten::special_bessel_y1", "bessel_y1_cpu", kExactOrWide},
    {"aten::special_spherical_bessel_j0", "spherical_bessel_j0_cpu", kExactOrWide},
    {"aten::special_modified_bessel_i0", "modified_bessel_i0_cpu", kExactOrWide},
    {"aten::special_modified_bessel_i1", "modified_bessel_i1_cpu", kExactOrWide},
    {"aten::special_modified_bessel_k0", "modified_bessel_k0_cpu", kExactOrWide},
    {"aten::special_modified_bessel_k1", "modified_bessel_k1_cpu", kExactOrWide},
    {"aten::special_scaled_modified_bessel_k0", "scaled_modified_bessel_k0_cpu", kExactOrWide},
    {"aten::special_scaled_modified_bessel_k1", "scaled_modified_bessel_k1_cpu", kExactOrWide},
    {"aten::special_erfcx", "erfcx_cpu", kExactOrWide},
    {"aten::special_ndtri", "ndtri_cpu", kExactOrWide},
    {"aten::special_log_ndtr", "log_ndtr_cpu", kExactOrWide},
    {"aten::special_chebyshev_polynomial_t", "chebyshev_polynomial_t_cpu", kExactOrWide},
    {"aten::special_chebyshev_polynomial_u", "chebyshev_polynomial_u_cpu", kExactOrWide},
    {"aten::special_chebyshev_polynomial_v", "chebyshev_polynomial_v_cpu", kExactOrWide},
    {"aten::special_chebyshev_polynomial_w", "chebyshev_polynomial_w_cpu", kExactOrWide},
    {"aten::special_hermite_polynomial_h", "hermite_polynomial_h_cpu", kExactOrWide},
    {"aten::special_hermite_polynomial_he", "hermite_polynomial_he_cpu", kExactOrWide},
    {"aten::special_laguerre_polynomial_l", "laguerre_polynomial_l_cpu", kExactOrWide},
    {"aten::special_legendre_polynomial_p", "legendre_polynomial_p_cpu", kExactOrWide},
    {"aten::special_shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_t_cpu",
     kExactOrWide},
    {"aten::special_shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_u_cpu",
     kExactOrWide},
    {"aten::special_shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_v_cpu",
     kExactOrWide},
    {"aten::special_shifted_chebyshev_polynomial_w", "shifted_chebyshev_polynomial_w_cpu",
     kExactOrWide},
    {"aten::floor_divide", "div_floor_cpu", kNumbers},
    {"aten::div.Tensor_mode", "div_floor_cpu", kNumbers, nullptr, "rounding_mode", "floor"},
    {"aten::div.Tensor_mode", "div_trunc_cpu", kNumbers, nullptr, "rounding_mode", "trunc"},
    {"aten::remainder.Tensor", "remainder_cpu", kNumbers},
    {"aten::remainder.Scalar_Tensor", "remainder_cpu", kReals},
    {"aten::fmod.Tensor", "fmod_cpu", kNumbers},
    {"aten::pow.Tensor_Tensor", "pow", kNoBools},
    {"aten::pow.Scalar", "pow", kNoBools},
    {"aten::bitwise_and.Tensor", "bitwise_and_cpu", kBits},
    {"aten::bitwise_or.Tensor", "bitwise_or_cpu", kBits},
    {"aten::bitwise_xor.Tensor", "bitwise_xor_cpu", kBits},
    {"aten::bitwise_left_shift.Tensor", "lshift_cpu", kIntegers},
    {"aten::bitwise_right_shift.Tensor", "rshift_cpu", kIntegers},
    {"aten::__lshift__.Tensor", "lshift_cpu", kIntegers},
    {"aten::__rshift__.Tensor", "rshift_cpu", kIntegers},
    {"aten::__lshift__.Scalar", "lshift_cpu", kBits},
    {"aten::__rshift__.Scalar", "rshift_cpu", kBits},
    {"aten::gcd", "gcd_cpu", kIntegers},
    {"aten::lcm", "lcm_cpu", kIntegers},
    {"aten::atan2", "atan2_cpu", kReals},
    {"aten::hypot", "hypot_cpu", kFloats},
    {"aten::copysign.Tensor", "copysign_cpu", kReals},
    {"aten::nextafter", "nextafter_cpu", kFloats},
    {"aten::xlogy.Tensor", "xlogy_cpu", kReals},
    {"aten::special_xlog1py", "xlog1py_cpu", kReals},
    {"aten::logaddexp", "logaddexp_cpu", kInexact},
    {"aten::logaddexp2", "logaddexp2_cpu", kFloats},
    {"aten::special_zeta", "zeta_cpu", kBools | kIntegers | kWide},
    {"aten::clamp_min.Tensor", "maximum_cpu", kReals},
    {"aten::clamp_max.Tensor", "minimum_cpu", kReals},
    {.op = "aten::clamp.Tensor", .name = "minimum_cpu", .takes = kReals, .lacks = "min"},
    {.op = "aten::clamp.Tensor", .name = "maximum_cpu", .takes = kReals, .lacks = "max"},
    {.op = "aten::clamp.Tensor", .name = "clamp_cpu", .takes = kNumbers, .given = "min max"},
    {.op = "aten::clamp",
     .name = "clamp_max_scalar_cpu",
     .takes = kNumbers,
     .decides = kBounded.data(),
     .lacks = "min"},
    {.op = "aten::clamp",
     .name = "clamp_min_scalar_cpu",
     .takes = kNumbers,
     .decides = kBounded.data(),
     .lacks = "max"},
    {.op = "aten::clamp",
     .name = "clamp_scalar_cpu",
     .takes = kNumbers,
     .decides = kBounded.data(),
     .given = "min max"},
    {"aten::clamp_min", "clamp_min_scalar_cpu", kNumbers, kBounded.data()},
    {"aten::clamp_max", "clamp_max_scalar_cpu", kNumbers, kBounded.data()},
    {"aten::addcmul", "addcmul_cpu_out", kNoBools},
    {"aten::lerp.Scalar", "lerp_kernel_scalar", kInexact},
    {"aten::lerp.Tensor", "lerp_kernel_tensor", kInexact},
    {"aten::silu", "silu_cpu", kInexact},
    {"aten::silu_backward", "silu_backward_cpu", kInexact},
    {"aten::gelu", "GeluKernelImpl", kFloats},
    {"aten::gelu_backward", "GeluBackwardKernelImpl", kFloats},
    {"aten::sigmoid_backward", "sigmoid_backward_cpu", kInexact},
    {"aten::tanh_backward", "tanh_backward_cpu", kInexact},
    {"aten::softplus", "softplus_cpu", kFloats},
    {"aten::softplus_backward", "softplus_backward_cpu", kFloats},
    {"aten::log_sigmoid_forward", "log_sigmoid_cpu", kFloats},
    {"aten::log_sigmoid_backward", "log_sigmoid_backward_cpu", kFloats},
    {"aten::logit_backward", "logit_backward_cpu", kFloats},
    {"aten::threshold", "threshold_cpu", kNumbers},
    {"aten::threshold_backward", "threshold_cpu", kNumbers},
    {"aten::elu", "elu_cpu", kFloats},
    {"aten::elu_backward", "elu_backward_cpu", kFloats},
    {"aten::leaky_relu", "leaky_relu_cpu", kFloats},
    {"aten::leaky_relu_backward", "leaky_relu_backward_cpu", kFloats},
    {"aten::_prelu_kernel", "prelu_cpu", kFloats},
    {"aten::_prelu_kernel_backward", "prelu_backward_cpu", kFloats},
    {"aten::hardtanh_backward", "hardshrink_backward_cpu", kFloats},
    {"aten::hardsigmoid", "hardsigmoid_cpu", kFloats},
    {"aten::hardsigmoid_backward", "hardsigmoid_backward", kFloats},
    {"aten::hardswish", "hardswish_cpu", kFloats},
    {"aten::hardswish_backward", "hardswish_backward_cpu", kFloats},
    {"aten::hardshrink", "hardshrink_cpu", kFloats},
    {"aten::hardshrink_backward", "shrink_backward_cpu", kFloats},
    {"aten::softshrink", "softshrink_check", kFloats},
    {"aten::softshrink_backward", "shrink_backward_cpu", kFloats},
    {"aten::glu", "glu_cpu", kFloats},
    {"aten::lt.Tensor", "lt_cpu", kReals},
    {"aten::lt.Scalar", "lt_cpu", kReals},
    {"aten::le.Tensor", "le_cpu", kReals},
    {"aten::le.Scalar", "le_cpu", kReals},
    {"aten::gt.Tensor", "gt_cpu", kReals},
    {"aten::gt.Scalar", "gt_cpu", kReals},
    {"aten::ge.Tensor", "ge_cpu", kReals},
    {"aten::ge.Scalar", "ge_cpu", kReals},
    {"aten::max", "max_all", kReals},
    {"aten::min", "min_all", kReals},
    {"aten::amax", "max_values_cpu", kReals | kEmpty},
    {"aten::amin", "min_values_cpu", kReals},
    {"aten::aminmax", "aminmax_cpu", kReals},
    {"aten::trace", "trace", kNoBools},
    {"aten::kthvalue", "kthvalue_cpu", kNumbers | kScalars},
    {"aten::median", "median_cpu", kNumbers | kEmpty},
    {"aten::nanmedian", "median_cpu", kNumbers | kEmpty},
    {"aten::median.dim", "median_out", kNumbers | kEmpty},
    {"aten::nanmedian.dim", "median_out", kNumbers | kEmpty},
    {"aten::mode", "mode_cpu", kReals | kEmpty},
    {"aten::_softmax", "softmax_lastdim_kernel_impl", kFloats | kEmpty},
    {"aten::_log_softmax", "log_softmax_lastdim_kernel_impl", kFloats | kEmpty},
    {"aten::_softmax_backward_data", "softmax_backward_lastdim_kernel_impl", kFloats},
    {"aten::_log_softmax_backward_data", "log_softmax_backward_lastdim_kernel_impl", kFloats},
    {"aten::mm", "addmm_impl_cpu_", kNoBools | kEmpty},
    {"aten::addmm", "addmm_impl_cpu_", kNoBools | kEmpty},
    {"aten::_addmm_activation", "addmm_impl_cpu_", kNoBools | kEmpty},
    {"aten::addbmm", "addmm_impl_cpu_", kNoBools | kEmpty},
    {"aten::addmv", "addmv_impl_cpu", kNoBools | kEmpty},
    {"aten::mv", "addmv_impl_cpu", kNoBools | kEmpty},
    {"aten::bmm", "bmm", kNoBools | kEmpty},
    {"aten::baddbmm", "baddbmm", kNoBools | kEmpty},
    {"aten::dot", "dot", kNoBools},
    {"aten::vdot", "dot", kNoBools},
    {"aten::_trilinear", "bmm", kNoBools},
    {"aten::linalg_cross", "cross", kNoBools},
    {"aten::linalg_solve_triangular", "triangular_solve_cpu", kWide | kComplexes},
    {"aten::triangular_solve", "triangular_solve_cpu", kWide | kComplexes},
    {"aten::_cholesky_solve_helper", "cholesky_solve_cpu", kWide | kComplexes},
    {"aten::rrelu_with_noise", "leaky_relu_cpu", kFloats, "self"},
    {"aten::rrelu_with_noise_functional", "rrelu_with_noise_out_cpu", kWide, "self"},
    {"aten::normal_functional", "normal_kernel_cpu", kInexact | kEmpty, "self"},
    {"aten::geometric", "geometric_cpu", kNumbers | kEmpty, "self"},
    {"aten::bernoulli.p", "bernoulli_scalar_cpu_", kReals | kEmpty, "self"},
    {"aten::normal.Tensor_Tensor", "normal_kernel_cpu", kInexact, "mean"},
    {"aten::normal.Tensor_float", "normal_kernel_cpu", kInexact, "mean"},
    {"aten::normal.float_Tensor", "normal_kernel_cpu", kInexact, "std"},
    {"aten::avg_pool2d", "avg_pool2d", kFloats | kLongs},
    {"aten::avg_pool3d", "avg_pool3d_out_frame", kWide | kLongs},
    {"aten::avg_pool2d_backward", "avg_pool2d_backward", kFloats | kLongs},
    {"aten::avg_pool3d_backward", "avg_pool3d_backward_out_frame", kWide | kLongs},
    {"aten::max_pool2d_with_indices", "max_pool2d", kNumbers},
    {"aten::max_pool2d_with_indices_backward", "max_pool2d_backward", kFloats, "grad_output"},
    {"aten::max_pool3d_with_indices", "max_pool3d", kNumbers},
    {"aten::max_pool3d_with_indices_backward", "max_pool3d_backward", kFloats, "grad_output"},
    {"aten::adaptive_max_pool2d", "adaptive_max_pool2d", kFloats},
    {"aten::adaptive_max_pool2d_backward", "adaptive_max_pool2d_backward", kFloats, "grad_output"},
    {"aten::adaptive_max_pool3d", "adaptive_max_pool3d_cpu", kFloats},
    {"aten::adaptive_max_pool3d_backward", "adaptive_max_pool3d_backward", kFloats, "grad_output"},
    {"aten::fractional_max_pool2d", "fractional_max_pool2d_out_frame", kFloats, "self"},
    {"aten::fractional_max_pool3d", "fractional_max_pool3d_out_frame", kFloats, "self"},
    {"aten::reflection_pad1d", "reflection_pad1d", kNoBools},
    {"aten::reflection_pad2d", "reflection_pad2d", kNoBools},
    {"aten::reflection_pad3d", "reflection_pad3d", kNoBools},
    {"aten::replication_pad1d", "replication_pad1d", kNoBools},
    {"aten::replication_pad2d", "replication_pad2d", kNoBools},
    {"aten::replication_pad3d", "replication_pad3d", kNoBools},
    {"aten::upsample_linear1d", "compute_indices_weights_linear", kFloats},
    {"aten::upsample_trilinear3d", "compute_indices_weights_linear", kFloats},
    {"aten::_upsample_bilinear2d_aa", "compute_index_ranges_weights", kWide | kBytes},
    {"aten::_upsample_bicubic2d_aa", "compute_index_ranges_weights", kWide | kBytes},
    {"aten::_upsample_lanczos2d_aa", "compute_index_ranges_weights", kWide | kBytes},
    {"aten::upsample_nearest1d", "compute_indices_weights_nearest", kFloats | kBytes},
    {"aten::upsample_nearest2d", "compute_indices_weights_nearest", kFloats | kBytes},
    {"aten::upsample_nearest3d", "compute_indices_weights_nearest", kFloats | kBytes},
    {"aten::_upsample_nearest_exact1d", "compute_indices_weights_nearest", kFloats | kBytes},
    {"aten::_upsample_nearest_exact2d", "compute_indices_weights_nearest", kFloats | kBytes},
    {"aten::_upsample_nearest_exact3d", "compute_indices_weights_nearest", kFloats | kBytes},
    {"aten::upsample_bilinear2d", "compute_indices_weights_linear", kFloats | kBytes},
    {"aten::upsample_bicubic2d", "compute_indices_weights_cubic", kFloats | kBytes},
    {"aten::im2col", "im2col_out_cpu", kInexact | kBools},
    {"aten::col2im", "col2im_out_cpu", kInexact | kBools},
    {"aten::index_reduce", "index_func_", kNumbers, "self"},
    {"aten::scatter_reduce.two", "scatter_gather_tensor_cpu_reduce_mean", kNoBools | kEmpty, "self",
     "reduce", "mean"},
    {"aten::scatter_reduce.two", "scatter_gather_tensor_cpu_reduce_amax", kReals | kEmpty, "self",
     "reduce", "amax"},
    {"aten::scatter_reduce.two", "scatter_gather_tensor_cpu_reduce_amin", kReals | kEmpty, "self",
     "reduce", "amin"},
    {"aten::max_unpool2d", "max_unpool2d", kFloats, "self"},
    {"aten::max_unpool3d", "max_unpool3d", kFloats, "self"},
    {"aten::searchsorted.Tensor", "searchsorted_out_cpu", kNumbers | kEmpty},
    {"aten::searchsorted.Scalar", "searchsorted_out_cpu", kNumbers},
    {"aten::bucketize.Tensor", "searchsorted_out_cpu", kNumbers | kEmpty},
    {"aten::bucketize.Scalar", "searchsorted_out_cpu", kNumbers},
    {"aten::nll_loss_forward", "nll_loss_out_frame", kFloats, "self"},
    {"aten::nll_loss2d_forward", "nll_loss2d_forward_out_frame", kFloats, "self"},
    {"aten::mse_loss", "mse_cpu", kFloats},
    {"aten::mse_loss_backward", "mse_backward_cpu_out", kNumbers},
    {"aten::smooth_l1_loss", "smooth_l1_cpu", kFloats},
    {"aten::smooth_l1_loss_backward", "smooth_l1_backward_cpu_out", kNumbers},
    {"aten::huber_loss", "huber_cpu", kFloats},
    {"aten::huber_loss_backward", "huber_backward_cpu_out", kFloats},
    {"aten::binary_cross_entropy", "binary_cross_entropy", kFloats, "self"},
    {"aten::binary_cross_entropy_backward", "binary_cross_entropy_backward", kFloats},
};

using Kernels = std::unordered_map<std::string_view, std::vector<const Kernel*>>;

const Kernels& kernels() {
  static const auto* map = [] {
    auto* m = new Kernels;
    for (const Kernel& k : kKernels) (*m)[k.op].push_back(&k);
    return m;
  }();
  return *map;
}

// One empty factor makes a product that eager returns at once, where nothing is added to it.
bool any_empty(const Args& a) {
  auto empty = [&](const char* name) {
    auto t = a.opt_type(name);
    return t && t->numel() == 0;
  };
  return empty("self") || (!a.has("mat1") && (empty("mat2") || empty("vec")));
}

void check_kernel(const Kernel& k, const Args& a) {
  if (k.choice && a.text_or(k.choice, "") != k.chosen) return;
  if (any_word(k.given, [&](std::string_view name) { return !a.has(name); })) return;
  if (any_word(k.lacks, [&](std::string_view name) { return a.has(name); })) return;
  DType t = !k.decides              ? a.common_dtype()
            : k.decides == kBounded ? a.common_dtype({"self", "min", "max"})
                                    : a.type(k.decides).dtype();
  if (k.takes == kExactOrWide) t = a.as_float(t);
  if ((k.takes & kScalars) && a.type("self").rank() == 0) return;
  if ((k.takes & kEmpty) && any_empty(a)) return;
  bool takes = (kind(t) & k.takes) || (t == DType::kU8 && (k.takes & kBytes)) ||
               (t == DType::kS64 && (k.takes & kLongs));
  if (!takes) fail(Code::kNotImplemented, not_implemented_for(k.name, t));
}

}  // namespace

void check_call(const Row& row, const Args& a) {
  if (row.check) row.check(a);
  auto it = kernels().find(row.name);
  if (it == kernels().end()) return;
  for (const Kernel* k : it->second) check_kernel(*k, a);
}

}  // namespace tp::ops
