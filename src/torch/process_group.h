// The c10d backend "xla": a process group whose collectives on tensors of device xla are recorded
// (collective.h). CPU tensors go to the engine, a gloo group, as they are. Any thread.
#pragma once
#include "torch/collective.h"

namespace tp::torch_room {

// Made by torch_pjrt/distributed.py when torch.distributed asks for backend "xla".
c10::intrusive_ptr<c10d::Backend> make_process_group(CollectiveGroup group);

// Tells the plugin that is not yet started which processes it belongs to, and how they talk. Throws
// RuntimeError where it is started and had to know.
void set_processes(int rank, int size, c10::intrusive_ptr<c10d::Store> store);

}  // namespace tp::torch_room
