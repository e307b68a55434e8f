#include "torch/memory_report.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "ir/callers.h"
#include "probe/probe.h"
#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

struct Live {
  ir::Type type;
  ir::LocationId made_at;
};

std::string size_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  auto n = static_cast<double>(bytes);
  size_t unit = 0;
  for (; n >= 1024 && unit + 1 < std::size(kUnits); ++unit) n /= 1024;
  auto tenths = static_cast<int64_t>(n * 10 + 0.5);
  return unit == 0 ? cat(bytes, " B") : cat(tenths / 10, ".", tenths % 10, " ", kUnits[unit]);
}

std::vector<Live> largest_first() {
  std::vector<Live> live;
  live.reserve(room_for_aliases());
  for_each_alias([&](Alias& a) {
    if (a.buffer() && live.size() < live.capacity())
      live.push_back({a.buffer()->type(), a.made_at});
  });
  std::stable_sort(live.begin(), live.end(),
                   [](const Live& a, const Live& b) { return a.type.bytes() > b.type.bytes(); });
  return live;
}

}  // namespace

std::string memory_report() {
  constexpr size_t kShown = 5;
  std::vector<Live> live = largest_first();
  int64_t sum = 0;
  for (const Live& l : live) sum += l.type.bytes();
  std::string s = cat("live on the device: ", live.size(), " tensors, ", size_text(sum));
  for (size_t i = 0; i < std::min(kShown, live.size()); ++i) {
    std::string line = ir::line_and_caller(live[i].made_at);
    s += cat(i ? ", " : "; the largest: ", live[i].type.text(), " ",
             size_text(live[i].type.bytes()), line.empty() ? "" : " made at ", line);
  }
  static probe::Counter& donated = probe::counter("DonatedBuffers");
  return cat(s, "; donated to programs so far: ", donated.value(), " buffers");
}

}  // namespace tp::torch_room
