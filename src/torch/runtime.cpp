#include "torch/runtime.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <pthread.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/forks.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "client/registry.h"
#include "exec/blame.h"
#include "gen/build_info.h"
#include "gen/torch_info.h"
#include "probe/events.h"
#include "probe/hold.h"
#include "probe/probe.h"
#include "shard/registry.h"
#include "torch/asserts.h"
#include "torch/capture.h"
#include "torch/census.h"
#include "torch/checks.h"
#include "torch/cuts.h"
#include "torch/device_parts.h"
#include "torch/errors.h"
#include "torch/interpreter.h"
#include "torch/trace.h"
#include "torch/unsynced.h"
#include "torch/view_memory.h"

namespace tp::torch_room {

using client::DataPtr;
using ir::Value;

namespace {

void* (*g_release)() = nullptr;
void (*g_acquire)(void*) = nullptr;

// A value, without holding on to it: valid while the plan lives that owns it.
struct Mark {
  const ir::Node* node;
  uint32_t index;
  bool is(const Value& v) const { return v.node.get() == node && v.index == index; }
};

// What one device's sync is about: pending aliases (by id: one may die while the sync runs) with
// the values they had, and the fills that are initial values.
struct Collected {
  std::vector<uint64_t> ids;
  std::vector<Value> roots;  // until they go into `request`
  std::vector<Mark> marks;   // which they were
  exec::PlanRequest request;
  exec::PlanPtr plan;  // owns what `request` had
  std::unordered_set<const ir::Node*> initial_values;
  std::vector<uint64_t> initial_of;  // whose initial values they are
  std::vector<ir::NodePtr> held;     // those, until they go into `request`
  // For donation (exec::InPlace), of a full sync.
  std::vector<const void*> previous, kept;
  // Where results go, by root, and initial values; empty where nothing was ever sharded.
  std::vector<exec::Pin> pins;
  std::vector<std::pair<const ir::Node*, shard::Ref>> fills;
  bool took = false;  // the pending values are out of their tensors
};

enum class Scope { kOne, kRead, kFull };

void reserve(Collected& c, size_t room) {
  c.ids.reserve(room);
  c.roots.reserve(room);
  c.marks.reserve(room);
  c.initial_of.reserve(room);
  c.held.reserve(room);
  c.previous.reserve(room);
  c.kept.reserve(room);
  if (!shard::any()) return;
  c.pins.reserve(room);
  c.fills.reserve(room);
}

// The aliases that a sync is about: all of a device, or those of these ids (ascending).
using Ids = std::vector<uint64_t>;

Collected collect(int device, const Ids* only, Scope scope) {
  Collected c;
  size_t room = only ? only->size() : room_for_aliases(), seen = 0;
  reserve(c, room);
  if (only && scope == Scope::kFull) c.kept.reserve(room_for_aliases());
  for_each_alias([&](Alias& a) {
    if (device_index(a.device) != device || a.traced) return;
    if (scope == Scope::kFull && a.buffer() && c.kept.size() < c.kept.capacity())
      c.kept.push_back(a.buffer().get());
    if ((only && !std::ranges::binary_search(*only, a.id)) || seen == room) return;
    ++seen;
    const void* previous = a.previous;
    if (a.initial) {
      previous = a.initial.get();
      if (a.placed && a.layout && c.fills.size() < c.fills.capacity())
        c.fills.emplace_back(a.initial.get(), a.layout);
      c.initial_of.push_back(a.id);
      c.held.push_back(std::move(a.initial));
      a.initial = ir::NodePtr();
    }
    if (!a.pending() || (a.raised() && scope != Scope::kOne)) return;
    const Value& value = a.value();
    c.roots.push_back(value);
    c.marks.push_back({value.node.get(), value.index});
    c.ids.push_back(a.id);
    if (c.pins.size() < c.pins.capacity()) c.pins.push_back({a.placed, a.layout});
    if (scope == Scope::kFull) c.previous.push_back(previous);
  });
  for (const ir::NodePtr& initial : c.held) c.initial_values.insert(initial.get());
  return c;
}

// Runs f(alias, i) on each collected alias that still lives, under state_lock().
template <class F>
void for_each_collected(const Collected& c, F&& f) {
  size_t i = 0;
  for_each_alias([&](Alias& a) {
    while (i < c.ids.size() && c.ids[i] < a.id) ++i;
    if (i < c.ids.size() && c.ids[i] == a.id) f(a, i);
  });
}

// Takes the pending values out of their tensors (Executor::sync): the plan is their only owner
// then. Values gathered through views go for good: they are only a memo, and hold on to nodes.
bool take(Collected& c) {
  Dropped old(c.ids.size());
  size_t found = 0;
  c.took = true;
  for_each_collected(c, [&](Alias& a, size_t i) {
    if (!a.pending() || !c.marks[i].is(a.value())) return;
    ++found;
    a.state = Alias::Taken();  // the plan has the value
    old.gathers(a);
  });
  return found == c.ids.size();
}

void offer_in_place(Collected& c, exec::PlanRequest* r) {
  r->previous = std::move(c.previous);
  std::sort(c.kept.begin(), c.kept.end());
  r->kept = [&c](const void* p) { return std::binary_search(c.kept.begin(), c.kept.end(), p); };
}

exec::PlanRequest request_of(Collected& c, int device, bool force_data) {
  exec::PlanRequest r;
  r.roots = std::move(c.roots);
  r.held = std::move(c.held);
  r.uploaded = [&c](const ir::Node& n) { return c.initial_values.contains(&n); };
  r.layouts = {std::move(c.pins), {c.fills.begin(), c.fills.end()}};
  r.device = device;
  r.force_data = force_data;
  r.where = user_frame();
  return r;
}

// A failed sync leaves the tensors as they were, initial values included. Ids ascend in the arena
// and in `initial_of`.
void restore(Collected& c) {
  if (c.took)
    for_each_collected(c, [&](Alias& a, size_t i) {
      if (a.taken()) a.state = Alias::Pending{c.plan->root(i)};
    });
  const std::vector<ir::NodePtr>& held = c.plan ? c.plan->held : c.request.held;
  size_t i = 0;
  for_each_alias([&](Alias& a) {
    while (i < held.size() && c.initial_of[i] < a.id) ++i;
    if (i < held.size() && c.initial_of[i] == a.id && !a.initial) a.initial = held[i];
  });
}

void settle(const Collected& c, exec::SyncResult& result) {
  Dropped old(c.ids.size());
  for_each_collected(c, [&](Alias& a, size_t i) {
    if (!a.taken() && !c.marks[i].is(a.value())) return;  // written meanwhile
    settle(a, result.outputs[i], old);
  });
}

void mark_raised(const Collected& c, const exec::HostFailure& f) {
  std::unordered_map<uint64_t, size_t> place;
  for (size_t i : f.roots()) place[c.ids[i]] = i;
  for_each_alias([&](Alias& a) {
    auto it = place.find(a.id);
    auto* p = std::get_if<Alias::Pending>(&a.state);
    if (p && it != place.end() && c.marks[it->second].is(p->value)) p->raised = true;
  });
}

// Tensors over a buffer of one device that a program needed on a mesh have it there from now on.
void adopt_moved(const exec::SyncResult& result) {
  if (result.moved.empty()) return;
  Dropped old(room_for_aliases());
  size_t room = room_for_aliases();
  for_each_alias([&](Alias& a) {
    for (const auto& [was, now] : result.moved)
      if (a.buffer() == was && room > 0) {
        --room;
        old.state(a, Alias::OnDevice{now, {}, a.uploaded()});
        old.gathers(a);
        break;
      }
  });
}

// `only`: the aliases to compute; null for all. `synced`: told what ran.
bool sync_device(int device, Scope scope, const Ids* only = nullptr, Synced* synced = nullptr) {
  bool force_data = scope == Scope::kFull;
  Collected c = collect(device, only, scope);
  if (c.roots.empty()) return false;
  c.request = request_of(c, device, force_data);
  if (force_data) offer_in_place(c, &c.request);
  c.request.straight = synced != nullptr;  // a capture is of a program
  GilRelease no_gil;
  try {
    c.plan = executor().plan(std::move(c.request));
    exec::SyncResult result = executor().sync(c.plan, [&c] { return take(c); });
    settle(c, result);
    adopt_moved(result);
    if (synced) *synced = {c.plan, std::move(c.ids)};
  } catch (const exec::HostFailure& f) {
    restore(c);
    mark_raised(c, f);
    throw;
  } catch (...) {
    restore(c);
    throw;
  }
  return true;
}

// Where a host op raises, what does not depend on it is computed all the same. Throws in the end,
// or, for a read, leaves that to whoever reads a value that depends on it.
bool sync_sound(int device, bool force_data, const Ids* only) {
  std::exception_ptr raised;
  bool ran = false;
  for (bool again = true; again;) {
    again = false;
    try {
      ran = sync_device(device, force_data ? Scope::kFull : Scope::kRead, only) || ran;
    } catch (const exec::HostFailure& f) {
      if (f.roots().empty()) throw;
      if (!raised) raised = std::current_exception();
      again = true;
    }
  }
  if (raised && force_data) std::rethrow_exception(raised);
  return ran;
}

// One program for each set of devices that pending values are on.
bool sync_parts(int device, bool force_data) {
  if (!shard::several_device_sets()) return sync_sound(device, force_data, nullptr);
  DeviceParts parts = device_parts(device);
  std::exception_ptr raised;
  bool ran = false;
  for (const Ids& ids : parts.programs) try {
      ran = sync_sound(device, force_data, &ids) || ran;
    } catch (const Error&) {
      if (!raised) raised = std::current_exception();
    }
  if (raised) std::rethrow_exception(raised);
  if (parts.impossible && force_data) throw std::move(*parts.impossible);
  return ran;
}

// The devices with pending values, in order.
std::vector<int> pending_devices() {
  std::vector<int> found;
  for_each_alias([&](Alias& a) {
    if (!a.pending() || a.traced) return;
    int device = device_index(a.device);
    auto at = std::ranges::lower_bound(found, device);
    if (at == found.end() || *at != device) found.insert(at, device);
  });
  return found;
}

// Two threads that sync at once would compute the same values twice. A child has a lock of its own:
// this one may be held by a thread that it does not have.
std::atomic<std::timed_mutex*> g_one_sync{new std::timed_mutex};
std::timed_mutex& one_sync_lock() { return *g_one_sync.load(); }

}  // namespace

bool sync_devices(bool force_data) {
  static int64_t last_end = probe::now_ns();  // under one_sync_lock()
  client::check_not_forked();
  bool ran = false;
  std::vector<int> devices = pending_devices();
  if (devices.empty()) return false;
  GilRelease no_gil;
  auto lock = lock_interruptibly(one_sync_lock());
  probe::Section section("torch_pjrt::sync");
  probe::event(probe::Phase::kRecord, last_end, probe::now_ns());
  sample_census(probe::next_step());
  for (int d : devices) ran = sync_parts(d, force_data) || ran;
  last_end = probe::now_ns();
  note_synced();
  return ran;
}

void sync_one(Alias& a) {
  GilRelease no_gil;
  Ids one{a.id};
  sync_device(device_index(a.device), Scope::kOne, &one);
}

void GilRelease::set_provider(void* (*release)(), void (*acquire)(void*)) {
  g_release = release;
  g_acquire = acquire;
}
// Whoever waits with the GIL released may hold locks of ours: messages wait for its end.
GilRelease::GilRelease() : state_(g_release ? g_release() : nullptr) { probe::begin_hold(); }
GilRelease::~GilRelease() {
  if (state_) g_acquire(state_);
  probe::end_hold();
}

exec::Executor& executor() {
  client::check_not_forked();  // its locks may be held by threads that a child does not have
  static auto* e = new exec::Executor(  // outlives static destructors
      []() -> client::ComputationClient& {
        client::check_not_forked();
        return client::client();
      },
      kTorchGit, kRevision);
  static const bool once = (e->interpret_with(&host_interpreter()), true);
  static_cast<void>(once);
  return *e;
}

void hold_locks_over_forks() {
  hold_over_forks(ForkOrder::kGraph, ir::graph_lock());
  hold_over_forks(ForkOrder::kState, state_lock());
  pthread_atfork(nullptr, nullptr, [] { g_one_sync = new std::timed_mutex; });
}

Synced sync_captured(int device) {
  Synced synced;
  guarded(
      [&] {
        client::check_not_forked();
        GilRelease no_gil;
        auto lock = lock_interruptibly(one_sync_lock());
        sync_device(device, Scope::kFull, nullptr, &synced);
      },
      [] { return std::string("capture"); });
  return synced;
}

// A child may neither ask nor tear down what belongs to threads that it does not have.
bool busy() { return client::forked() || (client::client_exists() && executor().busy()); }

void sync_unasked() { sync_devices(true); }

void sync_all() {
  // What a step launched in its middle would not be replayed.
  if (g_capture.load(std::memory_order_acquire)) return;
  static probe::Counter& syncs = probe::counter("Sync");
  syncs.add();
  guarded(
      [] {
        raise_failed_asserts(Look::kWhatIsReady);
        sync_devices(true);
        raise_failed_asserts(Look::kWhatIsReady);
      },
      [] { return std::string("torch_pjrt.sync()"); });
}

void wait_all() {
  GilRelease no_gil;
  probe::Section section("torch_pjrt::wait");
  int64_t start = probe::now_ns();
  guarded(
      [] {
        client::check_not_forked();
        executor().wait();
        raise_failed_asserts(Look::kAndWait);
      },
      [] { return std::string("torch_pjrt.wait()"); });
  probe::event(probe::Phase::kWait, start, probe::now_ns());
}

namespace {
int device_of(c10::ArrayRef<at::Tensor> tensors) {
  int device = tensors.empty() ? 0 : device_index(tensors[0].device());
  for (const at::Tensor& t : tensors)
    if (int other = device_index(t.device()); other != device)
      fail(Code::kValue,
           cat("a graph is of one device, found tensors of xla:", device, " and xla:", other),
           "ask for the tensors of each device by themselves");
  return device;
}
}  // namespace

exec::GraphRecord describe(c10::ArrayRef<at::Tensor> tensors) {
  return guarded(
      [&] {
        Collected c;
        std::vector<ir::NodePtr> initial_values;
        initial_values.reserve(room_for_aliases());
        for_each_alias([&](Alias& a) {
          if (a.initial && initial_values.size() < initial_values.capacity())
            initial_values.push_back(a.initial);
        });
        for (const ir::NodePtr& initial : initial_values) c.initial_values.insert(initial.get());
        for (const at::Tensor& t : tensors) c.roots.push_back(value_of(impl_of(t)));
        exec::PlanRequest request = request_of(c, device_of(tensors), false);
        GilRelease no_gil;
        return executor().describe(std::move(request));
      },
      [] { return std::string("torch_pjrt.graph.of()"); });
}

}  // namespace tp::torch_room
