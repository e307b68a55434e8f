// Sorting, scans, ranges, random numbers and the loss scaler, through the real plugin.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "harness.h"

namespace tp::test {
namespace {

using Values = std::vector<double>;
using Texts = std::vector<std::string>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

OpCall sorted(bool descending) {
  OpCall call("aten::sort.stable");
  call.tensor("self", f32({6}, {2, kNan, -0.0, 0.0, -kInf, 2}))
      .boolean("stable", true)
      .integer("dim", 0);
  call.boolean("descending", descending).types(Texts{"f32[6]", "s64[6]"});
  return call;
}

TEST(SortOps, NanIsTheGreatestAndEqualsKeepTheirOrder) {
  auto up = sorted(false).run();
  EXPECT_EQ(up[1].values(), (Values{4, 2, 3, 0, 5, 1}));
  EXPECT_TRUE(std::isnan(up[0].values()[5]));
  EXPECT_EQ(sorted(true).run()[1].values(), (Values{1, 0, 5, 2, 3, 4}));
}

OpCall top(bool largest, double nan) {
  OpCall call("aten::topk");
  call.tensor("self", f32({5}, {1, nan, kInf, -kInf, 3})).integer("k", 2).integer("dim", -1);
  call.boolean("largest", largest).boolean("sorted", true).types(Texts{"f32[2]", "s64[2]"});
  return call;
}

TEST(SortOps, TopkOrdersNanOfEitherSign) {
  for (double nan : {kNan, -kNan}) {
    EXPECT_EQ(top(true, nan).run()[1].values(), (Values{1, 2}));
    EXPECT_EQ(top(false, nan).run()[1].values(), (Values{3, 0}));
  }
}

TEST(SortOps, SearchsortedKnowsBothSides) {
  for (int64_t n : {4, 100}) {  // compared one by one, and by bisection
    Values edges(static_cast<size_t>(n));
    for (size_t i = 0; i < edges.size(); ++i) edges[i] = static_cast<double>(i / 2);
    for (bool right : {false, true}) {
      OpCall call("aten::searchsorted.Tensor");
      call.tensor("sorted_sequence", f32({n}, edges)).tensor("self", f32({3}, {-1, 1, kNan}));
      call.boolean("out_int32", false).boolean("right", right).none("side").none("sorter");
      EXPECT_EQ(call.run()[0].values(), (Values{0, right ? 4.0 : 2.0, static_cast<double>(n)}));
    }
  }
}

TEST(SortOps, HistcCountsTheUpperEdge) {
  OpCall call("aten::histc");
  call.tensor("self", f32({5}, {0, 1, 2, 4, 9}))
      .integer("bins", 2)
      .number("min", 0)
      .number("max", 4);
  EXPECT_EQ(call.run()[0].values(), (Values{2, 2}));
}

// --- scans

TEST(ScanOps, CumsumAgreesAcrossBlocks) {
  for (int64_t n : {1, 31, 32, 33, 1025}) {
    Values v(static_cast<size_t>(n)), want(v.size());
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i % 7) - 3;
    std::partial_sum(v.begin(), v.end(), want.begin());
    OpCall call("aten::cumsum");
    call.tensor("self", s64({n, 1}, v))
        .integer("dim", 0)
        .none("dtype")
        .types({ir::make_type(ir::DType::kS64, std::vector<int64_t>{n, 1})});
    EXPECT_EQ(call.run()[0].values(), want);
  }
}

TEST(ScanOps, CummaxKeepsTheLatestPlaceAndNan) {
  OpCall call("aten::cummax");
  call.tensor("self", f32({6}, {1, 1, 0, kNan, 5, kNan})).integer("dim", 0);
  auto out = call.run();
  EXPECT_EQ(out[1].values(), (Values{0, 1, 1, 3, 3, 5}));
  EXPECT_TRUE(std::isnan(out[0].values()[4]));
}

// --- ranges

TEST(CreationOps, ArangeCountsAsEagerDoes) {
  OpCall ints("aten::arange.start_step"), reals("aten::arange.start_step");
  ints.integer("start", 10).integer("end", 0).integer("step", -3);
  reals.integer("start", 0).real("end", 1).real("step", 0.25);
  EXPECT_EQ(ints.run()[0].values(), (Values{10, 7, 4, 1}));
  EXPECT_EQ(ints.inferred()[0].text(), "s64[4]");
  EXPECT_EQ(reals.run()[0].values(), (Values{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(reals.inferred()[0].text(), "f32[4]");
}

TEST(CreationOps, LinspaceEndsOnItsEnd) {
  OpCall call("aten::linspace");
  call.number("start", 0.0).number("end", 1.0).integer("steps", 4).none("dtype");
  EXPECT_EQ(call.run()[0].values().back(), 1.0);
  EXPECT_EQ(call.run()[0].values().front(), 0.0);
}

TEST(CreationOps, TriangleIndicesOfOneElement) {
  OpCall call("aten::tril_indices");
  call.integer("row", 4).integer("col", 3).integer("offset", -3).none("dtype");
  EXPECT_EQ(call.run()[0].values(), (Values{3, 0}));
}

// --- random

std::vector<Tensor> uniform(int64_t seed, int64_t offset, ir::DType t = ir::DType::kF32) {
  OpCall call("aten::uniform");
  call.tensor("self", make_tensor(t, {4096}, Values(4096))).number("from", 0.0).number("to", 1.0);
  ir::Scalar s = OpCall::scalar(seed), o = OpCall::scalar(offset);
  return call.number("seed", s, false).number("offset", o, false).run();
}

TEST(RandomOps, OneSeedAndOffsetGiveTheSameNumbers) {
  EXPECT_EQ(uniform(1, 5)[0].bytes, uniform(1, 5)[0].bytes);
  EXPECT_NE(uniform(1, 5)[0].bytes, uniform(1, 6)[0].bytes);
  EXPECT_NE(uniform(1, 5)[0].bytes, uniform(2, 5)[0].bytes);
}

TEST(RandomOps, NeighbouringOffsetsShareNoNumbers) {
  Values a = uniform(7, 0)[0].values(), c = uniform(7, 1)[0].values();
  int shared = 0;
  std::sort(c.begin(), c.end());
  for (double x : a) shared += std::binary_search(c.begin(), c.end(), x);
  EXPECT_LT(shared, 16);  // chance alone: one in 2^24 a pair
}

TEST(RandomOps, UniformStaysBelowOneInEveryType) {
  for (ir::DType t : {ir::DType::kF32, ir::DType::kF64, ir::DType::kBF16}) {
    Values v = uniform(3, 0, t)[0].values();
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 1.0);
    EXPECT_GE(*std::min_element(v.begin(), v.end()), 0.0);
    EXPECT_NEAR(std::accumulate(v.begin(), v.end(), 0.0) / 4096, 0.5, 0.03);
  }
}

TEST(RandomOps, RandpermIsAPermutation) {
  OpCall call("aten::randperm");
  call.integer("n", 100).none("dtype");
  call.number("seed", OpCall::scalar(int64_t{1}), false)
      .number("offset", OpCall::scalar(int64_t{0}), false);
  Values v = call.run()[0].values(), ordered = v;
  std::sort(ordered.begin(), ordered.end());
  for (size_t i = 0; i < ordered.size(); ++i) EXPECT_EQ(ordered[i], static_cast<double>(i));
  EXPECT_NE(v, ordered);
}

// --- the loss scaler

TEST(AmpOps, UnscaleReportsWhatIsNotFinite) {
  for (double bad : {1.0, kInf, kNan}) {
    OpCall call("aten::_amp_foreach_non_finite_check_and_unscale");
    call.tensors("self", {f32({2}, {2, 4}), f32({1}, {bad})});
    call.tensor("found_inf", f32({1}, {0})).tensor("inv_scale", f32({1}, {0.5}));
    auto out = call.run();
    EXPECT_EQ(out[0].values(), (Values{1, 2}));
    EXPECT_EQ(out[2].values(), (Values{bad == 1.0 ? 0.0 : 1.0}));
  }
}

TEST(AmpOps, ScaleGrowsAndBacksOff) {
  auto update = [](double found, double tracker) {
    OpCall call("aten::_amp_update_scale");
    call.tensor("self", f32({1}, {8}));
    call.tensor("growth_tracker", make_tensor(ir::DType::kS32, {1}, {tracker}));
    call.tensor("found_inf", f32({1}, {found})).real("scale_growth_factor", 2);
    return call.real("scale_backoff_factor", 0.5).integer("growth_interval", 3).run();
  };
  EXPECT_EQ(update(0, 2)[0].values(), Values{16});
  EXPECT_EQ(update(0, 2)[1].values(), Values{0});
  EXPECT_EQ(update(0, 1)[0].values(), Values{8});
  EXPECT_EQ(update(0, 1)[1].values(), Values{2});
  EXPECT_EQ(update(1, 1)[0].values(), Values{4});
  EXPECT_EQ(update(1, 1)[1].values(), Values{0});
}

}  // namespace
}  // namespace tp::test
