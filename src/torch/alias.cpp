// The memories behind tensors: their arena, the lock of their states, and walks over them.
#include <chrono>
#include <thread>

#include "base/interrupt.h"
#include "client/registry.h"
#include "torch/errors.h"
#include "torch/runtime.h"
#include "torch/storage.h"
#include "torch/tensor.h"
#include "torch/trace.h"

namespace tp::torch_room {

using ir::Value;

namespace {

// The arena: a ring through one sentinel.
struct Arena {
  Alias* first = nullptr;
  Alias* last = nullptr;
  size_t count = 0;
  uint64_t next_id = 1;
};
Arena g_arena;

}  // namespace

void SpinLock::lock() {
  for (int spins = 0; flag_.test_and_set(std::memory_order_acquire); ++spins)
    if (spins > 64) std::this_thread::yield();
}

SpinLock& state_lock() {
  static SpinLock lock;
  return lock;
}

// Its address, which identifies it and leads nowhere, is made when somebody asks (storage.h).
Alias::Alias(Value v, std::unique_ptr<Dims> s, c10::Device d)
    : c10::StorageImpl(use_byte_size_t(), v.type().bytes(), c10::DataPtr(nullptr, d), nullptr,
                       /*resizable=*/false),
      type(v.type()),
      strides(std::move(s)),
      device(d),
      made_at(v.node->location()),
      state(Pending{std::move(v)}),
      traced(tracing()) {
  set_materializer(give_address);
  std::lock_guard lock(state_lock());
  id = g_arena.next_id++;  // under the lock: walks count on ids that ascend
  prev = g_arena.last;
  (prev ? prev->next : g_arena.first) = this;
  g_arena.last = this;
  ++g_arena.count;
}

Alias::~Alias() { leave_arena(); }

void Alias::leave_arena() {
  std::lock_guard lock(state_lock());
  if (!std::exchange(in_arena_, false)) return;
  (prev ? prev->next : g_arena.first) = next;
  (next ? next->prev : g_arena.last) = prev;
  --g_arena.count;
}

void Alias::release_resources() {
  leave_arena();
  state = Pending();
  initial = ir::NodePtr();
  gathers.clear();
  c10::StorageImpl::release_resources();
}

void for_each_alias(const std::function<void(Alias&)>& f) {
  std::lock_guard lock(state_lock());
  for (Alias* a = g_arena.first; a; a = a->next) f(*a);
}

std::vector<AliasPtr> aliases_where(const std::function<bool(const Alias&)>& wanted) {
  std::vector<AliasPtr> found;
  found.reserve(room_for_aliases());
  for_each_alias([&](Alias& a) {
    if (found.size() == found.capacity() || !wanted(a)) return;
    c10::raw::weak_intrusive_ptr::incref(&a);
    AliasPtr alive = c10::weak_intrusive_ptr<Alias>::reclaim(&a).lock();
    if (alive) found.push_back(std::move(alive));
  });
  return found;
}

size_t live_aliases() {
  std::lock_guard lock(state_lock());
  return g_arena.count;
}

void wait_while_taken() {
  client::check_not_forked();  // the thread that would put the value back is not in a child
  GilRelease no_gil;
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  thread_local unsigned waits = 0;
  if (hears_interrupts() && ++waits % 512 == 0) look_for_interrupt();
}

}  // namespace tp::torch_room
