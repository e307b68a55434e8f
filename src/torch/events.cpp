#include "torch/events.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "probe/events.h"
#include "torch/kernels.h"
#include "torch/runtime.h"

namespace tp::torch_room {
namespace {

// What a device had to compute at a moment, and when the last of it was there.
class Mark {
 public:
  // Of what the live tensors of the device wait for.
  static std::shared_ptr<Mark> of_device(int device) {
    std::vector<client::DataPtr> open;
    open.reserve(room_for_aliases());
    for_each_alias([&](Alias& a) {
      bool ours = a.buffer() && device_index(a.device) == device;
      if (ours && open.size() < open.capacity()) open.push_back(a.buffer());
    });
    auto mark = std::make_shared<Mark>();
    std::erase_if(open, [](const client::DataPtr& d) { return d->ready(); });
    for (const client::DataPtr& d : open) mark->parts_.push_back(d->completion());
    mark->left_ = open.size() + 1;
    for (const client::DataPtr& d : open) d->on_ready([mark] { mark->one_ready(); });
    mark->one_ready();
    return mark;
  }
  bool ready() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& p) { return p->ready(); });
  }
  // Failures stay with the tensors.
  void await() const {
    for (const auto& part : parts_) try {
        part->await();
      } catch (const Error&) {
      }
  }
  int64_t time() const {
    await();
    std::lock_guard lock(mu_);
    if (!time_) time_ = probe::now_ns();  // its thread is about to say so
    return time_;
  }

 private:
  void one_ready() {
    std::lock_guard lock(mu_);
    if (--left_ == 0 && !time_) time_ = probe::now_ns();
  }
  std::vector<std::shared_ptr<const client::Completion>> parts_;  // set before it is shared
  mutable std::mutex mu_;
  size_t left_ = 0;
  mutable int64_t time_ = 0;
};

using Event = std::shared_ptr<Mark>;
const Mark& mark_of(void* event) { return **static_cast<Event*>(event); }

}  // namespace

c10::Stream EventGuard::getNewStream(c10::Device d, int) const {
  return getStream(
      d.has_index() ? d : c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(current_device())));
}
c10::Stream EventGuard::getStreamFromGlobalPool(c10::Device d, bool) const {
  return getNewStream(d, 0);
}

bool EventGuard::queryStream(const c10::Stream& stream) const {
  bool pending = false;
  int device = device_index(stream.device());
  for_each_alias([&](Alias& a) {
    if (device_index(a.device) == device) pending |= a.pending() && !a.raised();
  });
  return !pending && Mark::of_device(device)->ready();
}
void EventGuard::synchronizeStream(const c10::Stream&) const {
  sync_all();
  wait_all();
}

void EventGuard::record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
                        const c10::EventFlag) const {
  sync_all();
  if (!*event) *event = new Event;
  *static_cast<Event*>(*event) = Mark::of_device(device_index(stream.device()));
}
bool EventGuard::queryEvent(void* event) const { return !event || mark_of(event).ready(); }
void EventGuard::synchronizeEvent(void* event) const {
  if (!event) return;
  GilRelease no_gil;
  mark_of(event).await();
}
double EventGuard::elapsedTime(void* from, void* to, const c10::DeviceIndex) const {
  TORCH_CHECK(from && to, "Both events must be recorded before calculating elapsed time.");
  GilRelease no_gil;
  return static_cast<double>(mark_of(to).time() - mark_of(from).time()) * 1e-6;
}
void register_events(torch::Library& m) {
  // Buffers live for as long as a program may read them, on whatever stream.
  m.impl("record_stream", [](at::Tensor&, c10::Stream) {});
}

void EventGuard::destroyEvent(void* event, const c10::DeviceIndex) const noexcept {
  delete static_cast<Event*>(event);
}

}  // namespace tp::torch_room
