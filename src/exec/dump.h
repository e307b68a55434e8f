// Graphs and modules written to files, by API or by environment variables. Trouble with a file is
// said once and stops nothing. Thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace tp::exec {

// Whether each sync's graph goes to XLA_SAVE_TENSORS_FILE, and whether it wants the module's text.
bool saves_tensors();
bool saves_modules();
void save_tensors(const ir::Graph& g, std::string_view module, std::string_view where);

// The folder that gets each compiled graph (torch_pjrt.graph.dump_to, TORCH_PJRT_DUMP_TO); empty:
// none. Files: 0003-train.py_41-120ops-3fa2b1c9.{txt,dot,mlir}
void set_dump_directory(std::string directory);
struct Dumped {
  std::string_view text, dot, module, where, key;
  size_t nodes;
};
void dump_compiled(const Dumped& d);

}  // namespace tp::exec
