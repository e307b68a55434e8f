#include "pjrt/event.h"

#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/interrupt.h"

namespace tp::pjrt {
namespace {

struct Waiter {
  const PJRT_Api* api;
  std::function<void(std::optional<Failure>)> done;
};

void fire(PJRT_Error* error, void* user) {
  std::unique_ptr<Waiter> waiter(static_cast<Waiter*>(user));
  waiter->done(take(waiter->api, error));
}

}  // namespace

bool Event::ready() const {
  return call<&PJRT_Api::PJRT_Event_IsReady>(api_, {.event = event_}).is_ready;
}

void Event::await() const {
  if (hears_interrupts() && !ready()) wait_for_callback();
  call<&PJRT_Api::PJRT_Event_Await>(api_, {.event = event_});
}

// PJRT's own wait cannot be left; one on a callback can.
void Event::wait_for_callback() const {
  struct Gate {
    std::mutex mu;
    std::condition_variable opened;
    bool open = false;
  };
  auto gate = std::make_shared<Gate>();
  on_ready([gate](std::optional<Failure>) {
    std::lock_guard lock(gate->mu);
    gate->open = true;
    gate->opened.notify_all();
  });
  std::unique_lock lock(gate->mu);
  wait_interruptibly(lock, gate->opened, [&] { return gate->open; });
}

std::optional<Failure> Event::error() const {
  PJRT_Event_Error_Args args{};
  args.event = event_;
  return try_call<&PJRT_Api::PJRT_Event_Error>(api_, args);
}

void Event::on_ready(std::function<void(std::optional<Failure>)> done) const {
  auto waiter = std::make_unique<Waiter>(Waiter{api_, std::move(done)});
  PJRT_Event_OnReady_Args args{};
  args.event = event_;
  args.callback = fire;
  args.user_arg = waiter.get();
  if (!try_call<&PJRT_Api::PJRT_Event_OnReady>(api_, args)) {
    waiter.release();  // fire() owns it
    return;
  }
  // A plugin without callbacks: wait here, so that `done` still runs exactly once.
  PJRT_Event_Await_Args await{};
  await.event = event_;
  waiter->done(try_call<&PJRT_Api::PJRT_Event_Await>(api_, await));
}

}  // namespace tp::pjrt
