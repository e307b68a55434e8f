// The user's line at the moment an op is recorded. A walk over the interpreter's own frames: no
// Python object is made, no reference count moves, the GIL is not needed (a thread's frames stand
// still while it is in our kernel). Only a line seen for the first time takes the GIL, to name it.
//
// Frames of torch and torch_pjrt are skipped. On autograd's threads, which have no frames, the line
// is that of the forward op whose sequence number the running backward node carries. Any thread.
#pragma once
#include <string>

#include "ir/location.h"

namespace tp::torch_room {

// For nodes: 0 while frames are off (TORCH_PJRT_FRAMES=0).
ir::LocationId here();
// For messages: also while frames are off.
ir::LocationId user_line();
bool frames_on();
void set_frames_on(bool on);

// Files below `directory` (with a slash at its end) are not the user's.
void add_library_directory(std::string directory);
// The calling thread's scope: names joined by '/'; empty leaves all. Gives the scope before.
std::string exchange_scope(std::string scope);

}  // namespace tp::torch_room
