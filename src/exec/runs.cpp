#include "exec/runs.h"

#include <algorithm>

namespace tp::exec {
namespace {

class Finder {
 public:
  explicit Finder(std::span<const uint64_t> words) : w_(words) {}

  std::vector<Run> find() {
    search({0, size()}, {0, size()});
    return std::move(runs_);
  }

 private:
  struct Range {
    uint32_t from, to;
  };
  static constexpr uint32_t kLeastWords = 32;

  uint32_t size() const { return static_cast<uint32_t>(w_.size()); }

  // The smallest period of the words in `r` (Knuth, Morris and Pratt's failure function).
  uint32_t period_of(Range r) {
    uint32_t n = r.to - r.from;
    failure_.assign(n, 0);
    for (uint32_t i = 1, k = 0; i < n; ++i) {
      while (k > 0 && w_[r.from + i] != w_[r.from + k]) k = failure_[k - 1];
      if (w_[r.from + i] == w_[r.from + k]) ++k;
      failure_[i] = k;
    }
    return n - failure_[n - 1];
  }

  // The run that the middle third of `r` belongs to, as far as `within` allows; or an empty one.
  Run run_around_middle(Range r, Range within) {
    uint32_t third = (r.to - r.from) / 3;
    Range middle{r.from + third, r.to - third};
    uint32_t p = period_of(middle);
    if (2 * p > middle.to - middle.from) return {0, 0, 1};
    Run run{middle.from, middle.to, p};
    while (run.start > within.from && w_[run.start - 1] == w_[run.start - 1 + p]) --run.start;
    while (run.end < within.to && w_[run.end] == w_[run.end - p]) ++run.end;
    return run;
  }

  void search(Range r, Range within) {
    if (r.to < r.from + kLeastWords) return;
    Run run = run_around_middle(r, within);
    if (run.count() >= kLeastRounds) {
      search({r.from, std::min(run.start, r.to)}, {within.from, run.start});
      runs_.push_back(run);
      return search({run.end, r.to}, {run.end, within.to});
    }
    uint32_t middle = r.from + (r.to - r.from) / 2;
    search({r.from, middle}, within);
    uint32_t found = runs_.empty() ? 0 : runs_.back().end;
    uint32_t from = std::max(middle, found);
    search({from, r.to}, {std::max(within.from, found), within.to});
  }

  std::span<const uint64_t> w_;
  std::vector<uint32_t> failure_;
  std::vector<Run> runs_;
};

}  // namespace

std::vector<Run> find_runs(std::span<const uint64_t> words) { return Finder(words).find(); }

}  // namespace tp::exec
