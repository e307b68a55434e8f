#include "base/interrupt.h"

#include <atomic>

namespace tp {
namespace {
std::atomic<bool (*)()> g_hears{nullptr};
std::atomic<void (*)()> g_look{nullptr};
}  // namespace

void set_interrupt_hooks(bool (*hears)(), void (*look)()) {
  g_look.store(look);
  g_hears.store(hears);
}

bool hears_interrupts() {
  auto* f = g_hears.load(std::memory_order_acquire);
  return f && f();
}

void look_for_interrupt() {
  if (auto* f = g_look.load(std::memory_order_acquire)) f();
}

}  // namespace tp
