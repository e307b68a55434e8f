// Regions: what a body computes, told from what it captures, and the loops and branches that run
// it.
#include "ir/region.h"

#include <gtest/gtest.h>

#include "harness.h"
#include "lower/lower.h"
#include "ops/core/row.h"

namespace tp::ir {
namespace {

using test::OpCall;

const Type kVec = make_type(DType::kF32, std::vector<int64_t>{2});

Value op(std::string_view name, std::string_view a, Value x, std::string_view b, Value y,
         Type out) {
  AttrsBuilder attrs;
  attrs.operand(symbol(a), 0);
  attrs.operand(symbol(b), 1);
  std::vector<Value> operands{std::move(x), std::move(y)};
  return {Node::make(ops::kind_of(*ops::find_row(name)), operands, {&out, 1}, attrs.words()), 0};
}
Value add(Value x, Value y) {
  return op("aten::add.Tensor", "self", std::move(x), "other", std::move(y), kVec);
}
Value mul(Value x, Value y) {
  return op("aten::mul.Tensor", "self", std::move(x), "other", std::move(y), kVec);
}
Value data(Type t = kVec) { return {Node::make_data(t, nullptr), 0}; }
Value number(double v) { return {Node::make_number(OpCall::scalar(v), true), 0}; }

// carried * slice + captured
struct Body {
  Value carried = data(), slice = data();
  uint64_t first = carried.node->sequence();
  Extracted of(const Value& captured) const {
    std::vector<Value> results{add(mul(carried, slice), captured), mul(carried, number(2))};
    std::vector<NodePtr> leaves{carried.node, slice.node};
    return extract_region(results, leaves, first);
  }
};

TEST(Region, WhatDoesNotDependOnItsParametersStaysOutside) {
  Value outer = data();
  Body body;
  Value inside = add(outer, number(3));  // recorded by the body, and the same in each round
  Extracted e = body.of(inside);
  ASSERT_EQ(e.captured.size(), 2u);  // `inside`, and the number 2
  EXPECT_TRUE(e.captured[0] == inside || e.captured[1] == inside);
  for (const Node* n : e.region->graph.order) EXPECT_NE(n, inside.node.get());
  EXPECT_EQ(e.region->parameter_types.size(), 4u);
  EXPECT_TRUE(depends_on(body.carried, std::vector{body.carried.node}, body.first));
  EXPECT_FALSE(depends_on(inside, std::vector{body.carried.node}, body.first));
}

TEST(Region, EqualBodiesHaveOneIdAndOthersAnother) {
  Body a, b;
  Value x = data(), y = data();
  Hash128 id = a.of(x).region->id;
  EXPECT_EQ(id, b.of(y).region->id);
  std::vector<NodePtr> swapped{b.slice.node, b.carried.node};
  std::vector<Value> results{add(mul(b.carried, b.slice), y), mul(b.carried, number(2))};
  EXPECT_NE(id, extract_region(results, swapped, b.first).region->id);
  std::vector<Value> other{add(add(b.carried, b.slice), y), mul(b.carried, number(2))};
  std::vector<NodePtr> leaves{b.carried.node, b.slice.node};
  EXPECT_NE(id, extract_region(other, leaves, b.first).region->id);
}

TEST(Region, HoldsNothingOfTheGraphAroundIt) {
  Value outer = data();
  Body body;
  RegionPtr region = body.of(outer).region;
  EXPECT_EQ(outer.node->references(), 1u);
  EXPECT_EQ(body.carried.node->references(), 1u);
}

NodePtr loop(const Extracted& e, Value init, Value xs, bool reverse) {
  LoopShape shape{3, reverse, 1, 1, 0, {{0, 0, static_cast<int64_t>(e.captured.size())}}};
  std::vector<Value> operands{std::move(init), std::move(xs)};
  operands.insert(operands.end(), e.captured.begin(), e.captured.end());
  std::vector<Type> types{kVec, make_type(DType::kF32, std::vector<int64_t>{3, 2})};
  return make_loop(shape, {e.region}, operands, types);
}

TEST(Region, ALoopCarriesSlicesAndStacks) {
  for (bool reverse : {false, true}) {
    Value init = data(), xs = data(make_type(DType::kF32, std::vector<int64_t>{3, 2}));
    Value captured = data();
    NodePtr n = loop(Body().of(captured), init, xs, reverse);
    std::lock_guard lock(graph_lock());
    Graph g = build_graph({{n, 0}, {n, 1}}, [](const Node&) { return true; });
    verify(g);
    lower::Module m = lower::lower(g, "test");
    auto out = test::run_module(m.text,
                                {test::f32({2}, {1, 1}), test::f32({3, 2}, {1, 2, 3, 4, 5, 6}),
                                 test::f32({2}, {1, 0}), test::make_tensor(DType::kF64, {1}, {2})},
                                {n->types()[0], n->types()[1]});
    if (reverse) {  // 1*5+1=6, 6*3+1=19, 19*1+1=20; and 1*6, 6*4, 24*2
      EXPECT_EQ(out[0].values(), (std::vector<double>{20, 48}));
      EXPECT_EQ(out[1].values(), (std::vector<double>{38, 48, 12, 12, 2, 2}));
    } else {  // 1*1+1=2, 2*3+1=7, 7*5+1=36; and 1*2, 2*4, 8*6
      EXPECT_EQ(out[0].values(), (std::vector<double>{36, 48}));
      EXPECT_EQ(out[1].values(), (std::vector<double>{2, 2, 4, 4, 14, 16}));
    }
  }
}

TEST(Region, LoopsOfOneBodyAreOneProgramAndOfAnotherLengthAnother) {
  Value init = data(), xs = data(make_type(DType::kF32, std::vector<int64_t>{3, 2}));
  NodePtr a = loop(Body().of(data()), init, xs, false),
          b = loop(Body().of(data()), init, xs, false);
  NodePtr c = loop(Body().of(data()), init, xs, true);
  EXPECT_EQ(a->dag_hash(), b->dag_hash());
  EXPECT_NE(a->dag_hash(), c->dag_hash());
}

TEST(Region, ABranchTakesItsOperandsAndCaptures) {
  Value x = data(), predicate = data(scalar_type(DType::kPred));
  Value leaf = data(), captured = data();
  std::vector<NodePtr> leaves{leaf.node};
  std::vector<Value> results[] = {{add(leaf, captured)}, {mul(leaf, leaf)}};
  std::vector<Value> operands{predicate, x};
  std::vector<RegionPtr> regions;
  std::vector<Extra> extra;
  for (const auto& r : results) {
    Extracted e = extract_region(r, leaves, leaf.node->sequence());
    operands.insert(operands.end(), e.captured.begin(), e.captured.end());
    extra.push_back({0, 0, static_cast<int64_t>(e.captured.size())});
    regions.push_back(e.region);
  }
  // The captured leaf is younger than the stand-in, and no stand-in itself.
  ASSERT_EQ(extra[0].captured, 1);
  NodePtr n = make_branch(extra, regions, operands, std::vector<Type>{kVec});
  std::lock_guard lock(graph_lock());
  Graph g = build_graph({{n, 0}}, [](const Node&) { return true; });
  lower::Module m = lower::lower(g, "test");
  for (int taken : {1, 0}) {
    auto out = test::run_module(m.text,
                                {test::make_tensor(DType::kPred, {}, {static_cast<double>(taken)}),
                                 test::f32({2}, {3, 4}), test::f32({2}, {10, 20})},
                                {kVec});
    EXPECT_EQ(out[0].values(),
              taken ? (std::vector<double>{13, 24}) : (std::vector<double>{9, 16}));
  }
}

}  // namespace
}  // namespace tp::ir
