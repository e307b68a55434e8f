#include "pjrt/event.h"

#include <memory>

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

void Event::await() const { call<&PJRT_Api::PJRT_Event_Await>(api_, {.event = event_}); }

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
