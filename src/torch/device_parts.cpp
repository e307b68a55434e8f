#include "torch/device_parts.h"

#include <algorithm>

#include "exec/device_sets.h"
#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

struct Pending {
  std::vector<uint64_t> ids;
  std::vector<ir::Value> roots;
  exec::Layouts layouts;
};

Pending pending_of(int device) {
  Pending p;
  size_t room = room_for_aliases();
  std::vector<std::pair<const ir::Node*, shard::Ref>> fills;
  p.ids.reserve(room);
  p.roots.reserve(room);
  p.layouts.pins.reserve(room);
  fills.reserve(room);
  for_each_alias([&](Alias& a) {
    if (device_index(a.device) != device || a.traced || p.ids.size() == room) return;
    if (!a.pending() || a.raised()) return;
    if (a.initial && a.placed && a.layout && fills.size() < room)
      fills.emplace_back(a.initial.get(), a.layout);
    p.ids.push_back(a.id);
    p.roots.push_back(a.value());
    p.layouts.pins.push_back({a.placed, a.layout});
  });
  p.layouts.fills.insert(fills.begin(), fills.end());
  return p;
}

void mark_raised(const std::vector<uint64_t>& ids) {
  for_each_alias([&](Alias& a) {
    auto* p = std::get_if<Alias::Pending>(&a.state);
    if (p && std::ranges::binary_search(ids, a.id)) p->raised = true;
  });
}

}  // namespace

DeviceParts device_parts(int device) {
  Pending p = pending_of(device);
  exec::Programs programs;
  {
    std::lock_guard lock(ir::graph_lock());
    programs = exec::by_devices(p.roots, p.layouts);
  }
  auto ids_of = [&p](const std::vector<size_t>& roots) {
    std::vector<uint64_t> ids;
    for (size_t i : roots) ids.push_back(p.ids[i]);
    return ids;
  };
  DeviceParts parts{{}, std::move(programs.why)};
  for (const auto& roots : programs.roots) parts.programs.push_back(ids_of(roots));
  if (parts.impossible) mark_raised(ids_of(programs.impossible));
  return parts;
}

}  // namespace tp::torch_room
