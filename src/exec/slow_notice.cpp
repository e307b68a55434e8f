#include "exec/slow_notice.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/flags.h"
#include "probe/probe.h"

namespace tp::exec {

struct SlowNotice::State {
  std::mutex mu;
  std::condition_variable ended;
  bool done = false;
};

// Nobody waits for this thread: what listens there may wait for this very compile.
SlowNotice::SlowNotice(std::string text) : state_(std::make_shared<State>()) {
  auto limit = std::chrono::milliseconds(flag_int(Flag::kSlowCompile));
  std::thread([state = state_, limit, text = std::move(text)] {
    {
      std::unique_lock lock(state->mu);
      if (state->ended.wait_for(lock, limit, [&] { return state->done; })) return;
    }
    probe::say(0, text);
  }).detach();
}

SlowNotice::~SlowNotice() {
  std::lock_guard lock(state_->mu);
  state_->done = true;
  state_->ended.notify_all();
}

}  // namespace tp::exec
