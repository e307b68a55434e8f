#include "exec/blame.h"

#include "base/text.h"
#include "ir/callers.h"

namespace tp::exec {

std::string blame_text(const Blame& b, std::span<const ir::Value> roots) {
  constexpr size_t kShown = 2, kPrefix = 8;
  std::string s = cat("program ", b.key.hex().substr(0, kPrefix));
  for (size_t i = 0; i < roots.size() && i < kShown; ++i) {
    const ir::Node& n = *roots[i].node;
    std::string line = cat(ir::line_and_function(n.location()), ir::caller_text(n.location()));
    s += cat(i ? ", " : ": ", n.kind().name, " ", roots[i].type().text(),
             line.empty() ? "" : cat(" (", line, ")"));
  }
  if (roots.size() > kShown) s += cat(" and ", roots.size() - kShown, " more");
  return b.where.empty() ? s : cat(s, ", synced at ", b.where);
}

Error with_line(const Error& e, const std::string& line) {
  if (e.raised_by() >= 0) return e;
  return Error(e.code(), cat(e.what(), "\n  in ", line));
}

}  // namespace tp::exec
