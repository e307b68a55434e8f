// Switches of one thread: eager mode, no cuts. They are kept where PyTorch keeps its own (grad
// mode): autograd's threads take them over from the thread that called backward, for as long as
// they work for it. The calling thread's alone: no locks.
#pragma once
#include <cstdint>

namespace tp::torch_room {

enum class ThreadMode : uint8_t { kEager, kNoCuts };
inline constexpr int kModeUnset = -1, kModeOff = 0, kModeOn = 1;

int thread_mode(ThreadMode m);
// Gives what it was.
int exchange_thread_mode(ThreadMode m, int to);

}  // namespace tp::torch_room
