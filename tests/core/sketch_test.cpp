// Why one graph is not another: each ingredient and each part, by its words.
#include "exec/sketch.h"

#include <gtest/gtest.h>

#include <functional>

#include "exec/explain.h"
#include "ir/callers.h"

namespace tp::exec {
namespace {

using ir::Value;

const ir::OpKind kAdd = ir::make_kind("test::add"), kExp = ir::make_kind("test::exp"),
                 kNeg = ir::make_kind("test::neg");
const ir::Type kVec = ir::make_type(ir::DType::kF32, std::vector<int64_t>{4});

ir::LocationId line(int n) { return ir::intern({"/home/me/train.py", n, "step", ""}); }

Value leaf(ir::Type t = kVec, int at = 1, ir::ShardingPtr sharding = nullptr) {
  Value v{ir::Node::make_data(t, nullptr, std::move(sharding)), 0};
  v.node->set_location(line(at));
  return v;
}
Value leaf(const char* sharding) {
  return leaf(kVec, 1, std::make_shared<const std::string>(sharding));
}
Value op(const ir::OpKind& kind, std::vector<Value> in, int at = 2,
         std::vector<uint64_t> attrs = {}) {
  ir::Type t = in[0].type();
  Value v{ir::Node::make(kind, in, {&t, 1}, attrs), 0};
  v.node->set_location(line(at));
  return v;
}

struct Inputs {
  std::vector<Value> roots;
  bool force_data = true;
  std::string environment = "cpu", torch = "2.13.0", ours = "1", sharding;
  std::vector<uint32_t> donated;
};

Sketch sketch(const Inputs& in) {
  std::lock_guard lock(ir::graph_lock());
  ir::Graph g = ir::build_graph(in.roots, [](const ir::Node&) { return true; });
  Key key = make_key({.force_data = in.force_data,
                      .environment = hash_text(in.environment),
                      .torch_revision = in.torch,
                      .revision = in.ours,
                      .roots = g.roots,
                      .parameter_sequence = g.sequence,
                      .donated = in.donated,
                      .sharding = in.sharding});
  std::vector<Donor> donors;
  for (uint32_t p : in.donated) donors.push_back({p, 0});
  Sketch s = make_sketch(g, key, "train.py:9", donors);
  s.environment = in.environment;
  s.torch = in.torch;
  s.ours = in.ours;
  return s;
}

std::string why(const Inputs& known, const Inputs& now) {
  return summary(differences(sketch(known), sketch(now)));
}

struct Case {
  const char* name;
  std::function<void(Inputs&)> change;
  const char* words;
};
const Value kX = leaf();
const Case kCases[] = {
    {"environment", [](Inputs& i) { i.environment = "cuda"; },
     "the plugin, its options or flags: went cpu -> cuda"},
    {"torch", [](Inputs& i) { i.torch = "2.14.1"; }, "torch went 2.13.0 -> 2.14.1"},
    {"ours", [](Inputs& i) { i.ours = "2"; }, "torch_pjrt went 1 -> 2"},
    {"sharding mode", [](Inputs& i) { i.sharding = "auto"; }, "the sharding mode changed"},
    {"donation", [](Inputs& i) { i.donated = {0}; },
     "arg 0 f32[4] (train.py:1) is overwritten in place: nothing else holds its old value now"},
    {"read", [](Inputs& i) { i.force_data = false; },
     "compiled for a read where before it was for a sync, or the other way round"},
    {"same", [](Inputs&) {},
     "the program was there, but left the cache (XLA_COMPILATION_CACHE_SIZE, or cleared)"},
};

TEST(Differences, EachIngredientIsNamed) {
  for (const Case& c : kCases) {
    Inputs known{{op(kExp, {kX})}}, now = known;
    c.change(now);
    EXPECT_EQ(why(known, now), c.words) << c.name;
  }
}

TEST(Differences, AMovedShardingNamesItsArgument) {
  Value known = leaf("{replicated}"), now = leaf("{devices=[2]0,1}");
  EXPECT_EQ(why({{op(kExp, {known})}}, {{op(kExp, {now})}}),
            "sharding of arg 0 f32[4] moved: {replicated} -> {devices=[2]0,1} (train.py:1)");
}

TEST(Differences, ANoLongerDonatedArgumentIsNamed) {
  Inputs known{{op(kAdd, {kX, leaf(kVec, 3)})}}, now = known;
  known.donated = {0, 1};
  now.donated = {0};
  EXPECT_EQ(why(known, now),
            "arg 1 f32[4] (train.py:3) is not overwritten in place: something holds its old value");
}

TEST(Differences, ALibrarysLineComesWithItsCaller) {
  ir::LocationId library = ir::intern({"/lib/site-packages/lib.py", 7, "f", ""});
  ir::set_caller(library, line(40));
  ir::set_caller(library, line(50));  // the first one stays
  Value inner = op(kNeg, {kX});
  inner.node->set_location(library);
  EXPECT_EQ(why({{op(kExp, {kX})}}, {{op(kExp, {inner})}}),
            "new op test.neg at lib.py:7, first reached from train.py:40");
}

// n ops at lines of their own, repeated.
Inputs steps(int ops, int rounds) {
  Value v = kX;
  for (int i = 0; i < ops * rounds; ++i) v = op(i % 2 ? kExp : kNeg, {v}, 100 + i % ops);
  return Inputs{{v}};
}

TEST(Rounds, AreCountedWhereNearlyAllLinesRepeat) {
  Rounds r = rounds_of(sketch(steps(50, 40)));
  EXPECT_EQ(r.count, 40u);
  EXPECT_EQ(ir::line_text(r.where), "train.py:100");
}

TEST(Rounds, AreNoneInASmallGraphOrOneOfManyLines) {
  EXPECT_EQ(rounds_of(sketch(steps(5, 40))).count, 1u);
  EXPECT_EQ(rounds_of(sketch(steps(1500, 1))).count, 1u);
  Value v = steps(20, 100).roots[0];  // a deep model between other lines
  for (int i = 0; i < 10; ++i) v = op(kExp, {v}, 500 + i);
  EXPECT_EQ(rounds_of(sketch({{v}})).count, 1u);
}

TEST(Shared, IsLittleForAnotherModelAndMuchForAnotherSize) {
  Sketch first = sketch(steps(20, 1));
  Value other = kX;
  for (int i = 0; i < 20; ++i) other = op(kExp, {other}, 300 + i);
  EXPECT_TRUE(shared(first, sketch({{other}})).little());
  EXPECT_FALSE(shared(first, sketch(steps(21, 1))).little());
  EXPECT_FALSE(shared(first, first).little());
  EXPECT_FALSE(shared(sketch({{op(kExp, {kX})}}), sketch({{op(kNeg, {kX}, 9)}})).little());
}

TEST(Shared, IsLittleWhereAllArgumentsAreOthers) {
  auto model = [](int64_t width) {
    ir::Type t = ir::make_type(ir::DType::kF32, std::vector<int64_t>{width});
    Value v = leaf(t);
    for (int i = 0; i < 12; ++i) v = op(kAdd, {v, leaf(t)}, 20 + i);
    return Inputs{{v}};
  };
  EXPECT_TRUE(shared(sketch(model(4)), sketch(model(8))).little());
  EXPECT_FALSE(shared(sketch(model(4)), sketch(model(4))).little());
}

TEST(Differences, AMovedLineAloneIsNoReason) {
  EXPECT_EQ(why({{op(kExp, {kX}, 2)}}, {{op(kExp, {kX}, 3)}}),
            "the program was there, but left the cache (XLA_COMPILATION_CACHE_SIZE, or cleared)");
}

TEST(Differences, RepeatedReasonsAreCounted) {
  Value known = op(kExp, {kX}, 5);
  Value now = op(kExp, {op(kNeg, {op(kNeg, {kX}, 7)}, 7)}, 5);
  EXPECT_EQ(why({{known}}, {{now}}), "new op test.neg at train.py:7 (2 times)");
}

TEST(Differences, ManyReasonsAreSummedUp) {
  std::vector<Reason> five(5, Reason{"x", "reason", 0});
  EXPECT_EQ(summary(five), "reason; reason; reason; and 2 more");
}

TEST(Distance, IsZeroForEqualGraphsAndGrowsWithChanges) {
  Inputs a{{op(kExp, {kX})}}, b{{op(kExp, {op(kNeg, {kX})})}};
  Inputs c{{op(kExp, {op(kNeg, {op(kAdd, {kX, kX})})})}};
  EXPECT_EQ(distance(sketch(a), sketch(a)), 0u);
  EXPECT_LT(distance(sketch(a), sketch(b)), distance(sketch(a), sketch(c)));
}

TEST(Differences, TakeLinearTime) {
  auto chain = [](int n, const ir::OpKind& last) {
    Value v = leaf();
    for (int i = 0; i < n; ++i) v = op(i % 2 ? kExp : kNeg, {v}, i % 50);
    return Inputs{{op(last, {v})}};
  };
  Sketch known = sketch(chain(20000, kExp)), now = sketch(chain(20001, kNeg));
  auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(differences(known, now).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
}  // namespace tp::exec
