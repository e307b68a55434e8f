// The StableHLO writer: what it writes, and that the real plugin reads every form of it.
#include "hlo/builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "harness.h"

namespace tp::hlo {
namespace {

using test::run_module;
using test::Tensor;

constexpr double kInf = std::numeric_limits<double>::infinity();

Type type(DType t, IntList dims) { return ir::make_type(t, dims); }

// The numbers of a module that takes nothing and gives `results`.
std::vector<std::vector<double>> numbers(Builder& b, const std::vector<V>& results) {
  std::vector<Type> types;
  for (const V& v : results) types.push_back(v.type);
  std::vector<std::vector<double>> out;
  for (const Tensor& t : run_module(b.finish("test", results), {}, types))
    out.push_back(t.values());
  return out;
}
std::vector<double> numbers(Builder& b, V v) { return numbers(b, std::vector<V>{v})[0]; }

V list(Builder& b, IntList v, DType t = DType::kF32) { return b.constant_list(v, t); }

TEST(Builder, WritesGenericFormWithLocations) {
  Builder b;
  V x = b.parameter(type(DType::kF32, {2}));
  b.set_location("aten::add \"x\"");
  V y = b.add(x, x);
  std::string attr = "tf.aliasing_output = 0 : i32";
  EXPECT_EQ(b.finish("m", {&y, 1}, {&attr, 1}),
            "module @\"m\" {\n"
            "  func.func public @main(%0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> "
            "(tensor<2xf32>) {\n"
            "    %1 = \"stablehlo.add\"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> "
            "loc(\"aten::add \\\"x\\\"\")\n"
            "    \"func.return\"(%1) : (tensor<2xf32>) -> ()\n"
            "  }\n"
            "}\n");
  EXPECT_EQ(b.statements(), 1);
}

TEST(Builder, ConveniencesGiveTheValueItselfWhereNothingChanges) {
  Builder b;
  V x = b.parameter(type(DType::kF32, {2, 3}));
  EXPECT_EQ(b.reshape(x, IntList{2, 3}).id, x.id);
  EXPECT_EQ(b.convert(x, DType::kF32).id, x.id);
  EXPECT_EQ(b.broadcast_to(x, IntList{2, 3}).id, x.id);
  EXPECT_EQ(b.transpose(x, IntList{0, 1}).id, x.id);
  EXPECT_EQ(b.slice_dim(x, 1, 0, 3).id, x.id);
  EXPECT_EQ(b.pad(x, x, IntList{0, 0}, IntList{0, 0}, IntList{0, 0}).id, x.id);
  EXPECT_EQ(b.reduce(x, {}, Builder::Red::kSum).id, x.id);
  EXPECT_EQ(b.concat({&x, 1}, 0).id, x.id);
  EXPECT_EQ(b.statements(), 0);
}

TEST(Builder, ConstantsOfEveryTypeSurviveTheText) {
  for (int i = 0; i < static_cast<int>(DType::kCount); ++i) {
    auto t = static_cast<DType>(i);
    Builder b;
    std::vector<V> out{b.convert(b.constant(1, type(t, {2})), DType::kF64),
                       b.convert(b.zeros(type(t, {1})), DType::kF64)};
    if (!ir::is_complex(t)) out.push_back(b.convert(b.min_value(type(t, {1})), DType::kF64));
    auto v = numbers(b, out);
    EXPECT_EQ(v[0], (std::vector<double>{1, 1})) << ir::dtype_name(t);
    EXPECT_EQ(v[1], std::vector<double>{0}) << ir::dtype_name(t);
    if (ir::is_float(t) && t != DType::kF8E4M3FN) {
      EXPECT_EQ(v[2], std::vector<double>{-kInf});
    }
  }
}

TEST(Builder, ConstantsRoundAndOverflowAsTheirType) {
  Builder b;
  auto v = numbers(
      b, {b.constant(1e300, type(DType::kF32, {})), b.constant(-1e-7, type(DType::kF32, {})),
          b.constant_int(std::numeric_limits<int64_t>::min(), type(DType::kS64, {})),
          b.constant(1e30, type(DType::kS8, {})), b.constant_int(-1, type(DType::kU8, {}))});
  EXPECT_EQ(v[0][0], kInf);
  EXPECT_EQ(v[1][0], static_cast<double>(-1e-7f));
  EXPECT_EQ(v[2][0], -0x1p63);
  EXPECT_EQ(v[3][0], 127);
  EXPECT_EQ(v[4][0], 255);
  Builder c;
  EXPECT_TRUE(std::isnan(numbers(c, c.constant(std::nan(""), type(DType::kF64, {})))[0]));
}

TEST(Builder, EmptyTensorsAreValid) {
  Builder b;
  EXPECT_TRUE(
      numbers(b, b.add(b.zeros(type(DType::kF32, {0, 3})), b.ones(type(DType::kF32, {0, 3}))))
          .empty());
}

TEST(Builder, ConvertFollowsEager) {
  Builder b;
  V x = b.concat(std::vector<V>{b.constant(-1.5, type(DType::kF32, {1})),
                                b.constant(300.7, type(DType::kF32, {1})),
                                b.constant(std::nan(""), type(DType::kF32, {1}))},
                 0);
  auto v = numbers(b, {b.convert(x, DType::kPred), b.slice_dim(b.convert(x, DType::kU8), 0, 0, 2),
                       b.slice_dim(b.convert(x, DType::kS64), 0, 0, 2),
                       b.convert(b.convert(x, DType::kC64), DType::kPred)});
  EXPECT_EQ(v[0], (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(v[1], (std::vector<double>{255, 44}));  // wraps
  EXPECT_EQ(v[2], (std::vector<double>{-1, 300}));  // truncates
  EXPECT_EQ(v[3], (std::vector<double>{1, 1, 1}));
}

TEST(Builder, ReducesWithEveryIdentity) {
  using Red = Builder::Red;
  Builder b;
  V x = b.reshape(list(b, {1, 2, 3, -4, 5, 6}), IntList{2, 3});
  V p = b.compare(x, 0, Cmp::kGt);
  auto v = numbers(b, {b.reduce(x, IntList{1}, Red::kSum), b.reduce(x, IntList{0, 1}, Red::kProd),
                       b.reduce(x, IntList{1}, Red::kMax), b.reduce(x, IntList{0}, Red::kMin),
                       b.reduce(p, IntList{1}, Red::kAnd), b.reduce(p, IntList{1}, Red::kMax)});
  EXPECT_EQ(v[0], (std::vector<double>{6, 7}));
  EXPECT_EQ(v[1], std::vector<double>{-720});
  EXPECT_EQ(v[2], (std::vector<double>{3, 6}));
  EXPECT_EQ(v[3], (std::vector<double>{-4, 2, 3}));
  EXPECT_EQ(v[4], (std::vector<double>{1, 0}));
  EXPECT_EQ(v[5], (std::vector<double>{1, 1}));
}

TEST(Builder, RegionsMayUseValuesFromOutside) {
  Builder b;
  V step = b.scalar(2, DType::kF32);
  V start = b.scalar(1, DType::kF32);
  auto v = b.while_loop(
      {&start, 1},
      [](Builder& r, std::span<const V> x) -> std::vector<V> {
        return {r.compare(x[0], 100, Cmp::kLt)};
      },
      [&](Builder& r, std::span<const V> x) -> std::vector<V> {
        V rows = r.broadcast_to(x[0], IntList{2});
        V sum = r.reduce(rows, IntList{0}, Builder::Red::kSum);  // a region inside a region
        return {r.mul(r.div(sum, 2), step)};
      });
  EXPECT_EQ(numbers(b, v[0]), std::vector<double>{128});
}

TEST(Builder, SortCarriesItsCompanions) {
  Builder b;
  std::vector<V> in{list(b, {3, 1, 2}), list(b, {0, 1, 2}, DType::kS64)};
  auto v = b.sort(in, 0, true, [](Builder& r, std::span<const V> x) -> std::vector<V> {
    return {r.compare(x[0], x[1], Cmp::kLt, Order::kTotal)};
  });
  auto n = numbers(b, v);
  EXPECT_EQ(n[0], (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(n[1], (std::vector<double>{1, 2, 0}));
}

TEST(Builder, GatherAndScatterMeet) {
  Builder b;
  V x = b.reshape(list(b, {1, 2, 3, 4, 5, 6}), IntList{3, 2}), at = list(b, {2, 0}, DType::kS64);
  GatherConfig g;
  g.offset_dims = {1}, g.collapsed = {0}, g.start_index_map = {0}, g.slice_sizes = {1, 2};
  g.index_vector_dim = 1;
  V rows = b.gather(x, at, type(DType::kF32, {2, 2}), g);
  ScatterConfig s;
  s.update_window_dims = {1}, s.inserted_window_dims = {0}, s.scatter_dims_to_operand = {0};
  s.index_vector_dim = 1;
  V sum = b.scatter(x, at, rows, s, [](Builder& r, std::span<const V> v) -> std::vector<V> {
    return {r.add(v[0], v[1])};
  });
  auto n = numbers(b, {rows, sum});
  EXPECT_EQ(n[0], (std::vector<double>{5, 6, 1, 2}));
  EXPECT_EQ(n[1], (std::vector<double>{2, 4, 3, 4, 10, 12}));
}

TEST(Builder, StructuredOpsAreReadByThePlugin) {
  Builder b;
  V image = b.iota(type(DType::kF32, {1, 1, 4, 4}), 3),
    kernel = b.ones(type(DType::kF32, {1, 1, 2, 2}));
  ConvConfig c;
  c.stride = {1, 1}, c.pad_low = {0, 0}, c.pad_high = {0, 0}, c.lhs_dilation = {1, 1};
  c.rhs_dilation = {1, 1}, c.lhs = {0, 1, 2, 3}, c.rhs = {0, 1, 2, 3}, c.out = {0, 1, 2, 3};
  c.reversal = {true, false};
  IntList one(4, 1), none(4, 0), window{1, 1, 2, 2};
  V a = list(b, {1, 2}), m = b.reshape(list(b, {1, 2, 3, 4}), IntList{2, 2});
  V zero = b.scalar(0, DType::kS64);
  std::vector<V> starts{zero, zero};
  auto n = numbers(b, {b.conv(image, kernel, type(DType::kF32, {1, 1, 3, 3}), c),
                       b.reduce_window(image, b.min_value(type(DType::kF32, {})), window, window,
                                       none, none, one, one, Builder::Red::kMax),
                       b.dot(m, a, {}, {}, IntList{1}, IntList{0}, DType::kF32),
                       b.dot(m, m, IntList{0}, IntList{0}, IntList{1}, IntList{1}, DType::kF32),
                       b.dynamic_slice(m, starts, IntList{1, 2}),
                       b.dynamic_update_slice(m, b.zeros(type(DType::kF32, {1, 1})), starts),
                       b.pad(a, b.scalar(9, DType::kF32), IntList{1}, IntList{-1}, IntList{1}),
                       b.reverse(a, IntList{0})});
  EXPECT_EQ(n[0], (std::vector<double>{2, 6, 10, 2, 6, 10, 2, 6, 10}));
  EXPECT_EQ(n[1], (std::vector<double>{1, 3, 1, 3}));
  EXPECT_EQ(n[2], (std::vector<double>{5, 11}));
  EXPECT_EQ(n[3], (std::vector<double>{5, 25}));
  EXPECT_EQ(n[4], (std::vector<double>{1, 2}));
  EXPECT_EQ(n[5], (std::vector<double>{0, 2, 3, 4}));
  EXPECT_EQ(n[6], (std::vector<double>{9, 1, 9}));
  EXPECT_EQ(n[7], (std::vector<double>{2, 1}));
}

TEST(Builder, RandomBitsAdvanceTheState) {
  Builder b;
  auto v = b.rng_bits(b.constant_int(7, type(DType::kU64, {2})), type(DType::kU32, {4}));
  auto n = numbers(b, v);
  EXPECT_NE(n[0], (std::vector<double>{7, 7}));
  EXPECT_NE(n[1][0], n[1][1]);
}

TEST(Builder, TotalOrderPutsNanLast) {
  Builder b;  // on parameters: XLA's constant folding knows no total order
  V x = b.parameter(type(DType::kF32, {2})), y = b.parameter(x.type);
  std::vector<V> v{b.compare(x, y, Cmp::kLt, Order::kTotal), b.compare(x, y, Cmp::kLt)};
  Tensor ones = test::f32({2}, {1, std::nan("")}), nans = test::f32({2}, {std::nan(""), 1});
  auto out = run_module(b.finish("test", v), {ones, nans}, {v[0].type, v[1].type});
  EXPECT_EQ(out[0].values(), (std::vector<double>{1, 0}));
  EXPECT_EQ(out[1].values(), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace tp::hlo
