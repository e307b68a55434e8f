// What the explainer keeps is bounded, however many programs and lines a process sees.
#include "exec/explain.h"

#include <gtest/gtest.h>

#include <string>

namespace tp::exec {
namespace {

Hash128 key(size_t i) { return hash_text("program " + std::to_string(i)); }

TEST(Explainer, CountsRunsOfTheNewestPrograms) {
  Explainer e;
  constexpr size_t kMany = 3 * Explainer::kKeys;
  RunsPtr first = e.runs_of(key(0));
  for (size_t i = 0; i < kMany; ++i) e.runs_of(key(i))->fetch_add(1);
  auto runs = e.runs();
  EXPECT_EQ(runs.size(), Explainer::kKeys);
  EXPECT_EQ(runs.at(key(kMany - 1)), 1);
  EXPECT_FALSE(runs.contains(key(0)));
  first->fetch_add(1);  // who still has the count may use it
  EXPECT_EQ(*first, 2);
}

TEST(Explainer, ProgramThatKeepsRunningKeepsItsCount) {
  Explainer e;
  for (size_t i = 1; i < 3 * Explainer::kKeys; ++i) {
    if (i % 1000 == 0) e.runs_of(key(0))->fetch_add(1);
    e.runs_of(key(i))->fetch_add(1);
  }
  EXPECT_EQ(e.runs().at(key(0)), static_cast<int64_t>(3 * Explainer::kKeys / 1000));
}

}  // namespace
}  // namespace tp::exec
