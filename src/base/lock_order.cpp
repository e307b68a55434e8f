#include "base/lock_order.h"

#include <bit>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace tp {
namespace {

constexpr std::string_view kNames[] = {
    "the registry's", "plugins'",        "variables'",       "a replay's", "one-op programs'",
    "make-room",      "the graph",       "launches'",        "families'",  "programs'",
    "the executor's", "the explainer's", "stored programs'", "dumps'",     "devices'",
    "messages'",      "a table's"};
static_assert(std::size(kNames) == static_cast<size_t>(LockRank::kCount));

thread_local uint32_t t_held = 0;  // by rank

uint32_t bit(LockRank r) { return 1u << static_cast<int>(r); }

}  // namespace

void note_lock(LockRank rank) {
  uint32_t later = t_held & ~(bit(rank) - 1);
  if (later != 0)
    check(false, cat("a thread takes ", kNames[static_cast<int>(rank)], " lock under ",
                     kNames[std::bit_width(later) - 1], " lock (base/lock_order.h)"));
  t_held |= bit(rank);
}

void note_unlock(LockRank rank) noexcept { t_held &= ~bit(rank); }

}  // namespace tp
