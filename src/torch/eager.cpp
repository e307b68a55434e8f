#include "torch/eager.h"

#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include "probe/probe.h"
#include "torch/runtime.h"
#include "torch/tensor.h"
#include "torch/thread_modes.h"
#include "torch/unsynced.h"

namespace tp::torch_room {

using ir::Value;

namespace {

struct Recording {
  int depth = 0;
  std::vector<c10::weak_intrusive_ptr<Alias>> touched;
};
thread_local Recording t_recording;

// The touched aliases that still live and wait, with the values they had.
struct Cut {
  std::vector<AliasPtr> aliases;
  exec::PlanRequest request;
  exec::PlanPtr plan;
  std::unordered_set<const ir::Node*> initial_values;
  std::vector<std::pair<size_t, ir::NodePtr>> initial_of;  // by place among the aliases
};

void add(Cut& c, AliasPtr a) {
  Value value;
  ir::NodePtr initial;
  {
    std::lock_guard lock(state_lock());
    if (!a->pending()) return;
    initial = std::exchange(a->initial, ir::NodePtr());
    value = a->value();
  }
  if (initial) {
    c.initial_values.insert(initial.get());
    c.initial_of.emplace_back(c.aliases.size(), std::move(initial));
  }
  c.request.roots.push_back(std::move(value));
  c.aliases.push_back(std::move(a));
}

// A failed op leaves the tensors as they were, initial values included.
void restore(Cut& c) {
  std::lock_guard lock(state_lock());
  for (auto& [i, initial] : c.initial_of)
    if (Alias& a = *c.aliases[i]; !a.initial) a.initial = std::move(initial);
}

void settle(const Cut& c, const exec::SyncResult& result) {
  Dropped old(c.aliases.size());
  std::lock_guard lock(state_lock());
  for (size_t i = 0; i < c.aliases.size(); ++i) {
    Alias& a = *c.aliases[i];
    if (!a.pending() || !(a.value() == c.plan->root(i))) continue;  // written by another thread
    settle(a, result.outputs[i], old);
  }
}

void count_op() {
  static probe::Counter& ops = probe::counter("EagerOp");
  ops.add();
}

void run_device(Cut& c) {
  count_op();
  c.request.straight = true;
  c.request.uploaded = [&c](const ir::Node& n) { return c.initial_values.contains(&n); };
  GilRelease no_gil;
  exec::SyncResult result;
  try {
    c.plan = executor().plan(std::move(c.request));
    result = executor().sync(c.plan);
  } catch (...) {
    restore(c);
    throw;
  }
  settle(c, result);
}

}  // namespace

namespace {

// Guards all below, and the changes of g_eager_mode.
std::mutex g_switch;
std::atomic<bool> g_for_all{false};
int g_threads_on = 0;
std::atomic<bool> g_cut_due{false};

void update_locked() { g_eager_mode = g_for_all || g_threads_on > 0 || g_cut_due; }

}  // namespace

bool eager_here() {
  if (!eager_mode()) return false;
  int own = thread_mode(ThreadMode::kEager);
  return own == kModeUnset ? g_for_all.load() : own == kModeOn;
}

void set_cut_due(bool due) {
  std::lock_guard lock(g_switch);
  g_cut_due = due;
  update_locked();
}

bool eager_for_all() { return g_for_all; }

bool set_eager_mode(bool on) {
  if (on && !eager_here()) sync_all();
  std::lock_guard lock(g_switch);
  bool before = g_for_all.exchange(on);
  update_locked();
  return before;
}

int exchange_thread_eager_mode(int to) {
  if (to == kModeOn && !eager_here()) sync_all();
  int before = exchange_thread_mode(ThreadMode::kEager, to);
  std::lock_guard lock(g_switch);
  g_threads_on += (to == kModeOn) - (before == kModeOn);
  update_locked();
  return before;
}

void touch(Alias& a) {
  if (t_recording.depth > 0) t_recording.touched.emplace_back(AliasPtr::reclaim_copy(&a));
}

void OpScope::enter() {
  if (t_recording.depth == 0 && g_cut_due.load(std::memory_order_relaxed)) cut_if_due();
  ++t_recording.depth;
}

void OpScope::leave() {
  if (--t_recording.depth == 0) t_recording.touched.clear();
}

namespace {

// What most ops are: one result that an op of its own makes, whose program ran before. False where
// that is not so.
bool run_known(Alias& a) {
  Value root;
  {
    std::lock_guard lock(state_lock());
    if (!a.pending()) return true;
    if (a.initial) return false;
    root = a.value();
  }
  client::DataPtr data;
  {
    GilRelease no_gil;
    data = executor().run_known(root, device_index(a.device));
  }
  if (!data) return false;
  count_op();
  Dropped old(1);
  std::lock_guard lock(state_lock());
  if (!a.pending() || !(a.value() == root)) return true;  // written by another thread
  settle(a, std::move(data), old);
  return true;
}

}  // namespace

void OpScope::run() {
  if (t_recording.depth > 1) return;
  if (!eager_here()) return t_recording.touched.clear();
  if (t_recording.touched.size() == 1) {
    AliasPtr a = t_recording.touched[0].lock();
    if (!a || run_known(*a)) return t_recording.touched.clear();
  }
  auto touched = std::exchange(t_recording.touched, {});
  while (!touched.empty()) {  // a round a device: nearly always one
    Cut c;
    std::vector<c10::weak_intrusive_ptr<Alias>> others;
    for (auto& weak : touched) {
      AliasPtr a = weak.lock();
      if (!a) continue;
      int device = device_index(a->device);
      if (c.aliases.empty()) c.request.device = device;
      if (device == c.request.device)
        add(c, std::move(a));
      else
        others.push_back(std::move(weak));
    }
    if (!c.aliases.empty()) run_device(c);
    touched = std::move(others);
  }
}

}  // namespace tp::torch_room
