// Programs in flight and failed ones: who waits for them, and what is left of their values.
#include "exec/launches.h"

#include <chrono>
#include <future>
#include <thread>

#include "executor_fixture.h"

namespace tp::exec {
namespace {

using namespace std::chrono_literals;
using test::Gate;

struct LaunchesTest : ExecutorTest {
  // Runs `root` in place of `previous`, which nobody else has.
  std::vector<client::DataPtr> overwrite(Value root, const client::Data* previous) {
    return sync(updates(moved(std::move(root)), {previous})).outputs;
  }
};

TEST_F(LaunchesTest, WaitBlocksThoughAnotherThreadLooksAfterTheLaunch) {
  client->gate = std::make_shared<Gate>();
  sync({sine(data())});
  auto first = std::async(std::launch::async, [&] { executor.wait(); });
  while (client->gate->waiting == 0) std::this_thread::yield();  // it has taken the launch
  auto second = std::async(std::launch::async, [&] { executor.wait(); });
  EXPECT_EQ(second.wait_for(50ms), std::future_status::timeout);
  EXPECT_TRUE(executor.busy());
  client->gate->open = true;
  first.get();
  second.get();
  EXPECT_FALSE(executor.busy());
}

TEST_F(LaunchesTest, WaitDoesNotStayForWhatIsLaunchedMeanwhile) {
  auto early = client->gate = std::make_shared<Gate>();
  sync({sine(data())});
  auto wait = std::async(std::launch::async, [&] { executor.wait(); });
  while (early->waiting == 0) std::this_thread::yield();
  auto late = client->gate = std::make_shared<Gate>();
  sync({cosine(data())});
  early->open = true;
  EXPECT_EQ(wait.wait_for(10s), std::future_status::ready);
  late->open = true;
}

struct Stop {};

// Its end is awaited by a thread that Ctrl-C takes away: others still wait for the launch.
TEST_F(LaunchesTest, LaunchWhoseWaitWasInterruptedIsStillWaitedFor) {
  struct Interrupted final : client::Completion {
    mutable std::atomic<int> waits{0};
    bool ready() const override { return waits > 1; }
    void await() const override {
      if (++waits == 1) throw Stop();
    }
  };
  struct Output final : client::Data {
    using Data::Data;
    std::shared_ptr<Interrupted> end = std::make_shared<Interrupted>();
    bool ready() const override { return true; }
    bool deleted() const override { return false; }
    void await() const override {}
    bool computed() const override { return true; }
    const void* host_pointer() const override { return nullptr; }
    std::shared_ptr<const client::Completion> completion() const override { return end; }
  };
  auto output = std::make_shared<Output>(kVec, 0);
  Launches launches;
  launches.add({data()}, {output}, {}, {});
  EXPECT_THROW(launches.wait(), Stop);
  EXPECT_TRUE(launches.in_flight());
  launches.wait();
  EXPECT_EQ(output->end->waits, 2);
  EXPECT_FALSE(launches.in_flight());
}

// Asking it throws; nobody may wait for ever because of that.
TEST_F(LaunchesTest, FailedLaunchWhoseDonorThePluginCannotTellOfIsOverAndItsValueIsNotGivenUp) {
  Value w = data();
  auto leaf = std::static_pointer_cast<FakeData>(w.node->payload());
  auto* previous = leaf.get();
  previous->mute = true;
  leaf.reset();
  Value next = sine(w);
  w = {};
  client->fail_outputs = Error(Code::kRuntime, "lost a chip");
  auto out = overwrite(next, previous);
  executor.wait();
  EXPECT_FALSE(executor.busy());
  auto found = executor.recover(out[0].get());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, next);
}

TEST_F(LaunchesTest, LaunchThatFailsBehindTakingItsDonorSaysThatItsValueIsLost) {
  Value w = data();
  auto* previous = static_cast<const FakeData*>(w.node->payload().get());
  Value next = sine(w);
  w = {};
  previous->consume();  // as a plugin that fails late does
  client->fail_execute = Error(Code::kRuntime, "queue is gone");
  try {
    overwrite(next, previous);
    FAIL() << "the launch failed";
  } catch (const Error& e) {
    std::string said = e.what();
    EXPECT_NE(said.find("queue is gone"), said.npos);
    EXPECT_NE(said.find("this value is lost"), said.npos);
    EXPECT_NE(said.find("1 buffer: f32[2]"), said.npos);
  }
}

TEST_F(LaunchesTest, FillAmongTheRootsIsUploadedBeforeTheLaunch) {
  sync({sine(data()), fill(3)}, true);
  size_t uploaded = 0, launched = 0;
  for (size_t i = 0; i < client->calls.size(); ++i) {
    if (client->calls[i].what == "to_device") uploaded = i;
    if (client->calls[i].what == "execute") launched = i;
  }
  EXPECT_LT(uploaded, launched);
}

}  // namespace
}  // namespace tp::exec
