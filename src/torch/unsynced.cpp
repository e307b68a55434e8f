#include "torch/unsynced.h"

#include <thread>
#include <vector>

#include "base/text.h"
#include "ir/callers.h"
#include "ir/graph.h"
#include "probe/probe.h"
#include "torch/eager.h"
#include "torch/frames.h"
#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

std::atomic<bool> g_synced{false}, g_reported{false};

std::vector<ir::Value> pending() {
  std::vector<ir::Value> roots;
  roots.reserve(room_for_aliases());
  for_each_alias([&](Alias& a) {
    if (a.pending() && roots.size() < roots.capacity()) roots.push_back(a.value());
  });
  return roots;
}

size_t waiting_ops() {
  std::vector<ir::Value> roots = pending();
  std::lock_guard lock(ir::graph_lock());
  return ir::build_graph(std::move(roots), [](const ir::Node&) { return true; }).num_nodes();
}

void tell(const ir::Site& where) {
  size_t ops = waiting_ops();
  if (ops < kLookEvery / 4 || g_reported.exchange(true)) return;
  probe::say(
      0, cat(ops, " recorded ops wait to be run, and nothing has synced or read a value for long",
             where.at ? cat(" (now at ", ir::site_text(where), ")") : "",
             "\n  try: torch_pjrt.sync() at the end of each step: then a step is one "
             "program, compiled once, and its memory is given back"));
}

}  // namespace

// Counting takes a while, and a listener may do anything: in a thread of its own.
void look_for_sync(const ir::Node& newest) {
  g_next_look = newest.sequence() + kLookEvery;
  if (g_synced.exchange(false) || eager_mode() || g_reported) return;
  std::thread(&tell, user_site()).detach();
}

void note_synced() { g_synced.store(true, std::memory_order_relaxed); }

}  // namespace tp::torch_room
