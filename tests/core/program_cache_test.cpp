// The program cache: LRU, one compile a key however many threads race, and never a stranger's
// program.
#include "exec/program_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "probe/probe.h"

namespace tp::exec {
namespace {

using Signature = std::vector<uint64_t>;

Key key(const char* name) {
  Key k;
  k.total = hash_text(name);
  return k;
}

ProgramPtr program(const Signature& signature) {
  auto p = std::make_shared<Program>();
  p->signature = signature;
  return p;
}

// Finds or "compiles", counting compiles.
struct ProgramCacheTest : testing::Test {
  ProgramCache cache{2};
  std::atomic<int> compiles{0};
  ProgramPtr get(const char* name, Signature signature = {1}) {
    return cache.find_or_compile(key(name), signature, [&] {
      ++compiles;
      return program(signature);
    });
  }
};

TEST_F(ProgramCacheTest, CompilesOnceAndHitsAfterwards) {
  ProgramPtr a = get("a");
  EXPECT_EQ(get("a"), a);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(cache.find(key("a"), {1}), a);
  EXPECT_EQ(cache.find(key("b"), {1}), nullptr);
}

// A system of 16,000 mappings where each program alive takes 1,000.
std::atomic<size_t> alive{0};
Mappings thousand_each() { return {1000 * alive, 16000}; }

TEST(ProgramCacheRoom, DropsTheOldestWhereMappingsRunShort) {
  ProgramCache cache{100, &thousand_each};
  auto get = [&](const std::string& name) {
    return cache.find_or_compile(key(name.c_str()), {1}, [&] {
      ++alive;
      return ProgramPtr(new Program{.signature = {1}}, [](const Program* p) {
        --alive;
        delete p;
      });
    });
  };
  for (int i = 0; i < 50; ++i) {
    get(std::to_string(i));
    EXPECT_LE(alive, 9u);  // half, and the one that was just made
  }
  EXPECT_NE(cache.find(key("49"), {1}), nullptr);
  EXPECT_EQ(cache.find(key("0"), {1}), nullptr);
}

TEST(ProgramCacheRoom, KeepsProgramsWhereOthersTakeTheMappings) {
  ProgramCache cache{100, [] { return Mappings{15000, 16000}; }};
  for (const char* name : {"a", "b", "c"})
    cache.find_or_compile(key(name), {1}, [] { return program({1}); });
  EXPECT_GE(cache.size(), 1u);
  EXPECT_NE(cache.find(key("c"), {1}), nullptr);
}

TEST(ProgramCacheRoom, CountsThisProcessesMappings) {
  Mappings m = count_mappings();
  EXPECT_GT(m.used, 10u);
  EXPECT_GT(m.limit, m.used);
}

TEST_F(ProgramCacheTest, ForgetsTheLeastRecentlyUsed) {
  get("a");
  get("b");
  get("a");
  get("c");
  EXPECT_EQ(cache.size(), 2u);
  get("a");
  EXPECT_EQ(compiles, 3);
  get("b");
  EXPECT_EQ(compiles, 4);
}

TEST_F(ProgramCacheTest, ClearForgetsAll) {
  get("a");
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
  get("a");
  EXPECT_EQ(compiles, 2);
}

TEST_F(ProgramCacheTest, EvictedProgramStaysAliveForItsUsers) {
  ProgramPtr a = get("a");
  std::weak_ptr<const Program> watch = a;
  cache.clear();
  EXPECT_FALSE(watch.expired());
  a.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(ProgramCacheTest, EightThreadsThatMissCompileOnceAndAllGetTheProgram) {
  std::vector<ProgramPtr> got(8);
  {
    std::vector<std::jthread> threads;
    for (ProgramPtr& p : got)
      threads.emplace_back([&] {
        p = cache.find_or_compile(key("a"), {1}, [&] {
          ++compiles;
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          return program({1});
        });
      });
  }
  EXPECT_EQ(compiles, 1);
  for (const ProgramPtr& p : got) EXPECT_EQ(p, got[0]);
  EXPECT_NE(got[0], nullptr);
}

TEST_F(ProgramCacheTest, OtherKeysAreNotKeptWaiting) {
  std::atomic<bool> slow_runs{false}, fast_done{false};
  std::jthread slow([&] {
    cache.find_or_compile(key("slow"), {1}, [&] {
      slow_runs = true;
      for (int i = 0; i < 500 && !fast_done; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_TRUE(fast_done);
      return program({1});
    });
  });
  while (!slow_runs) std::this_thread::yield();
  EXPECT_NE(get("fast"), nullptr);
  fast_done = true;
}

TEST_F(ProgramCacheTest, FailedCompileIsToldAndTriedAgain) {
  auto broken = [&]() -> ProgramPtr {
    ++compiles;
    fail(Code::kRuntime, "compiler crashed");
  };
  EXPECT_THROW(cache.find_or_compile(key("a"), {1}, broken), Error);
  EXPECT_THROW(cache.find_or_compile(key("a"), {1}, broken), Error);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_NE(get("a"), nullptr);
  EXPECT_EQ(compiles, 3);
}

TEST_F(ProgramCacheTest, ThreadsThatWaitForAFailedCompileGetItsError) {
  std::atomic<int> failed{0}, asked{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        ++asked;
        try {
          cache.find_or_compile(key("a"), {1}, [&]() -> ProgramPtr {
            ++compiles;
            while (asked < 4) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            fail(Code::kRuntime, "compiler crashed");
          });
        } catch (const Error& e) {
          failed += e.message() == "compiler crashed";
        }
      });
  }
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(compiles, 1);
  EXPECT_NE(get("a"), nullptr);  // the next one tries again
}

// ---- threads that hear signals ---------------------------------------------------------------

struct Stop {};
thread_local bool g_hears = false;
std::atomic<bool> g_stop{false};

struct InterruptTest : ProgramCacheTest {
  InterruptTest() {
    g_stop = false;
    g_hears = true;
    set_interrupt_hooks([] { return g_hears; },
                        [] {
                          if (g_stop) throw Stop{};
                        });
  }
  ~InterruptTest() override {
    set_interrupt_hooks(nullptr, nullptr);
    g_hears = false;
  }
};

TEST_F(InterruptTest, CompileThatIsLeftAloneEndsAndServesTheNextWhoAsks) {
  std::atomic<bool> go{false};
  auto slow = [&]() -> ProgramPtr {
    ++compiles;
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return program({1});
  };
  g_stop = true;
  EXPECT_THROW(cache.find_or_compile(key("a"), {1}, slow), Stop);
  g_stop = false;
  EXPECT_TRUE(cache.compiling());
  go = true;
  EXPECT_NE(cache.find_or_compile(key("a"), {1}, slow), nullptr);
  EXPECT_EQ(compiles, 1);
  EXPECT_FALSE(cache.compiling());
}

TEST_F(InterruptTest, WaitingForAnotherThreadsCompileCanBeLeft) {
  std::atomic<bool> go{false}, runs{false};
  std::jthread other([&] {
    cache.find_or_compile(key("a"), {1}, [&]() -> ProgramPtr {
      runs = true;
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return program({1});
    });
  });
  while (!runs) std::this_thread::yield();
  g_stop = true;
  EXPECT_THROW(get("a"), Stop);
  go = true;
}

TEST_F(InterruptTest, CompileWithoutASignalGivesItsProgramOrItsError) {
  EXPECT_NE(get("a"), nullptr);
  EXPECT_THROW(
      cache.find_or_compile(key("b"), {1}, []() -> ProgramPtr { fail(Code::kRuntime, "crashed"); }),
      Error);
}

TEST_F(InterruptTest, CompileForWhichThereIsNoThreadRunsInTheCallersAndLands) {
  ProgramCache poor{
      2, &count_mappings, [](std::function<void()>) {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }};
  auto compile = [] { return program({1}); };
  EXPECT_NE(poor.find_or_compile(key("a"), {1}, compile), nullptr);
  EXPECT_FALSE(poor.compiling());
  EXPECT_NE(poor.find(key("a"), {1}), nullptr);
  auto crash = []() -> ProgramPtr { fail(Code::kRuntime, "crashed"); };
  EXPECT_THROW(poor.find_or_compile(key("b"), {1}, crash), Error);
  EXPECT_FALSE(poor.compiling());
}

TEST_F(ProgramCacheTest, CollisionNeverGivesSomebodyElsesProgram) {
  ProgramPtr one = get("a", {1}), other = get("a", {2});
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(one->signature, Signature{1});
  EXPECT_EQ(other->signature, Signature{2});
  EXPECT_EQ(get("a", {1}), one);
  EXPECT_EQ(get("a", {2}), other);
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(cache.find(key("a"), {2}), other);
  EXPECT_EQ(cache.find(key("a"), {3}), nullptr);
}

TEST_F(ProgramCacheTest, CollisionsAreCounted) {
  int64_t before = probe::counter("CompileKeyCollision").value();
  get("a", {1});
  get("a", {2});
  EXPECT_EQ(probe::counter("CompileKeyCollision").value(), before + 1);
}

TEST_F(ProgramCacheTest, HitsAndMissesAreCounted) {
  int64_t hits = probe::counter("CompileCacheHit").value();
  int64_t misses = probe::counter("CompileCacheMiss").value();
  get("a");
  get("a");
  get("a");
  EXPECT_EQ(probe::counter("CompileCacheHit").value(), hits + 2);
  EXPECT_EQ(probe::counter("CompileCacheMiss").value(), misses + 1);
}

TEST_F(ProgramCacheTest, AKeyIsBelievedOnceItsGraphWasCompared) {
  get("a");
  EXPECT_EQ(cache.find_known(key("a")), nullptr);  // compiled, never hit
  ASSERT_NE(cache.find(key("a"), {1}), nullptr);
  EXPECT_NE(cache.find_known(key("a")), nullptr);
  EXPECT_EQ(cache.find_known(key("b")), nullptr);
}

TEST_F(ProgramCacheTest, AKeyThatCollidedIsNeverBelieved) {
  get("a", {1});
  ASSERT_NE(cache.find(key("a"), {1}), nullptr);
  EXPECT_EQ(cache.find(key("a"), {2}), nullptr);
  EXPECT_EQ(cache.find_known(key("a")), nullptr);
  EXPECT_NE(cache.find(key("a"), {1}), nullptr);
}

}  // namespace
}  // namespace tp::exec
