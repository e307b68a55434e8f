// Event: something asynchronous that a plugin will finish. Owns the PJRT_Event; move-only. Any
// thread.
#pragma once
#include <functional>
#include <optional>
#include <utility>

#include "pjrt/api.h"

namespace tp::pjrt {

class Event {
 public:
  Event() = default;
  Event(const PJRT_Api* api, PJRT_Event* event) : api_(api), event_(event) {}
  Event(Event&& o) noexcept : api_(o.api_), event_(std::exchange(o.event_, nullptr)) {}
  Event& operator=(Event&& o) noexcept {
    std::swap(api_, o.api_);
    std::swap(event_, o.event_);
    return *this;
  }
  ~Event() {
    if (event_) destroy<&PJRT_Api::PJRT_Event_Destroy>(api_, {.event = event_});
  }
  explicit operator bool() const { return event_ != nullptr; }
  PJRT_Event* raw() const { return event_; }

  bool ready() const;  // never blocks
  // Throws the plugin's words where the work failed. Ctrl-C ends it (base/interrupt.h); the work
  // goes on.
  void await() const;
  // The failure of a ready event; nothing where it went well.
  std::optional<Failure> error() const;
  // Calls `done` once, when ready: at once in this thread, or later in a thread of the plugin.
  // `done` must not throw. The event may be destroyed before.
  void on_ready(std::function<void(std::optional<Failure>)> done) const;

 private:
  void wait_for_callback() const;
  const PJRT_Api* api_ = nullptr;
  PJRT_Event* event_ = nullptr;
};

}  // namespace tp::pjrt
