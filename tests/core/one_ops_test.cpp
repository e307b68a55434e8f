// Ops that eager mode runs again: found by their node, without a graph, and never mistaken.
#include "exec/one_ops.h"

#include <limits>

#include "base/error.h"
#include "executor_fixture.h"

namespace tp::exec {
namespace {

using OneOpsTest = ExecutorTest;

TEST_F(OneOpsTest, OpIsUnknownUntilItHasRun) {
  Value v = sine(data());
  EXPECT_EQ(executor.run_known(v, 0), nullptr);
  EXPECT_EQ(client->count("execute"), 0u);
  sync({v});
  EXPECT_NE(executor.run_known(sine(data()), 0), nullptr);
  EXPECT_EQ(client->count("compile"), 1u);
  EXPECT_EQ(client->count("execute"), 2u);
}

TEST_F(OneOpsTest, BuffersGoWhereTheLongWayPutsThem) {
  Value a = data(1), b = data(2), c = data(3), d = data(4);
  sync({mul(a, b)});
  executor.run_known(mul(c, d), 0);
  EXPECT_EQ(last("execute").arguments, (std::vector<const client::Data*>{
                                           static_cast<client::Data*>(c.node->payload().get()),
                                           static_cast<client::Data*>(d.node->payload().get())}));
}

TEST_F(OneOpsTest, OperandsThatAreOneNodeAreAnotherProgram) {
  Value a = data(), b = data();
  sync({mul(a, b)});
  EXPECT_EQ(executor.run_known(mul(a, a), 0), nullptr);
  sync({mul(a, a)});
  EXPECT_EQ(client->count("compile"), 2u);
  executor.run_known(mul(b, b), 0);
  EXPECT_EQ(last("execute").arguments.size(), 1u);
}

TEST_F(OneOpsTest, NumbersAreRunTimeInputsAndUploadedOnlyWhereTheyChange) {
  sync({mul(data(), real(2))});
  auto number = [&](double v) {
    size_t before = client->count("to_device");
    Value x = data();
    executor.run_known(mul(x, real(v)), 0);
    double got = bytes<double>(dynamic_cast<const client::Data*>(last("execute").arguments[1]))[0];
    return std::pair(got, client->count("to_device") - before - 1);
  };
  EXPECT_EQ(number(3), std::pair(3.0, size_t{1}));
  EXPECT_EQ(number(3), std::pair(3.0, size_t{0}));
  EXPECT_EQ(number(0.0), std::pair(0.0, size_t{1}));
  EXPECT_EQ(number(-0.0).second, 1u);  // other bits
  number(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()).second, 0u);
  EXPECT_EQ(client->count("compile"), 1u);
}

TEST_F(OneOpsTest, NumberOfAnotherTypeIsAnotherProgram) {
  sync({mul(data(), real(2))});
  EXPECT_EQ(executor.run_known(mul(data(), integer(2)), 0), nullptr);
}

TEST_F(OneOpsTest, GraphsOfMoreThanOneOpAreNotKnown) {
  sync({sine(cosine(data()))});
  EXPECT_EQ(executor.run_known(sine(cosine(data())), 0), nullptr);
  sync({sine(fill(2))});
  EXPECT_EQ(executor.run_known(sine(fill(2)), 0), nullptr);
}

TEST_F(OneOpsTest, AnotherDeviceIsAnotherProgram) {
  sync({sine(data())});
  EXPECT_EQ(executor.run_known(sine(data()), 1), nullptr);
}

TEST_F(OneOpsTest, ClearedProgramsAreCompiledAgain) {
  sync({sine(data())});
  executor.clear_programs();
  EXPECT_EQ(executor.run_known(sine(data()), 0), nullptr);
}

TEST_F(OneOpsTest, ProgramsThatTheCacheDroppedAreNotKeptAlive) {
  sync({sine(data())});
  sync({cosine(data())});  // sine's is no longer the last one that ran
  executor.cache().clear();
  EXPECT_EQ(executor.run_known(sine(data()), 0), nullptr);
}

TEST_F(OneOpsTest, FailureWhileRunningGivesThePendingValueBack) {
  sync({sine(data())});
  Value v = sine(data());
  client->fail_outputs = Error(Code::kRuntime, "lost a chip");
  client::DataPtr out = executor.run_known(v, 0);
  ASSERT_NE(out, nullptr);
  EXPECT_THROW(out->await(), Error);
  auto lost = executor.recover(out.get());
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->value, v);
}

TEST_F(OneOpsTest, FailureStopsOnlyTheOpsThatReadItsOutputs) {
  sync({sine(data())});
  client->fail_outputs = Error(Code::kRuntime, "lost a chip");
  client::DataPtr out = executor.run_known(sine(data()), 0);
  executor.wait();
  EXPECT_NE(executor.run_known(sine(data()), 0), nullptr);
  EXPECT_EQ(executor.run_known(sine({Node::make_data(kVec, out), 0}), 0), nullptr);
}

TEST_F(OneOpsTest, FailedLaunchLeavesTheOpKnown) {
  sync({sine(data())});
  client->fail_execute = Error(Code::kRuntime, "no memory");
  EXPECT_THROW(executor.run_known(sine(data()), 0), Error);
  EXPECT_NE(executor.run_known(sine(data()), 0), nullptr);
}

TEST_F(OneOpsTest, NowAndThenAnOpGoesTheLongWay) {
  sync({sine(data())});
  Value x = data();
  size_t long_way = 0;
  for (int i = 0; i < 3000; ++i) long_way += executor.run_known(sine(x), 0) == nullptr;
  EXPECT_EQ(long_way, 2u);
}

}  // namespace
}  // namespace tp::exec
