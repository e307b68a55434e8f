// LruMap: bounded, forgets what was used longest ago.
#include "base/lru.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tp {
namespace {

TEST(Lru, ForgetsTheLeastRecentlyUsed) {
  LruMap<int, std::string> m(2);
  m.put(1, "a");
  m.put(2, "b");
  ASSERT_NE(m.get(1), nullptr);  // 2 is now the older one
  m.put(3, "c");
  EXPECT_EQ(m.get(2), nullptr);
  EXPECT_EQ(*m.get(1), "a");
  EXPECT_EQ(*m.get(3), "c");
  EXPECT_EQ(m.evictions(), 1u);
}

TEST(Lru, PutReplacesWithoutEvicting) {
  LruMap<int, std::string> m(2);
  m.put(1, "a");
  m.put(2, "b");
  EXPECT_EQ(*m.put(1, "A"), "A");
  EXPECT_EQ(m.size(), 2u);
  EXPECT_EQ(m.evictions(), 0u);
  m.put(3, "c");
  EXPECT_EQ(m.get(2), nullptr);
}

TEST(Lru, CapacityOfZeroKeepsOne) {
  LruMap<int, int> m(0);
  m.put(1, 1);
  m.put(2, 2);
  EXPECT_EQ(m.size(), 1u);
  EXPECT_NE(m.get(2), nullptr);
}

TEST(Lru, IteratesFromTheMostRecentlyUsed) {
  LruMap<int, int> m(3);
  for (int i : {1, 2, 3}) m.put(i, i);
  m.get(1);
  std::string order;
  for (auto& [k, v] : m) order += std::to_string(k);
  EXPECT_EQ(order, "132");
}

TEST(Lru, EraseAndClearLetValuesGo) {
  LruMap<int, std::shared_ptr<int>> m(3);
  std::weak_ptr<int> one = *m.put(1, std::make_shared<int>(1));
  std::weak_ptr<int> two = *m.put(2, std::make_shared<int>(2));
  m.erase(1);
  m.erase(7);
  EXPECT_TRUE(one.expired());
  m.clear();
  EXPECT_TRUE(two.expired());
  EXPECT_EQ(m.size(), 0u);
}

TEST(Lru, EvictedValueIsDestroyed) {
  LruMap<int, std::shared_ptr<int>> m(1);
  std::weak_ptr<int> one = *m.put(1, std::make_shared<int>(1));
  m.put(2, nullptr);
  EXPECT_TRUE(one.expired());
}

}  // namespace
}  // namespace tp
