#include "torch/unsynced.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"
#include "exec/segments.h"
#include "ir/callers.h"
#include "ir/graph.h"
#include "probe/probe.h"
#include "torch/capture.h"
#include "torch/cuts.h"
#include "torch/eager.h"
#include "torch/frames.h"
#include "torch/tensor.h"
#include "torch/trace.h"

namespace tp::torch_room {
namespace {

constexpr uint64_t kFarther = 8;  // what is no loop may be that much longer
constexpr const char* kAdvice = "call torch_pjrt.sync() at the end of a step";

std::atomic<uint64_t> g_round_ends{0};  // the sequence at which a cut is due; 0: it is to be looked

uint64_t limit() {
  static const auto n = static_cast<uint64_t>(flag_int(Flag::kCutNodes));
  return n;
}

uint64_t sequence_now() { return ir::Node::make_number({}, true)->sequence(); }

void look_after(uint64_t nodes) { g_next_look = sequence_now() + nodes; }

struct Pending {
  uint64_t nodes = 0, newest = 0;
  exec::Loop loop;
};

// What live tensors wait for. It holds nothing of it: a cut may overwrite their buffers.
Pending look() {
  std::vector<ir::Value> roots;
  roots.reserve(room_for_aliases());
  for_each_alias([&](Alias& a) {
    if (a.pending() && !a.traced && roots.size() < roots.capacity()) roots.push_back(a.value());
  });
  Pending p;
  std::lock_guard lock(ir::graph_lock());
  ir::Graph g = ir::build_graph(std::move(roots), [](const ir::Node&) { return true; });
  for (const ir::Node* n : g.order) {
    if (n->role() != ir::Role::kInterior) continue;
    ++p.nodes;
    p.newest = std::max(p.newest, n->sequence());
  }
  if (2 * p.nodes >= limit()) p.loop = exec::loop_of(g);
  return p;
}

// Whether to cut now; else when to look again.
bool decide() {
  if (g_round_ends.exchange(0)) return true;
  Pending p = look();
  if (2 * p.nodes < limit()) {  // most results were dropped again
    look_after(limit() - p.nodes);
    return false;
  }
  if (p.loop.rounds && p.loop.round_ends > p.newest) {
    g_round_ends = p.loop.round_ends;
    g_next_look = p.loop.round_ends;
    return false;
  }
  if (p.loop.rounds || p.nodes >= kFarther * limit()) return true;
  look_after(p.nodes);
  return false;
}

void tell() {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  ir::Site where = user_site();
  probe::say(1, cat("recorded for long without a sync",
                    where.at ? cat(" (now at ", ir::site_text(where), ")") : "",
                    ": what is pending is run\n  try: ", kAdvice));
}

void cut() {
  static probe::Counter& cuts = probe::counter("AutomaticCut");
  ReadKind kind("recording for long without a sync", kAdvice);
  Read reading("sync");
  reading.cut();
  tell();
  sync_unasked();
  cuts.add();
  reading.synced();
}

}  // namespace

void look_for_sync(const ir::Node& newest) {
  uint64_t due = g_next_look.exchange(newest.sequence() + std::max<uint64_t>(limit() / 4, 64));
  if (!limit()) {
    g_next_look = UINT64_MAX;
  } else if (!due) {  // the process's first node
    g_next_look = newest.sequence() + limit();
  } else {
    set_cut_due(true);
  }
}

void cut_if_due() {
  set_cut_due(false);
  if (tracing() || g_capture.load(std::memory_order_acquire) || cuts_forbidden() || eager_here())
    return;
  if (!decide()) return;
  try {
    cut();
  } catch (const Error& e) {  // who syncs or reads is told; nothing is lost
    probe::say(1, cat("what was recorded without a sync could not be run: ", e.message()));
    look_after(kFarther * limit());
  }
}

void note_synced() {
  if (!limit()) return;
  g_round_ends = 0;
  look_after(limit());
}

}  // namespace tp::torch_room
