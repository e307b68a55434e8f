// Does a plugin answer as the C API says? Two tables of probes for authors of plugins
// (`python -m torch_pjrt conform`): one row for every call that src/pjrt makes, and one for each
// way in which this library leans on several of them together. A probe that is asked may crash or
// hang with the plugin, so callers ask from a process that they can lose. One thread, but for the
// rows that are about threads.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt/api.h"
#include "pjrt/compile_options.h"
#include "pjrt/named_value.h"

namespace tp::pjrt::conform {

// How a plugin is started, and devices that it compiles for though they are not there.
struct Setting {
  std::string library;
  std::vector<NamedOption> options, compile_options;  // of its client, of each compile
  std::string topology;                               // empty: none is known
  std::vector<NamedOption> topology_options, topology_compile_options;
};

class Rig;  // conform_rig.h

struct Row {
  std::string_view name;  // "PJRT_Client_Create"
  bool required;          // nothing works without it
  std::string_view missed;
  bool (*there)(const PJRT_Api*);  // null: a row that is about no entry of the table
  // Gives what is worth telling, perhaps nothing. Throws where the answer is not what it should be.
  std::string (*probe)(Rig&);
};

std::span<const Row> calls();
std::span<const Row> behaviours();

enum class Verdict { kWorks, kMissing, kWrong, kNotTried };
struct Answer {
  Verdict verdict;
  std::string words;
};

// Never throws; kWrong where the plugin cannot be loaded. `name` is a row's.
Answer ask(const Setting& setting, std::string_view name);

}  // namespace tp::pjrt::conform
