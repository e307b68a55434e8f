// Several threads at one executor: own graphs, shared buffers, one compile a key.
// These run under ThreadSanitizer too (make tsan).
#include <gtest/gtest.h>

#include <thread>

#include "base/cache_place.h"
#include "client/registry.h"
#include "exec/executor.h"
#include "fake_client.h"
#include "ops/core/row.h"
#include "temp_folder.h"

namespace tp::exec {
namespace {

using ir::Node;
using ir::Value;
using test::FakeClient;

constexpr int kThreads = 6, kRounds = 20;

ir::Type vec(int64_t n) { return ir::make_type(ir::DType::kF32, std::vector<int64_t>{n}); }

Value unary(const char* name, Value self) {
  ir::Type t = self.type();
  ir::AttrsBuilder attrs;
  attrs.operand(ir::symbol("self"), 0);
  return {
      Node::make(ops::kind_of(*ops::find_row(name)), std::span(&self, 1), {&t, 1}, attrs.words()),
      0};
}

struct ExecutorThreadsTest : testing::Test {
  FakeClient* client = new FakeClient;
  Executor executor{[this]() -> client::ComputationClient& { return *client; }, "torch", "ours"};

  ExecutorThreadsTest() { client::set_client_for_testing(std::unique_ptr<FakeClient>(client)); }
  ~ExecutorThreadsTest() override { client::set_client_for_testing(nullptr); }

  Value data(ir::Type type) {
    std::vector<float> bytes(static_cast<size_t>(type.numel()), 1);
    auto d = client->transfer_to_device({bytes.data(), type, nullptr}, 0);
    return {Node::make_data(type, std::move(d)), 0};
  }
  SyncResult sync(Value root) {
    PlanRequest r;
    r.roots = {std::move(root)};
    r.uploaded = [](const Node&) { return false; };
    return executor.sync(executor.plan(std::move(r)));
  }
  template <class F>
  void in_threads(F f) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([f, i] { f(i); });
  }
};

TEST_F(ExecutorThreadsTest, OwnGraphsGetTheirOwnOutputs) {
  in_threads([this](int i) {
    for (int round = 0; round < kRounds; ++round) {
      ir::Type mine = vec(i + 1);
      auto r = sync(unary("aten::sin", unary("aten::cos", data(mine))));
      ASSERT_EQ(r.outputs.size(), 1u);
      EXPECT_EQ(r.outputs[0]->type(), mine);
    }
  });
  EXPECT_EQ(client->count("compile"), static_cast<size_t>(kThreads));
  EXPECT_EQ(client->count("execute"), static_cast<size_t>(kThreads * kRounds));
}

TEST_F(ExecutorThreadsTest, RaceForOneKeyCompilesOnce) {
  in_threads([this](int) { sync(unary("aten::sin", data(vec(3)))); });
  EXPECT_EQ(client->count("compile"), 1u);
  EXPECT_EQ(client->count("execute"), static_cast<size_t>(kThreads));
}

TEST_F(ExecutorThreadsTest, SharedBuffersAndNodesFeedAllPrograms) {
  Value shared = unary("aten::exp", data(vec(4)));
  in_threads([&](int i) {
    for (int round = 0; round < kRounds; ++round)
      sync(unary(i % 2 ? "aten::sin" : "aten::cos", shared));
  });
  EXPECT_EQ(client->count("compile"), 2u);
}

TEST_F(ExecutorThreadsTest, WaitingAndDescribingGoOnBesideSyncs) {
  in_threads([this](int i) {
    for (int round = 0; round < kRounds; ++round) {
      if (i == 0) executor.wait();
      if (i == 1) executor.last();
      if (i == 2) executor.cache().clear();
      sync(unary("aten::sin", data(vec(2))));
    }
  });
  executor.wait();
  EXPECT_FALSE(executor.busy());
}

TEST_F(ExecutorThreadsTest, DiskIsSharedByThreadsThatCompileAndLoad) {
  test::TempFolder dir;
  set_cache_place({dir.path, false, 1 << 20});
  in_threads([this](int i) {
    for (int round = 0; round < kRounds; ++round) {
      sync(unary("aten::sin", data(vec(1 + (i + round) % 3))));
      if (round % 5 == 0) executor.cache().clear();
    }
  });
  set_cache_place({});
  EXPECT_GT(client->count("deserialize"), 0u);
  EXPECT_LE(client->count("compile"), 3u);
}

}  // namespace
}  // namespace tp::exec
