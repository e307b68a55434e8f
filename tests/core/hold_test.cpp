// Messages that wait until no lock is held: what a listener may do, it may do here.
#include "probe/hold.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "probe/probe.h"

namespace tp::probe {
namespace {

std::vector<std::string>& heard() {
  static std::vector<std::string> h;
  return h;
}
std::mutex g_lock;

void hear(int, std::string_view text) {
  std::lock_guard lock(g_lock);  // a listener that needs what the speaker may hold
  heard().emplace_back(text);
}
void hear_and_speak(int, std::string_view text) {
  heard().emplace_back(text);
  say(0, "of the listener");
}

struct HoldTest : ::testing::Test {
  HoldTest() {
    heard().clear();
    set_sink(&hear);
  }
  ~HoldTest() override { set_sink(nullptr); }
};

TEST_F(HoldTest, WhatIsSaidInsideIsToldBehindTheOutermostOne) {
  {
    Hold outer;
    std::lock_guard lock(g_lock);
    {
      Hold inner;
      say(0, "first");
    }
    say(0, "second");
    EXPECT_TRUE(heard().empty());
  }
  EXPECT_EQ(heard(), (std::vector<std::string>{"first", "second"}));
  say(0, "third");
  EXPECT_EQ(heard().back(), "third");
}

TEST_F(HoldTest, AThreadThatIsWaitedForLeavesItsMessagesToTheOneWhoWaits) {
  {
    Hold hold;
    std::lock_guard lock(g_lock);
    std::thread([] {
      Hold left(Hold::End::kLeave);
      say(0, "of the compile");
    }).join();
  }
  EXPECT_EQ(heard(), std::vector<std::string>{"of the compile"});
}

TEST_F(HoldTest, WhatNobodyToldComesBeforeWhatIsSaidNext) {
  std::thread([] {
    Hold left(Hold::End::kLeave);
    say(0, "earlier");
  }).join();
  EXPECT_TRUE(heard().empty());
  say(0, "later");
  EXPECT_EQ(heard(), (std::vector<std::string>{"earlier", "later"}));
}

TEST_F(HoldTest, AListenersOwnMessagesAreNotToldToIt) {
  set_sink(&hear_and_speak);
  testing::internal::CaptureStderr();
  say(0, "one");
  {
    Hold hold;
    say(0, "two");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "torch_pjrt: of the listener\ntorch_pjrt: of the listener\n");
  EXPECT_EQ(heard(), (std::vector<std::string>{"one", "two"}));
}

}  // namespace
}  // namespace tp::probe
