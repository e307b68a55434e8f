// Events and streams of device xla (torch.Event, torch.Stream, torch.xla). A device has one queue,
// in program order: every stream is that one.
//   record   launches what is recorded so far (a sync), and marks what the device computes by then
//   query    is all of that computed?        synchronize   waits for it
//   elapsed  between the moments at which the two marks were computed
// Any thread; marks have a lock of their own, and the plugin's threads set their time.
#pragma once
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "torch/autograd_threads.h"

namespace tp::torch_room {

// A device guard's part for them.
struct EventGuard : c10::impl::DeviceGuardImplInterface {
  c10::Stream getStream(c10::Device d) const override {
    note_device_node();  // each autograd node asks for its device's stream when it is made
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return getStream(d); }
  c10::Stream getNewStream(c10::Device d, int) const override;
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override;
  c10::Stream exchangeStream(c10::Stream s) const override { return getStream(s.device()); }
  bool queryStream(const c10::Stream& stream) const override;
  void synchronizeStream(const c10::Stream& stream) const override;

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override;
  void block(void*, const c10::Stream&) const override {}  // the queue is in order
  bool queryEvent(void* event) const override;
  void synchronizeEvent(void* event) const override;
  double elapsedTime(void* from, void* to, const c10::DeviceIndex device) const override;
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override;
};

void register_events(torch::Library& m);

}  // namespace tp::torch_room
