// Who is to blame: what an error of a whole program adds to the plugin's words. A program is named
// by its key's prefix, the ops that it computes and where the user recorded and synced them.
// Built only once something has failed. Any thread.
#pragma once
#include <span>
#include <string>

#include "base/error.h"
#include "ir/graph.h"

namespace tp::exec {

// What is kept of a program for the case that it fails. `where`: the user's line that synced it.
struct Blame {
  Hash128 key;
  std::string where;
};

// "program 1a2b3c4d: aten::mul.Tensor f32[4,8] (model.py:12 in forward) and 3 more, synced at ..."
std::string blame_text(const Blame& b, std::span<const ir::Value> roots);
// The same error with one more line. A host op's error stays as it is: it is that op's alone.
Error with_line(const Error& e, const std::string& line);

}  // namespace tp::exec
