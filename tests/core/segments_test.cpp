// Segments: which graphs are cut, where, and that their programs are one another's.
#include "exec/segments.h"

#include <gtest/gtest.h>

#include <set>

#include "executor_fixture.h"

namespace tp::exec {
namespace {

Split split(std::vector<Value> roots, size_t least = 512) {
  std::lock_guard lock(ir::graph_lock());
  ir::Graph g = ir::build_graph(std::move(roots), [](const Node&) { return true; });
  Split s = split_graph(g, least);
  for (const Node* n : g.order)  // ascending along operands
    if (!s.segment_of.empty() && n->role() == ir::Role::kInterior)
      for (const Value& v : n->operands())
        if (v.node->role() == ir::Role::kInterior) {
          EXPECT_LE(s.segment_of[v.node->slot], s.segment_of[n->slot]);
        }
  return s;
}

struct SegmentsTest : ExecutorTest {
  // x = cos(sin(x) * b), `rounds` times.
  Value loop(Value x, const Value& b, int rounds) {
    for (int i = 0; i < rounds; ++i) x = cosine(mul(sine(x), b));
    return x;
  }
  // Layers: each has a buffer of its own.
  Value layers(Value x, int count) {
    for (int i = 0; i < count; ++i) x = cosine(mul(sine(mul(x, data())), data()));
    return x;
  }
  size_t compiles() {
    size_t n = 0;
    for (const auto& c : client->calls) n += c.what == "compile";
    return n;
  }
  size_t runs() {
    size_t n = 0;
    for (const auto& c : client->calls) n += c.what == "execute";
    return n;
  }
};

TEST_F(SegmentsTest, ALongLoopIsCutBetweenItsRounds) {
  Split s = split({loop(data(), data(), 300)});
  EXPECT_EQ(s.rounds, 300u);
  EXPECT_GT(s.num_segments, 10u);
}

TEST_F(SegmentsTest, AShortLoopAndLayersAreOneProgram) {
  EXPECT_TRUE(split({loop(data(), data(), 100)}).segment_of.empty());
  EXPECT_TRUE(split({layers(data(), 50)}, 64).segment_of.empty());
  EXPECT_TRUE(split({loop(data(), data(), 300)}, 0).segment_of.empty());
}

TEST_F(SegmentsTest, AKeptChainIsCutBeforeItIsLong) {
  Value x = data(), a = data();
  std::vector<Value> kept;
  for (int i = 0; i < 100; ++i) kept.push_back(x = mul(mul(x, a), a));
  EXPECT_GT(split(kept).num_segments, 2u);
  EXPECT_TRUE(split({x}).segment_of.empty());  // no value but the last is kept
}

TEST_F(SegmentsTest, AKeptChainThatNeverRepeatsIsCutToo) {
  Value x = data(), a = data();
  std::vector<Value> kept;
  for (int i = 0; i < 20; ++i)
    for (int k = 0; k < i; ++k) {
      x = mul(x, a);
      if (k == 0 || k % 3 == 1) kept.push_back(x);
    }
  EXPECT_GT(split(kept).num_segments, 1u);
}

TEST_F(SegmentsTest, RoundsShareTheirPrograms) {
  sync({loop(data(), data(), 256)});
  EXPECT_EQ(compiles(), 1u);
  EXPECT_EQ(runs(), 16u);  // 16 rounds of 3 ops each
  sync({loop(data(), data(), 256)});
  EXPECT_EQ(compiles(), 1u);
  EXPECT_EQ(runs(), 32u);
  sync({loop(data(), data(), 300)});  // 18 times 16, then 8 and 4
  EXPECT_EQ(compiles(), 3u);
}

TEST_F(SegmentsTest, WhatStartsAsAFillIsTheOtherRoundsProgram) {
  sync({loop(fill(1), data(), 256)});
  EXPECT_EQ(compiles(), 1u);
}

TEST_F(SegmentsTest, WhatALoopUpdatesIsUpdatedInPlace) {
  Value x = data();
  const void* was = x.node->payload().get();
  Value end = loop(std::move(x), data(), 256);
  sync(updates(moved(std::move(end)), {was}));
  size_t donating = 0;
  for (const auto& c : client->calls)
    if (c.what == "execute") donating += std::ranges::count(c.donated, 1) == 1;
  EXPECT_EQ(compiles(), 1u);
  EXPECT_EQ(donating, 16u);
}

TEST_F(SegmentsTest, WhatATensorKeepsIsNotOverwritten) {
  Value x = data();
  const void* was = x.node->payload().get();
  PlanRequest r = updates(moved(loop(x, data(), 256)), {was});  // x is somebody's
  sync(std::move(r));
  for (const auto& c : client->calls) {
    if (c.what != "execute") continue;
    EXPECT_EQ(std::ranges::count(c.donated, 1), 0);
    break;
  }
}

TEST_F(SegmentsTest, AStraightPlanIsOneProgram) {
  PlanRequest r = request({loop(data(), data(), 256)});
  r.straight = true;
  sync(std::move(r));
  EXPECT_EQ(runs(), 1u);
}

TEST_F(SegmentsTest, ARoundThatIsBeingRecordedEndsWhereTheLastOnesDid) {
  Value b = data(), x = loop(data(), b, 100);
  Value half = sine(x);
  std::lock_guard lock(ir::graph_lock());
  auto find = [](const Value& v) {
    return loop_of(ir::build_graph({v}, [](const Node&) { return true; }));
  };
  EXPECT_EQ(find(x).round_ends, x.node->sequence());
  EXPECT_EQ(find(half).round_ends, x.node->sequence() + 3);
  EXPECT_EQ(find(half).rounds, 100u);
}

}  // namespace
}  // namespace tp::exec
