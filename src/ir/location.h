// Where a node was recorded: the user's line, and the scope around it. Locations are for people:
// they enter messages, dumps and module text (`loc(...)`), never a hash, a key or a comparison.
//
// A LocationId is small enough to stand on every node. Ids are interned for the process and never
// reused; 0 is "unknown". The top bit marks an op recorded by the backward of that line.
// Thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tp::ir {

using LocationId = uint32_t;
inline constexpr LocationId kBackward = 1u << 31;

struct Location {
  std::string file;  // as Python's code object names it
  int line = 0;
  std::string function;  // empty at module level
  std::string scope;     // names joined by '/', outermost first
};

LocationId intern(const Location& l);
// The reference stays valid for the process.
const Location& location_of(LocationId id);
inline bool is_backward(LocationId id) { return (id & kBackward) != 0; }

// "train.py:41", + " (backward)" where it is; a full path where files share a name; empty for 0.
std::string line_text(LocationId id);
// "train.py:41 in step"
std::string line_and_function(LocationId id);

}  // namespace tp::ir
