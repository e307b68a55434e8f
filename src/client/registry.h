// Which client PJRT_DEVICE names. A table of named entries that starts with one placeholder; CPU
// needs nothing set. Python (torch_pjrt/plugins.py) finds plugins (entry points, wheels) and
// registers them here before first use. Thread-safe; the client is made once, at its first use, and
// lives for the process.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/computation_client.h"
#include "pjrt/key_value_store.h"

namespace tp::client {

using OptionValue = std::variant<std::string, int64_t, bool, double>;

// The three questions a plugin answers: where its library is, its create options, whether it wants
// the distributed key-value store.
struct PluginSpec {
  std::string name;  // "CPU"
  std::string library_path;
  std::vector<std::pair<std::string, OptionValue>> options;  // create options
  bool wants_key_value_store = false;
  // Debug options put into every compile (env_option_overrides): {"xla_cpu_enable_fast_min_max",
  // false}.
  std::vector<std::pair<std::string, OptionValue>> compile_options;
  std::string how_to_install;  // shown where the library or hardware is missing
  // Environment variables that the plugin reads ("NEURON_*": all that begin so); those of every
  // known plugin where none are named.
  std::vector<std::string> variables = {};
  // What else programs depend on, in words: {"driver", "570.86.15"}.
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::string problem = {};  // why there is no library though a package is installed
  // What its compiler does wrong (kMistakeNames), and nothing else. Absent: nobody has tried it,
  // and nothing is taken for right that XLA has done wrong.
  std::optional<std::vector<std::string>> mistakes = {};
  // Facts by name (kFactNames), "flat parameters" (a number), "missing types" ("f64 c128"): over
  // those of the platform (client/platforms.h).
  std::vector<std::pair<std::string, OptionValue>> capabilities = {};
  // The platform that programs are recorded for, where it is not the plugin's own.
  std::string recorded_for = {};
  int device_count = 0;           // that it will have, where that is known before it starts
  std::string more_devices = {};  // how to have N: "set X=N"
};

// The processes that this one belongs to. Options `node_id` and `num_nodes` and the store are for
// plugins that want it.
struct Processes {
  int rank = 0, size = 1;
  std::shared_ptr<pjrt::KeyValueStore> store;
};
// Before the client is made. Throws kRuntime after that where its plugin wanted the store.
void set_processes(Processes p);

void register_plugin(PluginSpec spec);  // replaces an entry of the same name while no client exists
// Called, with no lock held, before the client is made by a name that is not registered: a last
// chance to register it (src/bind looks through installed packages).
void set_discovery(void (*look)());
std::vector<std::string> registered();  // names, the placeholder not counted

// The process's client; made at the first call by the exact name that PJRT_DEVICE has by then
// (empty: "CPU"), so that a notebook may set it after the import. Throws kValue naming all entries
// for an unknown name, kRuntime with the plugin's own words where it cannot start; a failed start
// is not remembered: the next call tries again.
ComputationClient& client();
bool client_exists();  // without making one
// Devices of the client that client() would make, where its row says so; else 0. Starts nothing.
int promised_devices();
// Was this process forked from the one that made the client? Any thread.
bool forked();
// After fork the plugin's threads are gone: throws kRuntime in the child of a process that made the
// client.
void check_not_forked();
// Tests: puts a client in place of the process's one.
void set_client_for_testing(std::unique_ptr<ComputationClient> c);

// PJRT over a plugin (client/pjrt_client.cpp).
std::unique_ptr<ComputationClient> make_pjrt_client(const PluginSpec& spec,
                                                    const Processes& processes = {});

}  // namespace tp::client
