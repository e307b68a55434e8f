// Why one graph is not another: each ingredient and each part, by its words.
#include "exec/sketch.h"

#include <gtest/gtest.h>

#include <functional>

#include "exec/explain.h"

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
  Sketch s = make_sketch(g, key, "train.py:9");
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
     "other arguments may be given up to the program (donated)"},
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
