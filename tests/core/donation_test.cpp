// Who may keep a buffer from being given away: one row a holder, and the donors that are left.
#include "exec/donation.h"

#include <gtest/gtest.h>

#include <set>

#include "fake_client.h"
#include "ops/core/row.h"

namespace tp::exec {
namespace {

using ir::DType;
using ir::Node;
using ir::Type;
using ir::Value;

const Type kVec = ir::make_type(DType::kF32, std::vector<int64_t>{2});
const Type kWide = kVec.with(DType::kF64);

Value op(const char* name, std::vector<Value> operands, Type type = kVec) {
  ir::AttrsBuilder attrs;
  const char* names[] = {"self", "other"};
  for (size_t i = 0; i < operands.size(); ++i)
    attrs.operand(ir::symbol(names[i]), static_cast<int64_t>(i));
  return {Node::make(ops::kind_of(*ops::find_row(name)), operands, {&type, 1}, attrs.words()), 0};
}
Value data(Type type = kVec) {
  auto bytes = std::make_shared<std::vector<char>>(static_cast<size_t>(type.bytes()));
  return {Node::make_data(type, std::make_shared<test::FakeData>(type, 0, bytes)), 0};
}
Value fill() { return {Node::make_fill(kVec, {.re = 1, .kind = ir::Scalar::Kind::kFloat}), 0}; }
const void* buffer(const Value& v) { return v.node->payload().get(); }

// A tensor w over buffer `w` that `w = w * g` overwrites, its only root; what else exists is the
// row's.
struct DonationTest : testing::Test {
  Value w = data(), g = data();
  std::vector<Value> roots{op("aten::mul.Tensor", {w, g})};
  std::set<const void*> kept;
  std::unordered_set<const void*> results;

  ir::Graph graph() {
    return ir::build_graph(roots, [](const Node&) { return true; });
  }
  std::vector<Donor> donors(const ir::Graph& graph, std::vector<Overwrite> overwritten) {
    return choose_donors(
        graph, overwritten,
        {.results = results, .by_tensor = [this](const void* p) { return kept.contains(p); }});
  }
  // What may go at the launch, when `holders` references to each leaf and root are accounted for.
  std::vector<uint8_t> released(const ir::Graph& graph, const std::vector<Donor>& d) {
    std::vector<uint32_t> known = count_references(graph);
    for (const Value& r : roots) ++known[r.node->slot];  // the member `roots`
    return releasable(graph, d, known);
  }
};

TEST_F(DonationTest, OverwrittenTensorGivesItsBufferToItsNewValue) {
  const void* previous = buffer(w);
  w = {};
  ir::Graph graph = this->graph();
  EXPECT_EQ(donors(graph, {{0, previous}}), (std::vector<Donor>{{0, 0}}));
  EXPECT_EQ(released(graph, {{0, 0}}), (std::vector<uint8_t>{1}));
}

TEST_F(DonationTest, NothingOverwrittenGivesNothing) { EXPECT_TRUE(donors(graph(), {}).empty()); }

TEST_F(DonationTest, BufferOfAnotherLiveTensorStays) {
  auto other = std::static_pointer_cast<client::Data>(w.node->payload());
  kept.insert(buffer(w));
  EXPECT_TRUE(donors(graph(), {{0, buffer(w)}}).empty());
}

TEST_F(DonationTest, BufferThatIsAResultItselfStays) {
  results.insert(buffer(w));
  EXPECT_TRUE(donors(graph(), {{0, buffer(w)}}).empty());
}

TEST_F(DonationTest, BirthFillThatIsAResultItselfStays) {
  Value f = fill();
  roots = {op("aten::mul.Tensor", {f, g})};
  results.insert(f.node.get());
  EXPECT_TRUE(donors(graph(), {{0, f.node.get()}}).empty());
}

TEST_F(DonationTest, BufferThatTheProgramDoesNotReadStays) {
  Value elsewhere = data();
  EXPECT_TRUE(donors(graph(), {{0, buffer(elsewhere)}}).empty());
}

TEST_F(DonationTest, BufferOfAnotherTypeStays) {
  roots = {op("torch_pjrt::cast", {w}, kWide)};
  EXPECT_TRUE(donors(graph(), {{0, buffer(w)}}).empty());
}

TEST_F(DonationTest, BufferUnderTwoLeavesStays) {
  auto payload = w.node->payload();
  Value again{Node::make_data(kVec, payload), 0};
  roots = {op("aten::mul.Tensor", {w, again})};
  EXPECT_TRUE(donors(graph(), {{0, buffer(w)}}).empty());
}

TEST_F(DonationTest, OneOutputTakesOneBufferAndOneBufferGoesOnce) {
  roots.push_back(op("aten::sin", {w}));
  ir::Graph graph = this->graph();
  EXPECT_EQ(donors(graph, {{0, buffer(w)}, {0, buffer(g)}}), (std::vector<Donor>{{0, 0}}));
  EXPECT_EQ(donors(graph, {{0, buffer(w)}, {1, buffer(w)}}), (std::vector<Donor>{{0, 0}}));
}

TEST_F(DonationTest, DonorsAscendByParameterInWhateverOrderTensorsCome) {
  roots.push_back(op("aten::sin", {g}));
  ir::Graph graph = this->graph();
  std::vector<Donor> want{{0, 0}, {1, 1}};
  EXPECT_EQ(donors(graph, {{0, buffer(w)}, {1, buffer(g)}}), want);
  EXPECT_EQ(donors(graph, {{1, buffer(g)}, {0, buffer(w)}}), want);
}

TEST_F(DonationTest, BirthFillIsADonorLikeTheBufferOfLaterSteps) {
  Value f = fill();
  const void* previous = f.node.get();
  roots = {op("aten::mul.Tensor", {f, g})};
  f = {};
  ir::Graph graph = this->graph();
  EXPECT_EQ(donors(graph, {{0, previous}}), (std::vector<Donor>{{0, 0}}));
  EXPECT_EQ(released(graph, {{0, 0}}), (std::vector<uint8_t>{1}));
}

// ---- at the launch ---------------------------------------------------------------------------

TEST_F(DonationTest, ReaderOfTheBytesKeepsThem) {
  auto reader = std::static_pointer_cast<client::Data>(w.node->payload());
  w = {};
  EXPECT_EQ(released(graph(), {{0, 0}}), (std::vector<uint8_t>{0}));
}

TEST_F(DonationTest, PendingNodeThatReadsTheLeafKeepsIt) {
  Value elsewhere = op("aten::sin", {w});
  w = {};
  EXPECT_EQ(released(graph(), {{0, 0}}), (std::vector<uint8_t>{0}));
}

TEST_F(DonationTest, PendingNodeThatReadsAnInnerNodeKeepsAllBelowIt) {
  Value inner = op("aten::sin", {w});
  roots = {op("aten::mul.Tensor", {inner, g})};
  w = g = {};
  Value elsewhere = op("aten::cos", {std::move(inner)});
  EXPECT_EQ(released(graph(), {{0, 0}, {1, 0}}), (std::vector<uint8_t>{0, 1}));
}

TEST_F(DonationTest, PendingNodeThatReadsARootKeepsAllBelowIt) {
  w = g = {};
  Value elsewhere = op("aten::cos", {roots[0]});
  EXPECT_EQ(released(graph(), {{0, 0}, {1, 0}}), (std::vector<uint8_t>{0, 0}));
}

TEST_F(DonationTest, OperandUsedTwiceCountsTwice) {
  roots = {op("aten::mul.Tensor", {w, w})};
  w = {};
  EXPECT_EQ(released(graph(), {{0, 0}}), (std::vector<uint8_t>{1}));
}

}  // namespace
}  // namespace tp::exec
