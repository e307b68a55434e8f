// SmallVec: inline up to N, on the heap beyond, the same content either way.
#include "base/small_vector.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tp {
namespace {

using Vec = SmallVec<int64_t, 3>;

Vec counted(int64_t n) {
  Vec v;
  for (int64_t i = 0; i < n; ++i) v.push_back(i);
  return v;
}

std::vector<int64_t> list(const Vec& v) { return {v.begin(), v.end()}; }

struct SmallVecTest : testing::TestWithParam<int64_t> {};

TEST_P(SmallVecTest, HoldsWhatWasPushed) {
  Vec v = counted(GetParam());
  ASSERT_EQ(v.size(), static_cast<size_t>(GetParam()));
  for (int64_t i = 0; i < GetParam(); ++i) EXPECT_EQ(v[i], i);
}

TEST_P(SmallVecTest, CopyIsApart) {
  Vec v = counted(GetParam());
  Vec copy = v;
  EXPECT_EQ(copy, v);
  copy.push_back(9);
  EXPECT_EQ(v, counted(GetParam()));
}

TEST_P(SmallVecTest, MoveTakesAllAndLeavesEmpty) {
  Vec v = counted(GetParam());
  Vec moved = std::move(v);
  EXPECT_EQ(list(moved), list(counted(GetParam())));
  EXPECT_TRUE(v.empty());  // NOLINT: moved-from is promised to be empty
  v.push_back(7);
  EXPECT_EQ(list(v), (std::vector<int64_t>{7}));
}

TEST_P(SmallVecTest, AssignmentsReplaceContent) {
  Vec a = counted(GetParam()), b = counted(5), c = counted(5);
  b = a;
  EXPECT_EQ(b, a);
  c = std::move(a);
  EXPECT_EQ(c, b);
  Vec& self = b;
  b = self;
  EXPECT_EQ(b, c);
}

TEST_P(SmallVecTest, AppendAddsASpan) {
  Vec v = counted(GetParam());
  v.append(counted(4));
  EXPECT_EQ(v.size(), static_cast<size_t>(GetParam()) + 4);
  EXPECT_EQ(v.back(), 3);
  v.append({});
  EXPECT_EQ(v.size(), static_cast<size_t>(GetParam()) + 4);
}

INSTANTIATE_TEST_SUITE_P(InlineAndHeap, SmallVecTest, testing::Values(0, 1, 3, 4, 20));

TEST(SmallVec, PushOfOwnElementSurvivesGrowth) {
  Vec v = counted(3);
  v.push_back(v[2]);
  EXPECT_EQ(v.back(), 2);
}

TEST(SmallVec, ResizeFillsAndShrinks) {
  Vec v;
  v.resize(5, -1);
  EXPECT_EQ(list(v), std::vector<int64_t>(5, -1));
  v.resize(1);
  EXPECT_EQ(v.size(), 1u);
  v.pop_back();
  EXPECT_TRUE(v.empty());
}

TEST(SmallVec, EqualityLooksAtContentOnly) {
  Vec wide = counted(20);
  wide.resize(2);
  EXPECT_EQ(wide, counted(2));
  EXPECT_FALSE(wide == counted(3));
}

}  // namespace
}  // namespace tp
