// Pooling and resizing rows: eager's scan order for maxima, padding counts, and backward as the
// transpose.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "harness.h"

namespace tp::test {
namespace {

using Values = std::vector<double>;
const double kNan = std::numeric_limits<double>::quiet_NaN(),
             kInf = std::numeric_limits<double>::infinity();

OpCall windowed(const char* row, const char* arg, Tensor x, std::vector<int64_t> kernel,
                std::vector<int64_t> stride, std::vector<int64_t> padding) {
  OpCall call(row);
  call.tensor(arg, std::move(x))
      .ints("kernel_size", std::move(kernel))
      .ints("stride", std::move(stride));
  return call.ints("padding", std::move(padding)).boolean("ceil_mode", false);
}

std::vector<Tensor> max_pool(Tensor x, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                             std::vector<int64_t> padding, const std::string& dims) {
  OpCall call = windowed("aten::max_pool2d_with_indices", "self", std::move(x), std::move(kernel),
                         std::move(stride), std::move(padding));
  return call.ints("dilation", {1, 1}).types({"f32" + dims, "s64" + dims}).run();
}

TEST(Pool, FirstOfEqualMaxima) {
  std::vector<Tensor> y = max_pool(f32({1, 2, 2}, {1, 1, 1, 1}), {2, 2}, {1, 1}, {1, 1}, "[1,3,3]");
  EXPECT_EQ(y[1].values(), (Values{0, 0, 1, 0, 0, 1, 2, 2, 3}));
}

TEST(Pool, LastNanWins) {
  Tensor x = f32({1, 3, 3}, {1, kNan, 2, kNan, 3, 1, 0, 0, 0});
  std::vector<Tensor> y = max_pool(x, {3, 3}, {1, 1}, {0, 0}, "[1,1,1]");
  EXPECT_TRUE(std::isnan(y[0].values()[0]));
  EXPECT_EQ(y[1].values(), Values{3});
}

TEST(Pool, PaddingLosesAgainstMinusInfinity) {
  std::vector<Tensor> y =
      max_pool(f32({1, 1, 2}, {-kInf, -kInf}), {1, 2}, {1, 2}, {0, 1}, "[1,1,2]");
  EXPECT_EQ(y[1].values(), (Values{0, 1}));
}

TEST(Pool, LongWindowsAgreeWithUnrolledOnes) {
  Values v;
  for (int i = 0; i < 20; ++i) v.push_back(std::fmod(i * 7.0, 20));
  v[5] = v[9] = 30;
  std::vector<Tensor> y = max_pool(f32({1, 1, 20}, v), {1, 18}, {1, 1}, {0, 0}, "[1,1,3]");
  EXPECT_EQ(y[1].values(), (Values{5, 5, 5}));
}

TEST(Pool, MaxBackwardFollowsIndices) {
  Tensor x = f32({1, 3, 3}, {1, 5, 2, 4, 9, 3, 0, 7, 8});
  std::vector<Tensor> y = max_pool(x, {2, 2}, {1, 1}, {0, 0}, "[1,2,2]");
  OpCall call =
      windowed("aten::max_pool2d_with_indices_backward", "self", x, {2, 2}, {1, 1}, {0, 0});
  call.ints("dilation", {1, 1})
      .tensor("grad_output", f32({1, 2, 2}, {1, 2, 4, 8}))
      .tensor("indices", y[1]);
  EXPECT_EQ(call.types({"f32[1,3,3]"}).run()[0].values(), (Values{0, 0, 0, 0, 15, 0, 0, 0, 0}));
}

Values avg_pool(bool include_pad, int64_t divisor) {
  OpCall call =
      windowed("aten::avg_pool2d", "self", f32({1, 2, 2}, {1, 2, 3, 6}), {2, 2}, {1, 1}, {1, 1});
  call.boolean("count_include_pad", include_pad);
  divisor ? call.integer("divisor_override", divisor) : call.none("divisor_override");
  return call.types({"f32[1,3,3]"}).run()[0].values();
}

TEST(Pool, AverageCountsPaddingAsAsked) {
  EXPECT_EQ(avg_pool(true, 0), (Values{0.25, 0.75, 0.5, 1, 3, 2, 0.75, 2.25, 1.5}));
  EXPECT_EQ(avg_pool(false, 0), (Values{1, 1.5, 2, 2, 3, 4, 3, 4.5, 6}));
  EXPECT_EQ(avg_pool(true, 2), (Values{0.5, 1.5, 1, 2, 6, 4, 1.5, 4.5, 3}));
}

TEST(Pool, AdaptiveWindowsOverlap) {
  OpCall call("aten::_adaptive_avg_pool2d");
  call.tensor("self", f32({1, 1, 3}, {1, 2, 6})).ints("output_size", {1, 2});
  EXPECT_EQ(call.types(call.inferred()).run()[0].values(), (Values{1.5, 4}));
  OpCall back("aten::_adaptive_avg_pool2d_backward");
  back.tensor("grad_output", f32({1, 1, 2}, {2, 4})).tensor("self", f32({1, 1, 3}, {1, 2, 6}));
  EXPECT_EQ(back.types(back.inferred()).run()[0].values(), (Values{1, 3, 2}));
}

TEST(Pool, InfinityStaysInItsWindow) {
  OpCall call("aten::_adaptive_avg_pool2d");
  call.tensor("self", f32({1, 1, 5}, {1, 3, 5, kInf, 2})).ints("output_size", {1, 3});
  Values y = call.types(call.inferred()).run()[0].values();
  EXPECT_EQ(y[0], 2);
  EXPECT_EQ(y[2], kInf);
}

TEST(Pool, EmptyBatchIsEmpty) {
  EXPECT_EQ(max_pool(f32({0, 1, 2, 2}, {}), {2, 2}, {2, 2}, {0, 0}, "[0,1,1,1]")[1].type.text(),
            "s64[0,1,1,1]");
}

TEST(Pool, ChecksSpeakEagersWords) {
  OpCall call("aten::max_pool3d_with_indices");
  call.tensor("self", f32({1, 2, 2, 2}, Values(8, 1))).ints("kernel_size", {2}).ints("stride", {1});
  call.ints("padding", {2}).ints("dilation", {1}).boolean("ceil_mode", false);
  try {
    call.inferred();
    FAIL() << "too much padding";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(),
              "pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 "
              "and dilation=1");
  }
}

Values resize(const char* row, Tensor x, int64_t out, bool align) {
  OpCall call(row);
  call.tensor("self", std::move(x))
      .ints("output_size", {out})
      .none("scales")
      .boolean("align_corners", align);
  return call.types({"f64[1,1," + std::to_string(out) + "]"}).run()[0].values();
}

TEST(Upsample, SourcePositionsAsEager) {
  Tensor x = make_tensor(ir::DType::kF64, {1, 1, 2}, {0, 4});
  EXPECT_EQ(resize("aten::upsample_linear1d", x, 4, false), (Values{0, 1, 3, 4}));
  EXPECT_EQ(resize("aten::upsample_linear1d", x, 3, true), (Values{0, 2, 4}));
  EXPECT_EQ(resize("aten::upsample_nearest1d", x, 3, false), (Values{0, 0, 4}));
  EXPECT_EQ(resize("aten::_upsample_nearest_exact1d", x, 3, false), (Values{0, 4, 4}));
}

TEST(Upsample, BackwardIsTheTranspose) {
  Values x{1, -2, 5}, g{1, 2, 3, 4, 5, 6, 7};
  Values y =
      resize("aten::upsample_linear1d", make_tensor(ir::DType::kF64, {1, 1, 3}, x), 7, false);
  OpCall call("aten::upsample_linear1d_backward");
  call.tensor("grad_output", make_tensor(ir::DType::kF64, {1, 1, 7}, g)).ints("output_size", {7});
  call.ints("input_size", {1, 1, 3}).boolean("align_corners", false).none("scales");
  Values d = call.types({"f64[1,1,3]"}).run()[0].values();
  EXPECT_NEAR(std::inner_product(x.begin(), x.end(), d.begin(), 0.0),
              std::inner_product(y.begin(), y.end(), g.begin(), 0.0), 1e-12);
}

}  // namespace
}  // namespace tp::test
