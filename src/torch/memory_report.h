// What holds the device's memory: a line for out-of-memory errors. Any thread.
#pragma once
#include <string>

namespace tp::torch_room {

// "live on the device: 12 tensors, 3.1 MB; the largest: f32[512,512] 1.0 MB made at train.py:8,
// ...; donated to programs so far: 8 buffers"
std::string memory_report();

}  // namespace tp::torch_room
