// The user's line at the moment an op is recorded. A walk over the interpreter's own frames: no
// Python object is made, no reference count moves, the GIL is not needed (a thread's frames stand
// still while it is in our kernel). Only a line seen for the first time takes the GIL, to name it.
//
// Frames of torch and torch_pjrt are skipped. On autograd's threads, which have no frames, the line
// is that of the forward op whose sequence number the running backward node carries. Any thread.
//
// A line is the user's own unless its file is of an installed package or of Python's library. For a
// line that is not, the user's own innermost line is looked for when the line is first seen
// (ir/callers.h), and at each message.
#pragma once
#include <string>
#include <vector>

#include "ir/callers.h"
#include "ir/location.h"

namespace tp::torch_room {

// For nodes: 0 while frames are off (TORCH_PJRT_FRAMES=0).
ir::LocationId here();
// For messages: also while frames are off.
ir::LocationId user_line();
ir::Site user_site();
// Files of torch between the kernel and that line, innermost first. Slow, and takes the GIL.
std::vector<std::string> torch_files();
bool frames_on();
void set_frames_on(bool on);
// Whether the interpreter's own frames are read: their layout is known and was found at load to be
// as expected. Else, and after set_frames_direct(false), Python's public API is asked: slower, and
// it takes the GIL. With the GIL.
bool frames_direct();
void set_frames_direct(bool on);

// Files below `directory` (with a slash at its end) are torch's: skipped.
void add_library_directory(std::string directory);
// Files below it are others'; so are all below a folder site-packages or dist-packages.
void add_others_directory(std::string directory);
// The calling thread's scope: names joined by '/'; empty leaves all. Gives the scope before.
std::string exchange_scope(std::string scope);

}  // namespace tp::torch_room
