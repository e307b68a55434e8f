// From graph to module: parameter order, packed numbers, fills, and what happens when a lowering is
// wrong.
#include "lower/lower.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "harness.h"
#include "ops/host/host.h"

namespace tp::lower {
namespace {

using ir::DType;
using ir::Node;
using ir::NodePtr;
using ir::Scalar;
using ir::Type;
using ir::Value;
using test::OpCall;
using test::Tensor;

Value op(std::string_view name, std::vector<std::pair<std::string_view, Value>> args, Type out) {
  ir::AttrsBuilder attrs;
  std::vector<Value> operands;
  for (auto& [argument, value] : args) {
    attrs.operand(ir::symbol(argument), static_cast<int64_t>(operands.size()));
    operands.push_back(value);
  }
  return {Node::make(ops::kind_of(*ops::find_row(name)), operands, {&out, 1}, attrs.words()), 0};
}

Module lowered(std::vector<Value> roots, bool upload_fills = false) {
  std::lock_guard lock(ir::graph_lock());
  ir::Graph g = ir::build_graph(std::move(roots), [=](const Node&) { return upload_fills; });
  ir::verify(g);
  return lower(g, "test");
}

Value number(Scalar s) { return {Node::make_number(s, true), 0}; }

const Type kVec = ir::make_type(DType::kF32, std::vector<int64_t>{2});

TEST(Lower, ParametersAreBuffersThenIntegersThenReals) {
  Value x{Node::make_data(kVec, nullptr), 0};
  Value a = op("aten::mul.Tensor", {{"self", x}, {"other", number(OpCall::scalar(2.0))}}, kVec);
  Value b =
      op("aten::add.Tensor", {{"self", a}, {"other", number(OpCall::scalar(int64_t{3}))}}, kVec);
  Module m = lowered({b});
  EXPECT_NE(m.text.find("@main(%0: tensor<2xf32>, %1: tensor<1xi64>, %2: tensor<1xf64>)"),
            std::string::npos)
      << m.text;
  auto out = test::run_module(
      m.text,
      {test::f32({2}, {1, 10}), test::s64({1}, {3}), test::make_tensor(DType::kF64, {1}, {2})},
      {kVec});
  EXPECT_EQ(out[0].values(), (std::vector<double>{5, 23}));
}

TEST(Lower, NumbersKeepTheirKind) {
  Value yes = number(OpCall::scalar(true));
  Value z = number(Scalar{1.5, -2.5, 0, Scalar::Kind::kComplex});
  Value real = number(OpCall::scalar(0.25));
  Module m = lowered({yes, z, real});
  Type c128 = ir::scalar_type(DType::kC128);
  auto out = test::run_module(
      m.text, {test::s64({1}, {7}), test::make_tensor(DType::kF64, {3}, {1.5, -2.5, 0.25})},
      {ir::scalar_type(DType::kPred), c128, ir::scalar_type(DType::kF64)});
  EXPECT_EQ(out[0].values()[0], 1);
  auto parts = reinterpret_cast<const double*>(out[1].bytes.data());
  EXPECT_EQ(parts[0], 1.5);
  EXPECT_EQ(parts[1], -2.5);
  EXPECT_EQ(out[2].values()[0], 0.25);
}

TEST(Lower, AFillIsANumberUnlessItIsUploaded) {
  Type t = ir::make_type(DType::kBF16, std::vector<int64_t>{3});
  Value fill{Node::make_fill(t, OpCall::scalar(0.5)), 0};
  Module m = lowered({fill});
  auto out = test::run_module(m.text, {test::make_tensor(DType::kF64, {1}, {0.5})}, {t});
  EXPECT_EQ(out[0].values(), (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_NE(lowered({fill}, true).text.find("@main(%0: tensor<3xbf16>)"), std::string::npos);
}

TEST(Lower, StatementsCarryTheOpsName) {
  Value x{Node::make_data(kVec, nullptr), 0};
  Module m = lowered({op("aten::neg", {{"self", x}}, kVec)});
  EXPECT_NE(
      m.text.find("\"stablehlo.negate\"(%0) : (tensor<2xf32>) -> tensor<2xf32> loc(\"aten::neg\")"),
      std::string::npos);
}

TEST(Lower, OneRootTwiceAndLeavesAsRootsAreFine) {
  Value x{Node::make_data(kVec, nullptr), 0};
  auto out = test::run_module(lowered({x, x}).text, {test::f32({2}, {1, 2})}, {kVec, kVec});
  EXPECT_EQ(out[0].values(), out[1].values());
}

TEST(Lower, ALoweringThatDisagreesWithTheRecordIsNamed) {
  Value x{Node::make_data(kVec, nullptr), 0};
  Type wrong = ir::make_type(DType::kF32, std::vector<int64_t>{3});
  try {
    lowered({op("aten::abs", {{"self", x}}, wrong)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInternal);
    EXPECT_NE(e.message().find("aten::abs: output 0 is f32[2] where f32[3] was recorded"),
              std::string::npos)
        << e.message();
  }
}

TEST(Lower, ErrorsInsideARowNameTheOp) {
  Value x{Node::make_data(kVec, nullptr), 0};
  try {
    lowered({op("aten::add.Tensor", {{"self", x}}, kVec)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("aten::add.Tensor: argument other is not recorded"),
              std::string::npos);
  }
}

// A chain, so that lowering anything twice would double with every node.
int64_t statements_of_chain(int pairs) {
  Value x{Node::make_data(kVec, nullptr), 0};
  for (int i = 0; i < pairs; ++i) {
    x = op("aten::mul.Tensor", {{"self", x}, {"other", number(OpCall::scalar(0.5))}}, kVec);
    x = op("aten::tanh", {{"self", x}}, kVec);
  }
  return lowered({x}).statements;
}

TEST(Lower, EachOfThreeThousandNodesIsLoweredOnce) {
  int64_t few = statements_of_chain(500), more = statements_of_chain(1000);
  EXPECT_GE(more, 2000);
  EXPECT_EQ(statements_of_chain(1500) - more, more - few);
}

TEST(OpCall, RunsOneOpOnTheRealPlugin) {
  auto out = OpCall("aten::add.Tensor")
                 .tensor("self", test::f32({2}, {1, 2}))
                 .tensor("other", test::f32({2}, {10, 20}))
                 .number("alpha", 2.0)
                 .types({"f32[2]"})
                 .run();
  EXPECT_EQ(out[0].values(), (std::vector<double>{21, 42}));
}

TEST(Lower, HostOpIsACallWithAllThatItNeedsInTheText) {
  const ops::Row& row = ops::host_row("aten::no_such_op");
  EXPECT_EQ(&row, &ops::host_row("aten::no_such_op"));
  EXPECT_EQ(ops::row_of(ops::kind_of(row)), &row);
  ir::AttrsBuilder attrs;
  attrs.operand(ir::symbol("self"), 0);
  attrs.operand(ir::symbol("other"), 1);
  Value in[] = {{Node::make_data(kVec, nullptr), 0}, number(OpCall::scalar(2.0))};
  Type out[] = {kVec, Type(), ir::scalar_type(DType::kS32)};  // the second result is absent
  NodePtr n = Node::make(ops::kind_of(row), in, out, attrs.words());
  std::string text = lowered({{n, 0}, {n, 2}}).text;
  EXPECT_NE(text.find("call_target_name = \"torch_pjrt_host_op\""), text.npos) << text;
  EXPECT_NE(text.find("op = \"aten::no_such_op\", node = "), text.npos) << text;
  EXPECT_NE(text.find("python = array<i64: 1>"), text.npos) << text;
  EXPECT_NE(
      text.find("operand_layouts = [dense<[0]> : tensor<1xindex>, dense<> : tensor<0xindex>]"),
      text.npos)
      << text;
  EXPECT_NE(text.find("-> (tensor<2xf32>, tensor<i32>)"), text.npos) << text;
}

}  // namespace
}  // namespace tp::lower
