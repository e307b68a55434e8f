// Runs: what repeats in a sequence of words.
#include "exec/runs.h"

#include <gtest/gtest.h>

namespace tp::exec {
namespace {

using Words = std::vector<uint64_t>;

void add(Words& to, const Words& round, int times) {
  for (int i = 0; i < times; ++i) to.insert(to.end(), round.begin(), round.end());
}
// All different.
void add_noise(Words& to, int n) {
  static uint64_t next = 1'000'000;
  for (int i = 0; i < n; ++i) to.push_back(next++);
}

TEST(Runs, NothingRepeats) {
  Words w;
  add_noise(w, 1000);
  EXPECT_TRUE(find_runs(w).empty());
  EXPECT_TRUE(find_runs({}).empty());
}

TEST(Runs, ALoopIsFoundWithWhatIsBeforeAndBehindIt) {
  Words w;
  add_noise(w, 37);
  add(w, {1, 2, 3, 2, 5}, 100);
  add_noise(w, 11);
  auto runs = find_runs(w);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].start, 37u);
  EXPECT_EQ(runs[0].period, 5u);
  EXPECT_EQ(runs[0].count(), 100u);
}

TEST(Runs, TheLoopOfStepsIsFoundNotTheLoopInside) {
  Words step;
  add(step, {1, 2, 3}, 12);
  add(step, {7, 8, 9, 10}, 1);
  Words w;
  add(w, step, 20);
  auto runs = find_runs(w);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].period, step.size());
  EXPECT_EQ(runs[0].count(), 20u);
}

TEST(Runs, TwoLoopsBehindEachOtherAreTwoRuns) {
  Words w;
  add(w, {1, 2, 3}, 100);
  add(w, {4, 5, 6, 7}, 120);
  auto runs = find_runs(w);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].period, 3u);
  EXPECT_EQ(runs[0].end, 300u);
  EXPECT_EQ(runs[1].period, 4u);
  EXPECT_EQ(runs[1].start, 300u);
}

TEST(Runs, AFewRoundsAreNoLoop) {
  Words w;
  add(w, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, kLeastRounds - 1);
  EXPECT_TRUE(find_runs(w).empty());
}

}  // namespace
}  // namespace tp::exec
