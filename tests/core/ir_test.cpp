// Node hashes: same -> same, each ingredient -> different; shapes enter at leaves and nowhere else.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "ir/callers.h"
#include "ir/location.h"
#include "ir/node.h"

namespace tp::ir {
namespace {

const OpKind kAdd = make_kind("test::add");
const OpKind kMul = make_kind("test::mul");
const Type kVec = make_type(DType::kF32, std::vector<int64_t>{4});
const Type kMat = make_type(DType::kF32, std::vector<int64_t>{4, 4});

Value data(Type t = kVec) { return {Node::make_data(t, nullptr), 0}; }

Value node(const OpKind& kind, std::vector<Value> operands, std::vector<Type> types = {kVec},
           const AttrsBuilder& attrs = {}) {
  return {Node::make(kind, operands, types, attrs.words()), 0};
}

AttrsBuilder attr(std::string_view name, int64_t v) {
  AttrsBuilder a;
  a.integer(symbol(name), v);
  return a;
}

Hash128 dag(const Value& v) { return v.node->dag_hash(); }

TEST(NodeHash, SameOpOperandsAndAttrsHashAlike) {
  Value a = node(kAdd, {data(), data()}, {kVec}, attr("dim", 1));
  Value b = node(kAdd, {data(), data()}, {kVec}, attr("dim", 1));
  EXPECT_EQ(dag(a), dag(b));
  EXPECT_EQ(a.node->node_hash(), b.node->node_hash());
}

TEST(NodeHash, OpKindIsInIt) { EXPECT_NE(dag(node(kAdd, {data()})), dag(node(kMul, {data()}))); }

TEST(NodeHash, KindOfOneNameIsOneHash) { EXPECT_EQ(make_kind("test::add").hash, kAdd.hash); }

TEST(NodeHash, EveryPartOfAnAttrIsInIt) {
  std::vector<AttrsBuilder> all(12);
  all[1].integer(symbol("dim"), 1);
  all[2].integer(symbol("dim"), 2);
  all[3].integer(symbol("axis"), 1);
  all[4].boolean(symbol("dim"), true);
  all[5].none(symbol("dim"));
  all[6].ints(symbol("dim"), std::vector<int64_t>{1});
  all[7].ints(symbol("dim"), std::vector<int64_t>{1, 1});
  all[8].real(symbol("dim"), 1.0);
  all[9].text(symbol("dim"), "a");
  all[10].text(symbol("dim"), "b");
  all[11].dtype(symbol("dim"), DType::kS16);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      EXPECT_NE(dag(node(kAdd, {data()}, {kVec}, all[i])),
                dag(node(kAdd, {data()}, {kVec}, all[k])))
          << i << " " << k;
}

TEST(NodeHash, OperandStructureIsInIt) {
  Value x = data();
  Value sum = node(kAdd, {x, x}), product = node(kMul, {x, x});
  EXPECT_NE(dag(node(kAdd, {sum, product})), dag(node(kAdd, {product, sum})));
  EXPECT_NE(dag(node(kAdd, {sum})), dag(node(kAdd, {sum, sum})));
  EXPECT_NE(dag(node(kAdd, {node(kAdd, {x})})), dag(node(kAdd, {x})));
}

TEST(NodeHash, WhichOutputIsTakenIsInIt) {
  NodePtr two = node(kAdd, {data()}, {kVec, kVec}).node;
  EXPECT_NE(dag(node(kMul, {Value{two, 0}})), dag(node(kMul, {Value{two, 1}})));
}

TEST(NodeHash, NodeHashLeavesOperandsOut) {
  EXPECT_EQ(node(kAdd, {data(kVec)}).node->node_hash(),
            node(kAdd, {data(kMat), data()}).node->node_hash());
}

TEST(NodeHash, InteriorHashHoldsNoShape) {
  Value x = data();
  EXPECT_EQ(dag(node(kAdd, {x}, {kVec})), dag(node(kAdd, {x}, {kMat})));
}

TEST(NodeHash, LeavesHashTheirType) {
  EXPECT_NE(dag(data(kVec)), dag(data(kMat)));
  EXPECT_NE(dag(node(kAdd, {data(kVec)})), dag(node(kAdd, {data(kMat)})));
  EXPECT_NE(dag(data(kVec)), dag(data(kVec.with(DType::kF64))));
}

struct Payload : Leaf {};

TEST(NodeHash, TwoBuffersOfOneTypeHashAlike) {
  NodePtr a = Node::make_data(kVec, std::make_shared<Payload>());
  NodePtr b = Node::make_data(kVec, std::make_shared<Payload>());
  EXPECT_EQ(a->dag_hash(), b->dag_hash());
  EXPECT_NE(a->payload(), b->payload());
}

Scalar integer(int64_t v) { return {.integer = v, .kind = Scalar::Kind::kInt}; }
Scalar real(double v) { return {.re = v, .kind = Scalar::Kind::kFloat}; }

TEST(NodeHash, FillHashesLikeABufferOfItsType) {
  EXPECT_EQ(Node::make_fill(kVec, integer(0))->dag_hash(), dag(data(kVec)));
  EXPECT_EQ(Node::make_fill(kVec, real(3))->dag_hash(), dag(data(kVec)));
  EXPECT_NE(Node::make_fill(kMat, real(3))->dag_hash(), dag(data(kVec)));
}

TEST(NodeHash, NumbersHashKindAndDtypeNotTheirValue) {
  EXPECT_EQ(Node::make_number(real(2), true)->dag_hash(),
            Node::make_number(real(7), true)->dag_hash());
  EXPECT_NE(Node::make_number(real(2), true)->dag_hash(),
            Node::make_number(integer(2), true)->dag_hash());
  EXPECT_NE(Node::make_number(real(2), true)->dag_hash(),
            Node::make_number(real(2), false)->dag_hash());
  EXPECT_NE(Node::make_number(real(2), false)->dag_hash(), dag(data(scalar_type(DType::kF64))));
}

TEST(NodeHash, ShardingIsFoldedInOnlyWhenSet) {
  auto dag_of = [](const char* sharding) {
    Value x = data();
    ShardingPtr s = sharding ? std::make_shared<const std::string>(sharding) : nullptr;
    return Node::make(kAdd, std::span(&x, 1), {&kVec, 1}, {}, s)->dag_hash();
  };
  EXPECT_EQ(dag_of(nullptr), dag(node(kAdd, {data()})));
  EXPECT_NE(dag_of("{replicated}"), dag_of(nullptr));
  EXPECT_NE(dag_of("{replicated}"), dag_of("{devices=[2]0,1}"));
  EXPECT_EQ(dag_of("{replicated}"), dag_of("{replicated}"));
}

TEST(NodeHash, AnInteriorShardingReachesTheRoot) {
  Value x = data();
  auto root_over = [&x](ShardingPtr sharding) {
    Value inner{Node::make(kAdd, std::span(&x, 1), {&kVec, 1}, {}, std::move(sharding)), 0};
    return dag(node(kAdd, {inner}));
  };
  EXPECT_NE(root_over(nullptr), root_over(std::make_shared<const std::string>("{replicated}")));
}

TEST(NodeHash, AShardedBufferIsAnotherLeaf) {
  auto s = std::make_shared<const std::string>("{devices=[2]0,1}");
  EXPECT_NE(Node::make_data(kVec, nullptr, s)->dag_hash(), dag(data(kVec)));
}

TEST(NodeHash, IsTheSameInEveryProcess) {
  // It will name cache files: no address and no seed of the process may be in it.
  EXPECT_EQ(make_kind("device_data").hash, hash_text("device_data"));
  EXPECT_EQ(hash_text("f32[4]").hex(), hash_text("f32[4]").hex());
  EXPECT_EQ(dag(data()), mix(hash_text("device_data"), hash_text("f32[4]")));
}

TEST(Node, KeepsWhatItWasMadeOf) {
  Value x = data(), y = data();
  Value n = node(kAdd, {x, y}, {kVec, Type(), kMat}, attr("dim", 1));
  EXPECT_EQ(n.node->operands()[1], y);
  EXPECT_EQ(n.node->types().size(), 3u);
  EXPECT_FALSE(n.node->types()[1]);
  EXPECT_EQ((Value{n.node, 2}).type(), kMat);
  EXPECT_EQ(n.node->attrs().text(), "dim=1");
  EXPECT_EQ(n.node->role(), Role::kInterior);
  EXPECT_GT(n.node->sequence(), x.node->sequence());
}

TEST(Node, NumbersHaveTheDtypeOfTheirKind) {
  EXPECT_EQ(Node::make_number(real(2), true)->types()[0].dtype(), DType::kF64);
  EXPECT_EQ(Node::make_number(integer(2), true)->types()[0].dtype(), DType::kS64);
  EXPECT_EQ(Node::make_number({.integer = 1, .kind = Scalar::Kind::kBool}, true)->types()[0].text(),
            "pred[]");
  EXPECT_EQ(Node::make_number({.re = 1, .im = 2, .kind = Scalar::Kind::kComplex}, true)
                ->types()[0]
                .text(),
            "c128[]");
}

TEST(Node, PayloadGoesWithTheLastReference) {
  auto payload = std::make_shared<Payload>();
  std::weak_ptr<Payload> watch = payload;
  Value use = node(kAdd, {{Node::make_data(kVec, std::move(payload)), 0}});
  EXPECT_FALSE(watch.expired());
  use = Value();
  EXPECT_TRUE(watch.expired());
}

TEST(Node, AChainOfAMillionIsFreedWithoutRecursion) {
  Value v = data();
  for (int i = 0; i < 1'000'000; ++i) v = node(kAdd, {v});
  v = Value();
  SUCCEED();
}

TEST(Node, ReferencesMayBeDroppedByAnyThread) {
  Value shared = node(kAdd, {data(), data()});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([copy = shared] {
      for (int i = 0; i < 2000; ++i) Value again = node(kAdd, {copy, copy});
    });
  shared = Value();
}

TEST(Attrs, ReadBackAsTheyWereWritten) {
  AttrsBuilder b;
  b.integer(symbol("dim"), -3);
  b.text(symbol("mode"), "a text of more than eight bytes");
  b.floats(symbol("scales"), std::vector<double>{1.5, 2});
  b.operands(symbol("tensors"), std::vector<int64_t>{0, -1, 2});
  b.boolean(symbol("keepdim"), true);
  b.none(symbol("out"));
  AttrsView v(b.words());
  Attr a;
  ASSERT_TRUE(v.find(symbol("mode"), &a));
  EXPECT_EQ(a.text(), "a text of more than eight bytes");
  ASSERT_TRUE(v.find(symbol("keepdim"), &a));
  EXPECT_TRUE(a.boolean());
  ASSERT_TRUE(v.find(symbol("out"), &a));
  EXPECT_EQ(a.kind, AttrKind::kNone);
  EXPECT_FALSE(v.find(symbol("absent"), &a));
  EXPECT_EQ(v.text(),
            "dim=-3, mode=\"a text of more than eight bytes\", scales=[1.5,2], tensors=%[0,-1,2], "
            "keepdim=true, out=none");
}

// In a child: the table is the process's. It ends at once: what other tests loaded has threads.
TEST(Location, LinesThatNeverEndAreForgottenAndKnownOnesStay) {
  auto fill = [] {
    LocationId known = intern({"train.py", 7, "step", "model"});
    LocationId last = 0;
    for (int i = 0; i < 300'000; ++i) last = intern({"train.py", 8, "step", cat("step ", i)});
    bool line_stays = last != 0 && line_text(last) == "train.py:8";
    for (int i = 0; i < 300'000; ++i) last = intern({cat("made", i, ".py"), 1, "", ""});
    bool unknown = last == 0 && line_text(last).empty();
    bool same = intern({"train.py", 7, "step", "model"}) == known;
    std::_Exit(line_stays && unknown && same && line_text(known) == "train.py:7" ? 0 : 1);
  };
  EXPECT_EXIT(fill(), testing::ExitedWithCode(0), "");
}

TEST(Hash, OrderAndLengthMatter) {
  Hash128 h;
  EXPECT_NE(mix(mix(h, 1), 2), mix(mix(h, 2), 1));
  EXPECT_NE(mix(h, uint64_t{0}), h);
  EXPECT_NE(mix(mix(h, uint64_t{0}), uint64_t{0}), mix(h, uint64_t{0}));
  EXPECT_EQ(mix(h, 1).hex().size(), 32u);
}

TEST(Location, FilesOfOneNameAreToldApartByTheirPaths) {
  LocationId first = intern({"/a/layers_x.py", 3, "", ""});
  EXPECT_EQ(line_text(first), "layers_x.py:3");
  LocationId second = intern({"/b/layers_x.py", 3, "", ""});
  EXPECT_EQ(line_text(first), "/a/layers_x.py:3");
  EXPECT_EQ(line_text(second | kBackward), "/b/layers_x.py:3 (backward)");
}

TEST(Location, ASiteNamesTheLibrarysLineAndTheUsersOwn) {
  LocationId library = intern({"/lib/trainer_x.py", 8, "fit", ""});
  LocationId own = intern({"/me/run_x.py", 2, "main", ""});
  EXPECT_EQ(site_text({library, own}), "trainer_x.py:8 in fit, called from run_x.py:2 in main");
  EXPECT_EQ(site_text({own, 0}), "run_x.py:2 in main");
  EXPECT_EQ(site_text({}), "");
  EXPECT_EQ(line_and_caller(library), "trainer_x.py:8");
  set_caller(library, own);
  EXPECT_EQ(line_and_caller(library | kBackward),
            "trainer_x.py:8 (backward), first reached from run_x.py:2");
}

}  // namespace
}  // namespace tp::ir
