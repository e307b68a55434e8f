// A forked child finds no lock of ours held, whatever other threads do at that moment.
#include "base/forks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "ir/attrs.h"
#include "ir/location.h"
#include "ir/type.h"
#include "probe/events.h"
#include "probe/probe.h"

namespace tp {
namespace {

// Takes every table's lock.
void touch_tables(int64_t i) {
  ir::make_type(ir::DType::kF32, std::vector<int64_t>{i % 64, 2});
  ir::symbol("name" + std::to_string(i % 64));
  ir::intern({"file.py", static_cast<int>(i % 64), "f", ""});
  probe::counter("Forks" + std::to_string(i % 64)).add();
  probe::event(probe::Phase::kRecord, 0, 1);
}

// Whether a child that touches them all ends in time.
bool child_ends() {
  pid_t pid = fork();
  if (pid == 0) {
    alarm(10);
    touch_tables(7);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Forks, ChildFindsTheTablesUnlockedThatOtherThreadsUse) {
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&stop] {
      for (int64_t i = 0; !stop; ++i) touch_tables(i);
    });
  int ended = 0;
  constexpr int kForks = 200;
  while (ended < kForks && child_ends()) ++ended;
  stop = true;
  EXPECT_EQ(ended, kForks);
}

TEST(Forks, LocksAreTakenInTheirOrder) {
  static std::string order;
  static std::mutex state, graph, table;
  auto watch = [](ForkOrder rank, std::mutex& mu, void (*acquire)(void*)) {
    hold_over_forks(rank, &mu, acquire, [](void* m) { static_cast<std::mutex*>(m)->unlock(); });
  };
  watch(ForkOrder::kTable, table,
        [](void* m) { order += 't', static_cast<std::mutex*>(m)->lock(); });
  watch(ForkOrder::kGraph, graph,
        [](void* m) { order += 'g', static_cast<std::mutex*>(m)->lock(); });
  watch(ForkOrder::kState, state,
        [](void* m) { order += 's', static_cast<std::mutex*>(m)->lock(); });
  order.clear();
  EXPECT_TRUE(child_ends());
  EXPECT_EQ(order, "gst");
  EXPECT_TRUE(table.try_lock() && graph.try_lock() && state.try_lock());
  table.unlock(), graph.unlock(), state.unlock();
}

}  // namespace
}  // namespace tp
