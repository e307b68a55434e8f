// Convolution rows: values by hand, and backward by adjointness (<conv(x, w), g> = <x, dx> = <w,
// dw>), which holds for every stride, padding, dilation and group count. Embedding and CTC rows at
// the end.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "harness.h"

namespace tp::test {
namespace {

struct Case {
  const char* name;
  std::vector<int64_t> x, w, stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

std::vector<double> wave(int64_t n, double phase) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(std::sin(1.7 * static_cast<double>(i) + phase));
  return v;
}

Tensor filled(const std::vector<int64_t>& dims, double phase) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return make_tensor(ir::DType::kF64, dims, wave(n, phase));
}

double dot(const Tensor& a, const Tensor& b) {
  std::vector<double> x = a.values(), y = b.values();
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

OpCall with_geometry(OpCall call, const Case& c) {
  return call.ints("stride", c.stride)
      .ints("padding", c.padding)
      .ints("dilation", c.dilation)
      .boolean("transposed", c.transposed)
      .ints("output_padding", c.output_padding)
      .integer("groups", c.groups);
}

OpCall forward(const Tensor& x, const Tensor& w, const Case& c) {
  OpCall call("aten::convolution_overrideable");
  call.tensor("input", x).tensor("weight", w).none("bias");
  return with_geometry(call, c);
}

OpCall backward(const Tensor& g, const Tensor& x, const Tensor& w, const Case& c,
                std::vector<int64_t> mask) {
  OpCall call("aten::convolution_backward_overrideable");
  call.tensor("grad_output", g).tensor("input", x).tensor("weight", w).bools("output_mask", mask);
  return with_geometry(call, c);
}

std::vector<Tensor> inferred_run(OpCall call) { return call.types(call.inferred()).run(); }

class ConvAdjoint : public testing::TestWithParam<Case> {};

TEST_P(ConvAdjoint, GradientsAreTheTranspose) {
  const Case& c = GetParam();
  Tensor x = filled(c.x, 0.3), w = filled(c.w, 1.1);
  std::vector<Tensor> y = inferred_run(forward(x, w, c));
  Tensor g = filled({y[0].type.dims().begin(), y[0].type.dims().end()}, 2.0);
  std::vector<Tensor> d = inferred_run(backward(g, x, w, c, {1, 1, 1}));
  double want = dot(y[0], g), scale = 1e-9 * (1 + std::abs(want));
  EXPECT_NEAR(dot(d[0], x), want, scale);
  EXPECT_NEAR(dot(d[1], w), want, scale);
  EXPECT_EQ(d[2].type.numel(), g.type.dim(1));
}

INSTANTIATE_TEST_SUITE_P(
    All, ConvAdjoint,
    testing::Values(
        Case{"plain", {2, 3, 6, 5}, {4, 3, 3, 2}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, false, 1},
        Case{"strided", {2, 3, 7, 6}, {4, 3, 3, 2}, {2, 3}, {1, 1}, {2, 1}, {0, 0}, false, 1},
        Case{"grouped", {2, 4, 6, 5}, {6, 2, 3, 2}, {2, 1}, {2, 1}, {1, 2}, {0, 0}, false, 2},
        Case{"many_groups", {2, 20, 5}, {20, 2, 3}, {1}, {1}, {1}, {0}, false, 10},
        Case{"depthwise", {2, 4, 6, 5}, {8, 1, 3, 3}, {2, 1}, {1, 1}, {1, 1}, {0, 0}, false, 4},
        Case{"transposed", {2, 3, 4, 3}, {3, 4, 3, 2}, {2, 3}, {1, 0}, {1, 2}, {1, 2}, true, 1},
        Case{"transposed_grouped",
             {2, 4, 4, 3},
             {4, 3, 3, 2},
             {2, 1},
             {1, 1},
             {2, 3},
             {1, 1},
             true,
             2},
        Case{"one_dim", {2, 3, 9}, {4, 3, 3}, {2}, {1}, {1}, {0}, false, 1},
        Case{"three_dims",
             {1, 2, 4, 5, 3},
             {4, 1, 2, 2, 3},
             {2, 1, 1},
             {1, 0, 1},
             {1, 1, 1},
             {0, 0, 0},
             false,
             2}),
    [](const auto& info) { return info.param.name; });

const Case kOneDim{"", {}, {}, {1}, {1}, {1}, {0}, false, 1};

TEST(Conv, ValuesByHand) {
  Tensor x = f32({1, 1, 4}, {1, 2, 3, 4}), w = f32({1, 1, 3}, {1, 0, -1});
  OpCall call("aten::convolution_overrideable");
  call.tensor("input", x).tensor("weight", w).tensor("bias", f32({1}, {10}));
  EXPECT_EQ(inferred_run(with_geometry(call, kOneDim))[0].values(),
            (std::vector<double>{8, 8, 8, 13}));
}

TEST(Conv, MaskedGradientsAreAbsent) {
  Tensor x = f32({1, 1, 4}, {1, 2, 3, 4}), w = f32({1, 1, 3}, {1, 0, -1});
  std::vector<ir::Type> t = backward(x, x, w, kOneDim, {0, 1, 0}).inferred();
  EXPECT_FALSE(t[0]);
  EXPECT_TRUE(t[1] == w.type);
  EXPECT_FALSE(t[2]);
}

TEST(Conv, EmptyBatchGivesZeroWeightGradient) {
  Tensor x = f32({0, 1, 4}, {}), w = f32({1, 1, 3}, {1, 0, -1});
  EXPECT_EQ(inferred_run(forward(x, w, kOneDim))[0].type.text(), "f32[0,1,4]");
  std::vector<Tensor> d = inferred_run(backward(x, x, w, kOneDim, {1, 1, 1}));
  EXPECT_EQ(d[1].values(), (std::vector<double>{0, 0, 0}));
}

TEST(Conv, ChecksSpeakEagersWords) {
  Tensor x = f32({1, 2, 5}, std::vector<double>(10, 1)),
         w = f32({3, 4, 3}, std::vector<double>(36, 1));
  try {
    forward(x, w, kOneDim).inferred();
    FAIL() << "channels do not match";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(),
              "Given groups=1, weight of size [3, 4, 3], expected input[1, 2, 5] to have 4 "
              "channels, but got 2 channels instead");
  }
}

TEST(Embedding, BackwardSkipsPadding) {
  OpCall call("aten::embedding_dense_backward");
  call.tensor("grad_output", f32({3, 2}, {1, 2, 3, 4, 5, 6}))
      .tensor("indices", s64({3}, {1, 0, 1}));
  call.integer("num_weights", 3).integer("padding_idx", 0).boolean("scale_grad_by_freq", true);
  EXPECT_EQ(inferred_run(call)[0].values(), (std::vector<double>{0, 0, 3, 4, 0, 0}));
}

OpCall bag(int64_t mode) {
  OpCall call("aten::_embedding_bag");
  call.tensor("weight", f32({3, 2}, {1, 2, 3, -4, 5, 6})).tensor("indices", s64({3}, {2, 1, 0}));
  call.tensor("offsets", s64({3}, {0, 2, 2})).integer("mode", mode).integer("padding_idx", -1);
  call.boolean("scale_grad_by_freq", false).boolean("sparse", false).none("per_sample_weights");
  return call.boolean("include_last_offset", false);
}

TEST(Embedding, BagsSumMeanMax) {
  EXPECT_EQ(inferred_run(bag(0))[0].values(), (std::vector<double>{8, 2, 0, 0, 1, 2}));
  EXPECT_EQ(inferred_run(bag(1))[0].values(), (std::vector<double>{4, 1, 0, 0, 1, 2}));
  std::vector<Tensor> most = inferred_run(bag(2));
  EXPECT_EQ(most[0].values(), (std::vector<double>{5, 6, 0, 0, 1, 2}));
  EXPECT_EQ(most[1].values(), (std::vector<double>{0, 0, 2}));
  EXPECT_EQ(most[3].values(), (std::vector<double>{2, 2, 0, 0, 0, 0}));
}

// Two frames, classes {blank, a}, all equally likely: "a" is aa, a-, -a: 3 of 4 paths.
TEST(Ctc, CountsPaths) {
  OpCall call("aten::_ctc_loss.Tensor");
  call.tensor("log_probs", f32({2, 1, 2}, std::vector<double>(4, std::log(0.5))))
      .integer("blank", 0);
  call.tensor("targets", s64({1, 1}, {1})).tensor("input_lengths", s64({1}, {2}));
  call.tensor("target_lengths", s64({1}, {1})).boolean("zero_infinity", false);
  EXPECT_NEAR(inferred_run(call)[0].values()[0], -std::log(0.75), 1e-6);
}

}  // namespace
}  // namespace tp::test
