// Graphs: post-order, leaf numbering, sequences and signatures, the verifier and the dumps.
#include "ir/graph.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace tp::ir {
namespace {

const OpKind kAdd = make_kind("test::add");
const OpKind kMul = make_kind("test::mul");
const OpKind kSplit = make_kind("test::split");
const Type kVec = make_type(DType::kF32, std::vector<int64_t>{4});

Value data(Type t = kVec) { return {Node::make_data(t, nullptr), 0}; }
Value fill(double v) { return {Node::make_fill(kVec, {.re = v, .kind = Scalar::Kind::kFloat}), 0}; }
Value number(Scalar s) { return {Node::make_number(s, true), 0}; }
Value real(double v) { return number({.re = v, .kind = Scalar::Kind::kFloat}); }
Value integer(int64_t v) { return number({.integer = v, .kind = Scalar::Kind::kInt}); }

Value node(const OpKind& kind, std::vector<Value> operands) {
  AttrsBuilder attrs;
  for (size_t i = 0; i < operands.size(); ++i)
    attrs.operand(symbol(i == 0 ? "self" : i == 1 ? "other" : "third"), static_cast<int64_t>(i));
  return {Node::make(kind, operands, {&kVec, 1}, attrs.words()), 0};
}
Value add(Value a, Value b) { return node(kAdd, {std::move(a), std::move(b)}); }
Value mul(Value a, Value b) { return node(kMul, {std::move(a), std::move(b)}); }

enum class Fills { kConstant, kUploaded };
struct Built : Graph {
  std::vector<uint64_t> signature;
};
Built build(std::vector<Value> roots, Fills fills = Fills::kConstant) {
  std::lock_guard lock(graph_lock());
  Built g{build_graph(std::move(roots), [=](const Node&) { return fills == Fills::kUploaded; }),
          {}};
  verify(g);
  g.signature = signature(g);
  return g;
}

// The op of `v` again, with a sharding.
Value sharded(const Value& v, const char* text) {
  const Node& n = *v.node;
  return {Node::make(n.kind(), n.operands(), n.types(), n.attrs().words(),
                     std::make_shared<const std::string>(text)),
          v.index};
}

Hash128 hash(const Value& v) { return v.node->dag_hash(); }

TEST(Graph, OperandsComeBeforeUsersAndEachNodeOnce) {
  Value x = data(), y = data();
  Value s = add(x, y), p = mul(s, s), r = add(p, s);
  Built g = build({r, p});
  std::vector<const Node*> want = {x.node.get(), y.node.get(), s.node.get(), p.node.get(),
                                   r.node.get()};
  EXPECT_EQ(g.order, want);
  EXPECT_EQ(g.num_nodes(), 5u);
  EXPECT_EQ(g.roots.size(), 2u);
}

TEST(Graph, BuffersAreNumberedAtFirstUse) {
  Value x = data(), y = data();
  Built g = build({add(y, x)});
  ASSERT_EQ(g.leaves.size(), 2u);
  EXPECT_EQ(g.leaves[0].node, y.node.get());
  EXPECT_EQ(g.leaves[0].index, 0u);
  EXPECT_EQ(g.leaves[1].index, 1u);
  EXPECT_EQ(g.num_parameters(), 2u);
}

TEST(Graph, ABufferUsedTwiceIsOneParameter) {
  Value x = data();
  EXPECT_EQ(build({mul(add(x, x), x)}).num_buffers, 1u);
}

TEST(Graph, NumbersArePackedByKind) {
  Value x = data();
  Value b = number({.integer = 1, .kind = Scalar::Kind::kBool});
  Value c = number({.re = 1, .im = 2, .kind = Scalar::Kind::kComplex});
  Built g = build({add(mul(x, real(2)), mul(add(integer(3), b), add(c, real(4))))});
  EXPECT_EQ(g.num_buffers, 1u);
  EXPECT_EQ(g.num_integers, 2u);
  EXPECT_EQ(g.num_reals, 4u);  // a complex number takes two
  EXPECT_EQ(g.num_parameters(), 3u);
  EXPECT_EQ(g.leaves.back().index, 3u);
}

TEST(Graph, EqualNumbersStayTwoInputs) {
  Value x = data();
  EXPECT_EQ(build({add(mul(x, real(2)), real(2))}).num_reals, 2u);
}

TEST(Graph, FillIsAConstantUnlessItIsUploaded) {
  Value r = add(data(), fill(0));
  Built constant = build({r}), uploaded = build({r}, Fills::kUploaded);
  EXPECT_EQ(constant.num_buffers, 1u);
  EXPECT_EQ(constant.num_reals, 1u);
  EXPECT_EQ(uploaded.num_buffers, 2u);
  EXPECT_EQ(uploaded.num_reals, 0u);
  EXPECT_NE(constant.sequence, uploaded.sequence);
  EXPECT_NE(constant.signature, uploaded.signature);
}

TEST(Graph, UploadedFillIsTheGraphOfABuffer) {
  Built fills = build({add(data(), fill(0))}, Fills::kUploaded);
  Built buffers = build({add(data(), data())});
  EXPECT_EQ(fills.sequence, buffers.sequence);
  EXPECT_EQ(fills.signature, buffers.signature);
}

TEST(Graph, WhichBufferFeedsWhichOperandIsInTheSequence) {
  Value a = data(), b = data();
  Value crossed = mul(add(a, b), add(b, a)), straight = mul(add(a, b), add(a, b));
  EXPECT_EQ(hash(crossed), hash(straight));
  EXPECT_NE(build({crossed}).sequence, build({straight}).sequence);
  EXPECT_NE(build({crossed}).signature, build({straight}).signature);
}

TEST(Graph, WhichBufferComesBackIsInTheSequence) {
  Value x = data(), y = data();
  Value first = mul(mul(x, y), x), second = mul(mul(x, y), y);
  EXPECT_EQ(hash(first), hash(second));
  EXPECT_NE(build({first}).sequence, build({second}).sequence);
}

TEST(Graph, SharedAndRepeatedWorkDiffer) {
  Value a = data(), b = data();
  Value s = add(a, b);
  EXPECT_NE(build({mul(s, s)}).sequence, build({mul(add(a, b), add(a, b))}).sequence);
}

TEST(Graph, OtherBuffersInTheSamePlacesAreTheSameProgram) {
  auto make = [] {
    Value a = data(), b = data();
    return build({mul(add(a, b), a)});
  };
  Built one = make(), two = make();
  EXPECT_EQ(one.sequence, two.sequence);
  EXPECT_EQ(one.signature, two.signature);
}

TEST(Graph, SignatureHoldsTypesThatHashesLeaveOut) {
  Value x = data();
  Type wide = kVec.with(DType::kF64);
  Value a{Node::make(kAdd, std::span(&x, 1), {&kVec, 1}, {}), 0};
  Value b{Node::make(kAdd, std::span(&x, 1), {&wide, 1}, {}), 0};
  EXPECT_EQ(hash(a), hash(b));
  EXPECT_NE(build({a}).signature, build({b}).signature);
}

TEST(Graph, SignatureHoldsTheRoots) {
  Value x = data();
  Value s = add(x, x), p = mul(s, s);
  EXPECT_NE(build({p}).signature, build({p, s}).signature);
  EXPECT_NE(build({s, p}).signature, build({p, s}).signature);
}

TEST(Graph, SignatureHoldsSharding) {
  Value x = data();
  Value a = add(x, x), b = sharded(a, "{replicated}");
  EXPECT_NE(build({a}).signature, build({b}).signature);
}

TEST(Graph, AMillionNodesBuildAndFree) {
  Value x = data(), v = x;
  for (int i = 0; i < 1'000'000; ++i) v = add(std::move(v), x);
  Built g = build({v});
  EXPECT_EQ(g.num_nodes(), 1'000'001u);
  EXPECT_EQ(g.num_buffers, 1u);
}

TEST(Graph, BuildingTwiceGivesTheSame) {
  Value x = data(), r = mul(add(x, real(2)), x);
  Built one = build({r});
  build({add(r, r)});
  EXPECT_EQ(build({r}).signature, one.signature);
}

TEST(Graph, NoRootsIsAnEmptyGraph) {
  Built g = build({});
  EXPECT_EQ(g.num_nodes(), 0u);
  EXPECT_EQ(g.num_parameters(), 0u);
}

// ---- verifier -------------------------------------------------------------------------------

std::string broken(const std::function<void(Graph&)>& damage) {
  std::lock_guard lock(graph_lock());
  Value x = data();
  Graph g = build_graph({mul(add(x, x), x)}, [](const Node&) { return false; });
  damage(g);
  try {
    verify(g);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInternal);
    return e.what();
  }
  return {};
}

TEST(Verifier, AcceptsASoundGraph) {
  EXPECT_EQ(broken([](Graph&) {}), "");
}

TEST(Verifier, NamesANodeThatComesBeforeItsOperands) {
  std::string said = broken([](Graph& g) {
    std::swap(g.order[0], g.order[1]);
    std::swap(g.order[0]->slot, g.order[1]->slot);
  });
  EXPECT_NE(said.find("operands of test::add come before it"), std::string::npos) << said;
}

TEST(Verifier, NamesANodeWhoseSlotIsWrong) {
  std::string said = broken([](Graph& g) { g.order[1]->slot = 0; });
  EXPECT_NE(said.find("test::add"), std::string::npos) << said;
}

TEST(Verifier, NamesAnOperandThatDoesNotExist) {
  std::lock_guard lock(graph_lock());
  Value x{data().node, 3};
  Graph g = build_graph({{Node::make(kAdd, std::span(&x, 1), {&kVec, 1}, {}), 0}},
                        [](const Node&) { return false; });
  EXPECT_THROW(verify(g), Error);
}

TEST(Verifier, NamesAnArgumentThatPointsNowhere) {
  std::lock_guard lock(graph_lock());
  Value x = data();
  AttrsBuilder attrs;
  attrs.operand(symbol("self"), 5);
  Graph g = build_graph({{Node::make(kAdd, std::span(&x, 1), {&kVec, 1}, attrs.words()), 0}},
                        [](const Node&) { return false; });
  try {
    verify(g);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("argument self of test::add"), std::string::npos);
  }
}

// ---- dumps ----------------------------------------------------------------------------------

Value split(const Value& x, int64_t dim) {
  AttrsBuilder attrs;
  attrs.operand(symbol("self"), 0);
  attrs.integer(symbol("dim"), dim);
  Type two[] = {kVec, kVec};
  return {Node::make(kSplit, std::span(&x, 1), two, attrs.words()), 1};
}

TEST(Dump, TextHasALineANode) {
  Value x = data();
  std::lock_guard lock(graph_lock());
  Graph g = build_graph({add(split(x, 2), real(0.5))}, [](const Node&) { return false; });
  EXPECT_EQ(dump_text(g),
            "%0 = device_data : f32[4]\n"
            "%1 = test::split(%0) {dim=2} : f32[4], f32[4]\n"
            "%2 = wrapped_number(0.5) : f64[]\n"
            "%3 = test::add(%1.1, %2) : f32[4]\n"
            "return %3\n");
}

TEST(Dump, TextShowsFillsAndShardings) {
  Value f = fill(1.5), s = sharded(add(f, f), "{replicated}");
  std::lock_guard lock(graph_lock());
  Graph g = build_graph({s}, [](const Node&) { return false; });
  EXPECT_EQ(dump_text(g),
            "%0 = fill(1.5) : f32[4]\n"
            "%1 = test::add(%0, %0) : f32[4] sharding={replicated}\n"
            "return %1\n");
}

TEST(Dump, DotHasEveryNodeEdgeAndOutput) {
  Value x = data();
  std::lock_guard lock(graph_lock());
  Graph g = build_graph({add(x, x)}, [](const Node&) { return false; });
  std::string dot = dump_dot(g);
  EXPECT_TRUE(dot.starts_with("digraph"));
  for (const char* part : {"n0 [label=", "n1 [label=", "n0 -> n1", "n1 -> r0"})
    EXPECT_NE(dot.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace tp::ir
