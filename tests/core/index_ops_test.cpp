// Gathers, scatters, joins and pads against numbers worked out by hand, through the real plugin.
#include <gtest/gtest.h>

#include "base/error.h"
#include "harness.h"

namespace tp::test {
namespace {

using Values = std::vector<double>;

std::string message_of(const OpCall& call) {
  try {
    call.inferred();
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

Tensor grid() { return f32({2, 3}, {0, 1, 2, 3, 4, 5}); }

TEST(IndexOps, IndexSelectIsOneGather) {
  OpCall call("aten::index_select");
  call.tensor("self", grid()).integer("dim", 1).tensor("index", s64({3}, {2, 0, 2}));
  EXPECT_EQ(call.run()[0].values(), (Values{2, 0, 2, 5, 3, 5}));
  std::string text = call.lower().text;
  size_t first = text.find("stablehlo.gather\"");
  ASSERT_NE(first, text.npos);
  EXPECT_EQ(text.find("stablehlo.gather\"", first + 1), text.npos);
}

TEST(IndexOps, IndexSelectSaysWhatEagerSays) {
  OpCall call("aten::index_select");
  call.tensor("self", grid()).integer("dim", 0).tensor("index", f32({1}, {0}));
  EXPECT_EQ(message_of(call), "index_select(): Expected dtype int32 or int64 for index");
}

TEST(IndexOps, NegativeIndicesWrap) {
  OpCall call("aten::index.Tensor");
  call.tensor("self", grid()).tensors("indices", {{}, s64({2}, {-1, 0})}).types({"f32[2,2]"});
  EXPECT_EQ(call.run()[0].values(), (Values{2, 0, 5, 3}));
}

TEST(IndexOps, SeparatedIndicesStandInFront) {
  OpCall call("aten::index.Tensor");
  call.tensor("self", f32({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}))
      .tensors("indices", {s64({1}, {1}), {}, s64({1}, {0})})
      .types({"f32[1,2]"});
  EXPECT_EQ(call.run()[0].values(), (Values{4, 6}));
}

TEST(IndexOps, GatherTakesAlongADim) {
  OpCall call("aten::gather");
  call.tensor("self", grid()).integer("dim", 1).tensor("index", s64({2, 1}, {2, 0}));
  EXPECT_EQ(call.boolean("sparse_grad", false).types({"f32[2,1]"}).run()[0].values(),
            (Values{2, 3}));
}

OpCall put(bool accumulate, Tensor index, Tensor values) {
  OpCall call("aten::_index_put_impl");
  call.tensor("self", f32({3}, {10, 20, 30})).tensors("indices", {std::move(index)});
  call.tensor("values", std::move(values))
      .boolean("accumulate", accumulate)
      .boolean("unsafe", false);
  return call;
}

TEST(IndexOps, TheLastOfEqualIndicesStays) {
  EXPECT_EQ(put(false, s64({3}, {1, 1, -1}), f32({3}, {1, 2, 3})).run()[0].values(),
            (Values{10, 2, 3}));
}

TEST(IndexOps, AccumulationSumsEqualIndices) {
  EXPECT_EQ(put(true, s64({3}, {1, 1, -1}), f32({3}, {1, 2, 3})).run()[0].values(),
            (Values{10, 23, 33}));
}

TEST(IndexOps, AMaskTakesValuesInOrderWithoutACount) {
  EXPECT_EQ(put(false, pred({3}, {1, 0, 1}), f32({2}, {1, 2})).run()[0].values(),
            (Values{1, 20, 2}));
  EXPECT_EQ(put(false, pred({3}, {1, 0, 1}), f32({}, {7})).run()[0].values(), (Values{7, 20, 7}));
}

TEST(IndexOps, IndexPutWantsOneDtype) {
  EXPECT_EQ(message_of(put(false, s64({1}, {0}), s64({1}, {1}))),
            "Index put requires the source and destination dtypes match, got Float for the "
            "destination and "
            "Long for the source.");
}

OpCall reduce(const char* how, bool include_self) {
  OpCall call("aten::scatter_reduce.two");
  call.tensor("self", f32({3}, {1, 2, 3})).integer("dim", 0).tensor("index", s64({3}, {0, 0, 1}));
  call.tensor("src", f32({3}, {4, 8, 5})).text("reduce", how).boolean("include_self", include_self);
  call.types({"f32[3]"});
  return call;
}

TEST(IndexOps, ScatterReduceKnowsEveryWay) {
  EXPECT_EQ(reduce("sum", true).run()[0].values(), (Values{13, 7, 3}));
  EXPECT_EQ(reduce("sum", false).run()[0].values(), (Values{12, 5, 3}));
  EXPECT_EQ(reduce("prod", false).run()[0].values(), (Values{32, 5, 3}));
  EXPECT_EQ(reduce("mean", false).run()[0].values(), (Values{6, 5, 3}));
  EXPECT_EQ(reduce("mean", true).run()[0].values(), (Values{13.0f / 3, 3.5, 3}));
  EXPECT_EQ(reduce("amax", true).run()[0].values(), (Values{8, 5, 3}));
  EXPECT_EQ(reduce("amin", false).run()[0].values(), (Values{4, 5, 3}));
}

TEST(IndexOps, MaskedScatterTakesInOrder) {
  OpCall call("aten::masked_scatter");
  call.tensor("self", grid())
      .tensor("mask", pred({3}, {1, 0, 1}))
      .tensor("source", f32({4}, {9, 8, 7, 6}));
  EXPECT_EQ(call.run()[0].values(), (Values{9, 1, 8, 7, 4, 6}));
}

TEST(IndexOps, NonzeroStaticFillsWhatIsLeft) {
  OpCall call("aten::nonzero_static");
  call.tensor("self", f32({2, 2}, {0, 1, 1, 0})).integer("size", 3).integer("fill_value", -1);
  EXPECT_EQ(call.run()[0].values(), (Values{0, 1, 1, 0, -1, -1}));
}

// --- shape

TEST(ShapeOps, CatPromotesAndSkipsOldEmptyTensors) {
  OpCall call("aten::cat");
  call.tensors("tensors", {f32({0}, {}), s64({1, 2}, {1, 2}), f32({1, 2}, {0.5, 1.5})})
      .integer("dim", 0);
  EXPECT_EQ(call.types({"f32[2,2]"}).run()[0].values(), (Values{1, 2, 0.5, 1.5}));
}

TEST(ShapeOps, TrianglesKeepTheirSide) {
  OpCall low("aten::tril"), high("aten::triu");
  low.tensor("self", grid()).integer("diagonal", 0).types({"f32[2,3]"});
  high.tensor("self", grid()).integer("diagonal", 1).types({"f32[2,3]"});
  EXPECT_EQ(low.run()[0].values(), (Values{0, 0, 0, 3, 4, 0}));
  EXPECT_EQ(high.run()[0].values(), (Values{0, 1, 2, 0, 0, 5}));
}

TEST(ShapeOps, RollAndFlipMoveRows) {
  OpCall roll("aten::roll"), flip("aten::flip");
  roll.tensor("self", grid()).ints("shifts", {1}).ints("dims", {-1});
  flip.tensor("self", grid()).ints("dims", {0, 1});
  EXPECT_EQ(roll.run()[0].values(), (Values{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(flip.run()[0].values(), (Values{5, 4, 3, 2, 1, 0}));
}

TEST(ShapeOps, PadsBothWays) {
  OpCall call("aten::constant_pad_nd");
  call.tensor("self", grid()).ints("pad", {1, -1}).number("value", 7);
  EXPECT_EQ(call.run()[0].values(), (Values{7, 0, 1, 7, 3, 4}));
}

TEST(ShapeOps, ReflectionAndItsGradient) {
  OpCall pad("aten::reflection_pad1d"), back("aten::reflection_pad1d_backward");
  pad.tensor("self", f32({1, 3}, {1, 2, 3})).ints("padding", {2, 1}).types({"f32[1,6]"});
  EXPECT_EQ(pad.run()[0].values(), (Values{3, 2, 1, 2, 3, 2}));
  back.tensor("grad_output", f32({1, 6}, {1, 2, 4, 8, 16, 32}))
      .tensor("self", f32({1, 3}, {0, 0, 0}));
  EXPECT_EQ(back.ints("padding", {2, 1}).types({"f32[1,3]"}).run()[0].values(),
            (Values{4, 42, 17}));
}

TEST(ShapeOps, SliceBackwardIsOnePad) {
  OpCall call("aten::slice_backward");
  call.tensor("grad_output", f32({2}, {1, 2})).ints("input_sizes", {5}).integer("dim", 0);
  call.integer("start", 1).integer("end", 5).integer("step", 2);
  EXPECT_EQ(call.run()[0].values(), (Values{0, 1, 0, 2, 0}));
  EXPECT_NE(call.lower().text.find("stablehlo.pad"), std::string::npos);
  EXPECT_EQ(call.lower().text.find("stablehlo.scatter"), std::string::npos);
}

TEST(ShapeOps, UnfoldBackwardSumsOverlaps) {
  OpCall call("aten::unfold_backward");
  call.tensor("grad_in", f32({2, 3}, {1, 2, 4, 8, 16, 32}))
      .ints("input_sizes", {5})
      .integer("dim", 0);
  EXPECT_EQ(call.integer("size", 3).integer("step", 2).run()[0].values(),
            (Values{1, 2, 12, 16, 32}));
}

}  // namespace
}  // namespace tp::test
