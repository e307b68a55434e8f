// Normalisation rows: statistics by hand, running statistics, mixed dtypes, and every backward
// against central differences of its forward.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "harness.h"

namespace tp::test {
namespace {

using Values = std::vector<double>;
using Dims = std::vector<int64_t>;

std::vector<Tensor> inferred_run(OpCall call) { return call.types(call.inferred()).run(); }

Values wave(size_t n, double phase) {
  Values v;
  for (size_t i = 0; i < n; ++i) v.push_back(std::sin(1.7 * static_cast<double>(i) + phase) + 0.3);
  return v;
}

size_t count(const Dims& d) {
  return static_cast<size_t>(std::accumulate(d.begin(), d.end(), int64_t{1}, std::multiplies<>()));
}

Tensor f64(const Dims& dims, const Values& v) { return make_tensor(ir::DType::kF64, dims, v); }

double dot(const Values& x, const Values& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

Values moved(Values x, const Values& direction, double step) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += step * direction[i];
  return x;
}

// The derivative of <f(x), g> along a direction, by central differences, against the gradient.
void expect_derivative(const std::function<Values(const Values&)>& f, const Values& x,
                       const Values& g, const Values& gradient) {
  ASSERT_EQ(gradient.size(), x.size());
  for (double phase : {0.5, 4.0}) {
    Values direction = wave(x.size(), phase);
    double h = 1e-5, up = dot(f(moved(x, direction, h)), g),
           down = dot(f(moved(x, direction, -h)), g);
    double want = (up - down) / (2 * h);
    EXPECT_NEAR(dot(gradient, direction), want, 1e-6 * (1 + std::abs(want)));
  }
}

const Dims kDims{2, 4, 3};

OpCall layer_norm(const Values& x, const Values& w, const Values& bias) {
  OpCall call("aten::native_layer_norm");
  call.tensor("input", f64(kDims, x)).ints("normalized_shape", {3}).tensor("weight", f64({3}, w));
  return call.tensor("bias", f64({3}, bias)).real("eps", 1e-3);
}

OpCall group_norm(const Values& x, const Values& w, const Values& bias) {
  OpCall call("aten::native_group_norm");
  call.tensor("input", f64(kDims, x)).tensor("weight", f64({4}, w)).tensor("bias", f64({4}, bias));
  return call.integer("N", 2)
      .integer("C", 4)
      .integer("HxW", 3)
      .integer("group", 2)
      .real("eps", 1e-3);
}

OpCall batch_norm(const Values& x, const Values& w, const Values& bias, bool training) {
  OpCall call("aten::native_batch_norm");
  call.tensor("input", f64(kDims, x)).tensor("weight", f64({4}, w)).tensor("bias", f64({4}, bias));
  call.tensor("running_mean", f64({4}, {1, 2, 3, 4})).tensor("running_var", f64({4}, {1, 1, 2, 2}));
  return call.boolean("training", training).number("momentum", 0.25).real("eps", 1e-3);
}

// Forward and backward of one op; `make` builds the forward, `finish` adds the backward's own
// arguments.
void check_gradients(
    const std::function<OpCall(const Values&, const Values&, const Values&)>& make,
    const std::function<std::vector<Tensor>(const Values& g, const std::vector<Tensor>& y,
                                            const Values& x, const Values& w)>& backward,
    size_t params) {
  Values x = wave(count(kDims), 0.2), w = wave(params, 1.0), bias = wave(params, 2.0);
  Values g = wave(count(kDims), 3.0);
  std::vector<Tensor> y = inferred_run(make(x, w, bias));
  std::vector<Tensor> d = backward(g, y, x, w);
  auto value = [&](const Values& p, const Values& q, const Values& r) {
    return inferred_run(make(p, q, r))[0].values();
  };
  expect_derivative([&](const Values& v) { return value(v, w, bias); }, x, g, d[0].values());
  expect_derivative([&](const Values& v) { return value(x, v, bias); }, w, g, d[1].values());
  expect_derivative([&](const Values& v) { return value(x, w, v); }, bias, g, d[2].values());
}

TEST(Norm, LayerNormGradients) {
  check_gradients(
      layer_norm,
      [](const Values& g, const std::vector<Tensor>& y, const Values& x, const Values& w) {
        OpCall call("aten::native_layer_norm_backward");
        call.tensor("grad_out", f64(kDims, g)).tensor("input", f64(kDims, x));
        call.ints("normalized_shape", {3}).tensor("mean", y[1]).tensor("rstd", y[2]);
        call.tensor("weight", f64({3}, w)).tensor("bias", f64({3}, w));
        return inferred_run(call.bools("output_mask", {1, 1, 1}));
      },
      3);
}

TEST(Norm, GroupNormGradients) {
  check_gradients(
      group_norm,
      [](const Values& g, const std::vector<Tensor>& y, const Values& x, const Values& w) {
        OpCall call("aten::native_group_norm_backward");
        call.tensor("grad_out", f64(kDims, g)).tensor("input", f64(kDims, x));
        call.tensor("mean", y[1]).tensor("rstd", y[2]).tensor("weight", f64({4}, w));
        call.integer("N", 2).integer("C", 4).integer("HxW", 3).integer("group", 2);
        return inferred_run(call.bools("output_mask", {1, 1, 1}));
      },
      4);
}

void check_batch_norm(bool training) {
  check_gradients(
      [training](const Values& x, const Values& w, const Values& b) {
        return batch_norm(x, w, b, training);
      },
      [training](const Values& g, const std::vector<Tensor>& y, const Values& x, const Values& w) {
        OpCall call("aten::native_batch_norm_backward");
        call.tensor("grad_out", f64(kDims, g))
            .tensor("input", f64(kDims, x))
            .tensor("weight", f64({4}, w));
        call.tensor("running_mean", f64({4}, {1, 2, 3, 4}))
            .tensor("running_var", f64({4}, {1, 1, 2, 2}));
        call.tensor("save_mean", y[1]).tensor("save_invstd", y[2]).boolean("train", training);
        return inferred_run(call.real("eps", 1e-3).bools("output_mask", {1, 1, 1}));
      },
      4);
}
TEST(Norm, BatchNormGradients) { check_batch_norm(true); }
TEST(Norm, BatchNormGradientsInEvaluation) { check_batch_norm(false); }

TEST(Norm, BatchNormUpdatesRunningStatistics) {
  Values x = wave(count(kDims), 0.2), ones(4, 1.0), zeros(4, 0.0);
  std::vector<Tensor> y = inferred_run(batch_norm(x, ones, zeros, true));
  ASSERT_EQ(y.size(), 5u);
  double mean = 0, square = 0;
  for (size_t i : {0, 1, 2, 12, 13, 14}) mean += x[i] / 6;
  for (size_t i : {0, 1, 2, 12, 13, 14}) square += (x[i] - mean) * (x[i] - mean);
  EXPECT_NEAR(y[1].values()[0], mean, 1e-12);
  EXPECT_NEAR(y[3].values()[0], 0.25 * mean + 0.75 * 1, 1e-12);
  EXPECT_NEAR(y[4].values()[0], 0.25 * square / 5 + 0.75 * 1, 1e-12);
}

TEST(Norm, EvaluationSavesAndWritesNothing) {
  std::vector<ir::Type> t = batch_norm(wave(24, 0), wave(4, 0), wave(4, 0), false).inferred();
  EXPECT_EQ(t[1].text(), "f64[0]");
  EXPECT_FALSE(t[3]);
  EXPECT_FALSE(t[4]);
}

TEST(Norm, HalvesMixWithFloatParameters) {
  auto types = [](ir::DType x, ir::DType w) {
    OpCall call("aten::native_layer_norm");
    call.tensor("input", make_tensor(x, {1, 2}, {1, 2})).ints("normalized_shape", {2});
    return call.tensor("weight", make_tensor(w, {2}, {1, 1}))
        .none("bias")
        .real("eps", 1e-5)
        .inferred();
  };
  EXPECT_EQ(types(ir::DType::kBF16, ir::DType::kF32)[1].text(), "f32[1,1]");
  EXPECT_EQ(types(ir::DType::kBF16, ir::DType::kBF16)[1].text(), "bf16[1,1]");
  EXPECT_THROW(types(ir::DType::kF32, ir::DType::kF64), Error);
}

TEST(Norm, WeightNormScalesRows) {
  OpCall call("aten::_weight_norm_interface");
  call.tensor("v", f32({2, 2}, {3, 4, 0, 2})).tensor("g", f32({2, 1}, {10, 1})).integer("dim", 0);
  std::vector<Tensor> y = inferred_run(call);
  EXPECT_EQ(y[0].values(), (Values{6, 8, 0, 1}));
  EXPECT_EQ(y[1].values(), (Values{5, 2}));
}

}  // namespace
}  // namespace tp::test
