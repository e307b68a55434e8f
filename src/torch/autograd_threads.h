// PyTorch's autograd runs the backward nodes of each device in a thread of its own. Such a thread
// may still hold the last reference to a finished backward pass, with Python objects in it, when
// backward() has long returned; if Python has begun to shut down by then, asking for the GIL ends
// the process with "terminate called without an active exception" (pytorch issue 190489).
#pragma once
#include <cstdint>
#include <memory>

namespace tp::torch_room {

// PyTorch's engine starts the threads of all devices at its first backward, and from then on no
// forked child may run one. So it hears of no devices before there is a node for one: a program on
// the CPU never makes one, and forks as it does without us. Threads that it did not start then are
// started when the first node is made.
bool autograd_may_start_threads();  // asked where it counts devices
void note_device_node();            // any thread; one load after the first call

// PyTorch gave the calling thread this device. Any thread; cheap after a thread's first call.
void note_device_thread(int64_t index) noexcept;

// Starts to wait until autograd's device threads have let go of what they finished, without the
// GIL. The caller has to give the GIL up, and may stop waiting at any time.
class AutogradRest {
 public:
  AutogradRest();
  bool reached() const;  // any thread

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread that waits; null where none is needed
};

}  // namespace tp::torch_room
