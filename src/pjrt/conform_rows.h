// The parts of conform.h's tables, a file each. Private to src/pjrt/conform*.
#pragma once
#include "pjrt/conform_rig.h"

namespace tp::pjrt::conform {

std::span<const Row> object_calls();   // plugin, errors, client, devices, events, buffers
std::span<const Row> program_calls();  // programs, devices that are not there, host calls
std::span<const Row> behaviours();

enum class Need { kRequired, kOptional };

// The row of an entry of the API table.
template <auto Fn>
constexpr Row entry(Need need, std::string_view missed, std::string (*probe)(Rig&)) {
  return {detail::name<Fn>(), need == Need::kRequired, missed, &has<Fn>, probe};
}

}  // namespace tp::pjrt::conform
