#include "exec/reasons.h"

#include "base/text.h"

namespace tp::exec {
namespace {

struct Cure {
  std::string_view kind, text;
};
constexpr Cure kCures[] = {
    {"argument",
     "pad to a few sizes (buckets) and drop the last smaller batch; where sizes never repeat, run "
     "this part in torch_pjrt.eager_mode(), whose programs are of single ops"},
    {"size", "use a mask, or index_select with a tensor: a Python number that slices is baked in"},
    {"number", "compute this number on the device, or let it take few values"},
    {"new op", "torch.where instead of a Python `if` that differs from step to step"},
    {"gone op", "torch.where instead of a Python `if` that differs from step to step"},
    {"alive", "`del` it before the sync, or keep it at every step"},
    {"dead", "`del` it before the sync, or keep it at every step"},
    {"read", "read after torch_pjrt.sync()"},
    {"donation", "let go of the old value at every step, or at none (TORCH_PJRT_DONATION=0)"},
    {"new graph", "graphs that never repeat are better run in torch_pjrt.eager_mode()"},
};

}  // namespace

Comparison compare(const Sketch& known, const Sketch& now) {
  Shared common = shared(known, now);
  if (!common.little()) return {false, differences(known, now)};
  return {true,
          {{"new graph",
            cat("it shares ", common.ops, " of ", common.of_ops, " ops and ", common.arguments,
                " of ", common.of_arguments, " arguments with the nearest one known")}}};
}

std::string_view cure(const std::vector<Reason>& reasons) {
  if (reasons.empty()) return {};
  for (const Cure& c : kCures)
    if (c.kind == reasons[0].kind) return c.text;
  return {};
}

}  // namespace tp::exec
