// The executor over a client that computes nothing: what is compiled, run, uploaded, and what a
// failure leaves behind.
#include "exec/executor.h"

#include <array>
#include <random>
#include <set>

#include "base/error.h"
#include "executor_fixture.h"

namespace tp::exec {
namespace {

Value power(Value x, double exponent) {
  ir::AttrsBuilder attrs;
  attrs.operand(ir::symbol("self"), 0);
  attrs.real(ir::symbol("exponent"), exponent);
  return {Node::make(ops::kind_of(*ops::find_row("aten::pow.Tensor_Scalar")), std::span(&x, 1),
                     {&kVec, 1}, attrs.words()),
          0};
}

TEST_F(ExecutorTest, SecondSyncOfEqualGraphsCompilesNothing) {
  auto a = sync({sine(data(1))}), b = sync({sine(data(9))});
  EXPECT_EQ(client->count("compile"), 1u);
  EXPECT_EQ(client->count("execute"), 2u);
  EXPECT_EQ(executor.cache().size(), 1u);
  EXPECT_EQ(a.outputs[0]->type(), kVec);
  EXPECT_NE(a.outputs[0], b.outputs[0]);
}

TEST_F(ExecutorTest, EveryRootGetsItsOutputAndDuplicatesShareOne) {
  Value x = data(), s = sine(x), c = cosine(x);
  auto out = sync({s, c, s}).outputs;
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0], out[2]);
  EXPECT_NE(out[0], out[1]);
}

TEST_F(ExecutorTest, OrderOfRootsDoesNotMakeAnotherProgram) {
  Value x = data();
  sync({sine(x), cosine(x)});
  sync({cosine(x), sine(x)});
  EXPECT_EQ(client->count("compile"), 1u);
}

TEST_F(ExecutorTest, OutputsComeInTheCallersOrder) {
  Type wide = kVec.with(DType::kF64);
  Value x = data();
  Value s = sine(x);
  ir::AttrsBuilder attrs;
  attrs.operand(ir::symbol("self"), 0);
  attrs.dtype(ir::symbol("dtype"), DType::kF64);
  Value w{Node::make(ops::kind_of(*ops::find_row("torch_pjrt::cast")), std::span(&x, 1), {&wide, 1},
                     attrs.words()),
          0};
  auto one = sync({s, w}).outputs, two = sync({w, s}).outputs;
  EXPECT_EQ(one[0]->type(), kVec);
  EXPECT_EQ(one[1]->type(), wide);
  EXPECT_EQ(two[0]->type(), wide);
  EXPECT_EQ(two[1]->type(), kVec);
}

TEST_F(ExecutorTest, BuffersAreHandedOverOnceInFirstUseOrder) {
  Value x = data(), y = data();
  sync({mul(mul(y, x), y)});
  std::vector<const client::Data*> want = {
      static_cast<const client::Data*>(y.node->payload().get()),
      static_cast<const client::Data*>(x.node->payload().get())};
  EXPECT_EQ(last("execute").arguments, want);
}

TEST_F(ExecutorTest, NumbersTravelInOneVectorADtype) {
  Value x = data();
  sync({mul(mul(mul(x, real(2.5)), integer(7)), mul(real(-1), integer(3)))});
  const auto& types = last("execute").argument_types;
  ASSERT_EQ(types.size(), 3u);
  EXPECT_EQ(types[1].text(), "s64[2]");
  EXPECT_EQ(types[2].text(), "f64[2]");
}

TEST_F(ExecutorTest, NumbersChangeWithoutAnotherProgram) {
  Value x = data();
  for (double v : {2.0, 0.0, 1.0, 2.0}) sync({mul(mul(x, real(v)), real(2.0))});
  EXPECT_EQ(client->count("compile"), 1u);
}

TEST_F(ExecutorTest, ConstantFillIsANumberAndBirthFillIsUploaded) {
  Value x = data();
  auto constant = sync({mul(x, fill(3))});
  EXPECT_TRUE(constant.uploads.empty());
  Value state = fill(3);
  auto born = sync({mul(x, state)}, true);
  ASSERT_EQ(born.uploads.size(), 1u);
  EXPECT_EQ(bytes<float>(born.uploads.at(state.node.get()).get()), (std::vector<float>{3, 3}));
  EXPECT_EQ(client->count("compile"), 2u);
  EXPECT_EQ(last("execute").arguments[1], born.uploads.at(state.node.get()).get());
}

TEST_F(ExecutorTest, StepOneWithABirthFillIsStepTwosProgram) {
  Value x = data();
  sync({mul(x, fill(0))}, true);
  sync({mul(x, data())}, true);
  EXPECT_EQ(client->count("compile"), 1u);
}

TEST_F(ExecutorTest, FillThatIsARootIsUploadedWithoutAProgram) {
  auto r = sync({fill(4)});
  EXPECT_EQ(client->count("compile") + client->count("execute"), 0u);
  EXPECT_EQ(bytes<float>(r.outputs[0].get()), (std::vector<float>{4, 4}));
}

TEST_F(ExecutorTest, BufferThatIsARootComesBackItself) {
  Value x = data();
  auto r = sync({x, sine(x)});
  EXPECT_EQ(r.outputs[0].get(), x.node->payload().get());
}

TEST_F(ExecutorTest, NothingToDoRunsNothing) {
  EXPECT_TRUE(sync(std::vector<Value>()).outputs.empty());
  EXPECT_EQ(client->count("execute"), 0u);
}

// ---- failures -------------------------------------------------------------------------------

TEST_F(ExecutorTest, FailedCompileLeavesNothingBehind) {
  Value v = sine(data());
  client->fail_compile = Error(Code::kOutOfMemory, "no memory for this program");
  try {
    sync({v});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kOutOfMemory);
    EXPECT_NE(std::string(e.what()).find("no memory for this program"), std::string::npos);
  }
  EXPECT_EQ(executor.cache().size(), 0u);
  EXPECT_EQ(client->count("execute"), 0u);
  EXPECT_EQ(sync({v}).outputs.size(), 1u);
  EXPECT_EQ(client->count("compile"), 2u);
}

TEST_F(ExecutorTest, FailedLaunchKeepsTheProgram) {
  Value v = sine(data());
  client->fail_execute = Error(Code::kRuntime, "queue is gone");
  EXPECT_THROW(sync({v}), Error);
  EXPECT_EQ(sync({v}).outputs.size(), 1u);
  EXPECT_EQ(client->count("compile"), 1u);
}

TEST_F(ExecutorTest, FailureWhileRunningGivesThePendingValueBack) {
  Value s = sine(data()), c = cosine(data());
  client->fail_outputs = Error(Code::kRuntime, "lost a chip");
  auto r = sync({s, c});
  EXPECT_THROW(r.outputs[0]->await(), Error);
  auto value = executor.recover(r.outputs[0].get());
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->value, s);
  EXPECT_FALSE(value->reported);
  EXPECT_EQ(executor.recover(r.outputs[1].get())->value, c);
  EXPECT_TRUE(executor.recover(r.outputs[1].get())->reported);
  EXPECT_NO_THROW(sync({value->value}).outputs[0]->await());
}

// Roots 0 and 1 = f(0), and root 2 on its own: whichever node raises concerns one of these sets.
const std::set<std::vector<size_t>> kConcerned = {{0, 1}, {1}, {2}};

TEST_F(ExecutorTest, HostOpThatRaisesAtTheLaunchConcernsItsDependents) {
  Value s = sine(data()), c = cosine(s), other = mul(data(), real(2));
  std::set<std::vector<size_t>> found;
  for (int64_t node = 0; node < 6; ++node) {
    client->fail_execute = Error(Code::kLinAlg, "singular").raised_by(node);
    try {
      sync({s, c, other});
      FAIL();
    } catch (const HostFailure& e) {
      EXPECT_EQ(e.code(), Code::kLinAlg);
      found.insert(e.roots());
    }
  }
  EXPECT_EQ(found, kConcerned);
}

TEST_F(ExecutorTest, HostOpThatRaisesWhileRunningIsToldToItsDependentsOnly) {
  Value s = sine(data()), c = cosine(s), other = mul(data(), real(2));
  std::set<std::vector<size_t>> found;
  for (int64_t node = 0; node < 6; ++node) {
    client->fail_outputs = Error(Code::kLinAlg, "singular").raised_by(node);
    auto r = sync({s, c, other});
    std::vector<size_t> concerned;
    for (size_t i : {1, 2})  // 0 and 1 are told together
      if (!executor.recover(r.outputs[i].get())->reported) concerned.push_back(i);
    found.insert(concerned);
  }
  EXPECT_EQ(found, (std::set<std::vector<size_t>>{{1}, {2}}));
}

TEST_F(ExecutorTest, SoundOutputsHaveNothingToRecover) {
  auto r = sync({sine(data())});
  EXPECT_FALSE(executor.recover(r.outputs[0].get()).has_value());
}

TEST_F(ExecutorTest, WaitLeavesErrorsWithTheirOutputs) {
  client->fail_outputs = Error(Code::kRuntime, "lost a chip");
  auto r = sync({sine(data())});
  EXPECT_NO_THROW(executor.wait());
  EXPECT_TRUE(executor.recover(r.outputs[0].get()).has_value());
}

TEST_F(ExecutorTest, FailedOutputsThatNobodyHoldsAreForgotten) {
  client->fail_outputs = Error(Code::kRuntime, "lost a chip");
  auto r = sync({sine(data())});
  const client::Data* gone = r.outputs[0].get();
  executor.wait();
  r = {};
  EXPECT_FALSE(executor.recover(gone).has_value());
}

// ---- looking --------------------------------------------------------------------------------

TEST_F(ExecutorTest, DescribeNeitherCompilesNorRuns) {
  Value v = mul(data(), real(2));
  GraphRecord g = executor.describe(request({v}));
  EXPECT_EQ(client->count("compile") + client->count("execute"), 0u);
  EXPECT_EQ(executor.cache().size(), 0u);
  EXPECT_EQ(g.nodes, 3u) << g.text;  // buffer, number, product
  EXPECT_NE(g.text.find("aten::mul.Tensor"), std::string::npos);
  EXPECT_NE(g.module.find("stablehlo.multiply"), std::string::npos);
}

TEST_F(ExecutorTest, DescribeTellsTheKeyThatSyncUses) {
  Value v = sine(data());
  Hash128 told = executor.describe(request({v})).key;
  sync({v});
  EXPECT_EQ(executor.last().key, told);
}

TEST_F(ExecutorTest, LastIsTheProgramThatRan) {
  EXPECT_EQ(executor.last().nodes, 0u);
  sync({sine(data())});
  EXPECT_NE(executor.last().text.find("aten::sin"), std::string::npos);
  sync({cosine(data())});
  EXPECT_NE(executor.last().text.find("aten::cos"), std::string::npos);
}

TEST_F(ExecutorTest, AReadAndAFullSyncHaveTwoKeys) {
  Value x = data();
  PlanRequest r = request({sine(x)});
  Hash128 read = executor.describe(r).key;
  r.force_data = true;
  EXPECT_NE(executor.describe(r).key, read);
}

TEST_F(ExecutorTest, BuffersOfARunAreKeptUntilItIsDone) {
  auto payload = std::static_pointer_cast<client::Data>(data().node->payload());
  std::weak_ptr<client::Data> watch = payload;
  {
    Value v = sine({Node::make_data(kVec, std::move(payload)), 0});
    sync({v});
  }
  executor.wait();
  EXPECT_TRUE(watch.expired());
}

// ---- plan, prepare, run ---------------------------------------------------------------------

TEST_F(ExecutorTest, APlanTouchesNothing) {
  PlanPtr p = executor.plan(request({mul(data(), fill(2))}, true));
  EXPECT_EQ(client->count("compile") + client->count("execute"), 0u);
  EXPECT_EQ(client->count("to_device"), 1u);  // data() itself
  EXPECT_EQ(p->graph.num_buffers, 2u);
}

TEST_F(ExecutorTest, PreparingCompilesAndRunsNothing) {
  Prepared p = executor.prepare(executor.plan(request({sine(data())})));
  ASSERT_NE(p.program, nullptr);
  EXPECT_EQ(client->count("compile"), 1u);
  EXPECT_EQ(client->count("execute"), 0u);
}

TEST_F(ExecutorTest, APreparedProgramRunsWithOtherArguments) {
  Prepared p = executor.prepare(executor.plan(request({sine(data())})));
  auto other = std::static_pointer_cast<client::Data>(data(5).node->payload());
  auto out = executor.run(p.program, {.arguments = {&other, 1}});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(last("execute").arguments, (std::vector<const client::Data*>{other.get()}));
  EXPECT_EQ(client->count("compile"), 1u);
}

TEST_F(ExecutorTest, APlanMayBePreparedAfterItsNodesWentIntoAnotherGraph) {
  Value x = data(), s = sine(x), c = cosine(s);
  PlanPtr first = executor.plan(request({s}));
  executor.plan(request({c, mul(x, s)}));
  EXPECT_EQ(executor.prepare(first).program->nodes, 2u);
  EXPECT_EQ(last("compile").module.find("stablehlo.cosine"), std::string::npos);
}

TEST_F(ExecutorTest, AHeldPlanOfAFamilyRunsItsOwnNumbers) {
  Value x = data();
  sync({power(x, 1.5)});
  PlanPtr held = executor.plan(request({power(x, 2.5)}));
  sync({power(x, 3.5)});
  Prepared p = executor.prepare(held);
  EXPECT_NE(p.plan, held);
  EXPECT_EQ(p.plan->base, held);
  Uploads uploads;
  auto args = executor.arguments(*p.plan, uploads);
  EXPECT_EQ(bytes<double>(args.back().get()), (std::vector<double>{2.5}));
}

TEST_F(ExecutorTest, NumbersThatComeTwiceAreKeptOnTheDevice) {
  Value x = data();
  sync({power(x, 1.5)});
  sync({power(x, 2.5)});  // the family's general program: its number is an argument from now on
  sync({power(x, 2.5)});
  size_t before = client->count("to_device");
  sync({power(x, 2.5)});
  EXPECT_EQ(client->count("to_device"), before);
  sync({power(x, 3.5)});
  EXPECT_EQ(client->count("to_device"), before + 1);
}

TEST_F(ExecutorTest, AFillThatIsARootGoesUpBeforeTheLaunch) {
  Value w = data();
  const void* previous = w.node->payload().get();
  sync(updates(moved(sine(std::move(w)), fill(3)), {previous, nullptr}));
  std::vector<std::string> order;
  for (const FakeClient::Call& c : client->calls) order.push_back(c.what);
  EXPECT_EQ(order, (std::vector<std::string>{"to_device", "compile", "to_device", "execute"}));
}

TEST_F(ExecutorTest, EqualGraphsOnTwoDevicesHaveTwoKeys) {
  Value v = sine(data());
  PlanRequest r = request({v});
  Key here = executor.plan(PlanRequest(r))->key;
  r.device = 1;
  Key there = executor.plan(PlanRequest(r))->key;
  EXPECT_NE(here.total, there.total);
  size_t differ = 0;
  for (size_t i = 0; i < here.digests.size(); ++i) differ += !(here.digests[i] == there.digests[i]);
  EXPECT_EQ(differ, 1u);
}

// ---- the parameter sequence -----------------------------------------------------------------

// A tree of random ops over places, and which buffer stands at each place.
struct RandomGraph {
  std::vector<std::array<int, 2>> ops;  // operands: a place (< places) or an earlier op
  int places;
  std::vector<bool> used;
};

RandomGraph random_graph(std::mt19937& rng) {
  RandomGraph g;
  g.places = 2 + static_cast<int>(rng() % 4);
  g.used.assign(static_cast<size_t>(g.places), false);
  int count = 1 + static_cast<int>(rng() % 6);
  auto mark = [&g](int v) {
    if (v < g.places) g.used[static_cast<size_t>(v)] = true;
  };
  for (int i = 0; i < count; ++i) {
    auto pick = [&] { return static_cast<int>(rng() % static_cast<unsigned>(g.places + i)); };
    int last = i ? g.places + i - 1 : pick();  // every op leads to the root
    g.ops.push_back({last, pick()});
    mark(last);
    mark(g.ops.back()[1]);
  }
  return g;
}

// For each used place, the first used place of the same buffer.
std::vector<size_t> pattern(const RandomGraph& g, const std::vector<unsigned>& buffer_at) {
  std::vector<size_t> first;
  for (size_t i = 0; i < buffer_at.size(); ++i) {
    if (!g.used[i]) continue;
    size_t k = 0;
    while (!g.used[k] || buffer_at[k] != buffer_at[i]) ++k;
    first.push_back(k);
  }
  return first;
}

TEST_F(ExecutorTest, GraphsThatDifferOnlyInWhichBufferFeedsWhichOperandShareNoProgram) {
  std::mt19937 rng(11);
  for (int trial = 0; trial < 400; ++trial) {
    RandomGraph g = random_graph(rng);
    auto build = [&](const std::vector<unsigned>& buffer_at) {
      std::vector<Value> buffers{data(), data(), data()}, made;
      for (unsigned b : buffer_at) made.push_back(buffers[b]);
      for (auto [a, b] : g.ops)
        made.push_back(mul(made[static_cast<size_t>(a)], made[static_cast<size_t>(b)]));
      return executor.describe(request({made.back()})).key;
    };
    std::vector<unsigned> one, two;
    for (int i = 0; i < g.places; ++i) one.push_back(rng() % 3), two.push_back(rng() % 3);
    EXPECT_EQ(build(one) == build(two), pattern(g, one) == pattern(g, two)) << "trial " << trial;
  }
}

// ---- donation -------------------------------------------------------------------------------

TEST_F(ExecutorTest, DonorsAreInTheKeyAndOnlyWhereTheSyncOffersThem) {
  Value w = data();
  PlanRequest r = updates({sine(w)}, {});
  Hash128 kept = executor.describe(r).key;
  GraphRecord given = executor.describe(updates({sine(w)}, {w.node->payload().get()}));
  EXPECT_NE(given.key, kept);
  EXPECT_NE(given.module.find("tf.aliasing_output = 0"), std::string::npos);
}

TEST_F(ExecutorTest, DonorIsConsumedWhereNobodyElseHasIt) {
  Value w = data();
  auto* previous = static_cast<const client::Data*>(w.node->payload().get());
  PlanPtr plan = executor.plan(updates(moved(sine(std::move(w))), {previous}));
  for (bool undisturbed : {false, true}) {
    executor.sync(plan, [undisturbed] { return undisturbed; });
    EXPECT_EQ(previous->deleted(), undisturbed);
    executor.wait();
  }
  EXPECT_EQ(client->count("compile"), 1u);
}

TEST_F(ExecutorTest, DonorThatOnlyAFinishedProgramReadIsConsumed) {
  Value w = data(), next = sine(w);
  auto* previous = static_cast<const client::Data*>(w.node->payload().get());
  w = {};
  sync({cosine(next)});  // while it ran, its roots held `next`
  sync(updates(moved(std::move(next)), {previous}));
  EXPECT_TRUE(previous->deleted());
}

TEST_F(ExecutorTest, ValueThatNeedsADonatedBufferOfAFailedProgramIsLostAndOthersAreNot) {
  Value w = data(), other = cosine(data());
  auto* previous = static_cast<const client::Data*>(w.node->payload().get());
  client->fail_outputs = Error(Code::kRuntime, "lost a chip");
  auto out = sync(updates(moved(sine(std::move(w)), other), {previous, nullptr})).outputs;
  executor.wait();
  auto lost = executor.recover(out[0].get()), kept = executor.recover(out[1].get());
  ASSERT_TRUE(lost && kept);
  EXPECT_FALSE(lost->value);
  EXPECT_EQ(lost->lost, "1 buffer: f32[2]");
  EXPECT_EQ(kept->value, other);
  EXPECT_EQ(kept->lost, "");
}

// ---- numbers that select ----------------------------------------------------------------------

TEST_F(ExecutorTest, SecondNumberMakesAGeneralProgramAndTheThirdCompilesNothing) {
  Value x = data();
  for (double e : {1.5, 2.5, 3.5, 4.5}) sync({power(x, e)});
  EXPECT_EQ(client->count("compile"), 2u);
  EXPECT_EQ(last("execute").argument_types.back().text(), "f64[1]");
  sync({power(x, 1.5)});
  EXPECT_EQ(last("execute").argument_types.size(), 1u) << "the first number has its own program";
  EXPECT_EQ(client->count("compile"), 2u);
}

TEST_F(ExecutorTest, OrderOfRootsOfAGeneralProgramDoesNotFollowItsNumbers) {
  Value x = data(), y = data();
  for (int i = 0; i < 12; ++i) sync({power(x, 1.5 + i), power(sine(y), 0.25 + i)});
  EXPECT_EQ(client->count("compile"), 2u);
}

TEST_F(ExecutorTest, NumberThatNeverChangesIsNoInput) {
  Value x = data();
  for (double e : {1.5, 2.5, 3.5}) sync({power(power(x, 7), e)});
  EXPECT_EQ(client->count("compile"), 2u);
  EXPECT_EQ(last("execute").argument_types.back().text(), "f64[1]");
}

}  // namespace
}  // namespace tp::exec
