// The parts of conform.h's tables, a file each. Private to src/pjrt/conform*.
#pragma once
#include "pjrt/conform_rig.h"

namespace tp::pjrt::conform {

std::span<const Row> object_calls();   // plugin, errors, client, devices, events, buffers
std::span<const Row> program_calls();  // programs, devices that are not there, host calls
std::span<const Row> behaviours();

enum class Need { kRequired, kOptional };
inline constexpr auto kNeeded = Need::kRequired;
inline constexpr auto kExtra = Need::kOptional;
inline constexpr const char* kNothing = "nothing runs";  // what a user misses

// The row of an entry of the API table.
template <auto Fn>
constexpr Row entry(Need need, std::string_view missed, std::string (*probe)(Rig&)) {
  return {detail::name<Fn>(), need == Need::kRequired, missed, &has<Fn>, probe};
}

// Its name is written once.
#define ROW(fn, ...) entry<&PJRT_Api::fn>(__VA_ARGS__)

}  // namespace tp::pjrt::conform
