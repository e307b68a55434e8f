#include "torch/cuts.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/flags.h"
#include "base/forks.h"
#include "base/text.h"
#include "probe/events.h"
#include "probe/probe.h"
#include "torch/capture.h"
#include "torch/frames.h"
#include "torch/thread_modes.h"

namespace tp::torch_room {
namespace {

thread_local const char *t_kind = nullptr, *t_advice = nullptr;
std::atomic<int> g_forbidding{0};  // threads inside no_cuts()

using At = std::tuple<std::string_view, ir::Site>;
struct Table {
  TableMutex mu;
  std::map<At, ReadLine> lines;
};
Table& table() {
  static auto* t = new Table;
  return *t;
}

std::string milliseconds(int64_t ns) { return cat(ns / 1'000'000, " ms"); }

// Reads that PyTorch's own Python code makes, by its file, and how a program does without.
struct Reader {
  const char *file, *advice;
};
constexpr const char* kPlain = "read it every few steps, or keep the value on the device";
constexpr Reader kReaders[] = {
    {"/torch/distributions/",
     "torch.distributions checks its arguments: pass validate_args=False to the distribution, or "
     "call torch.distributions.Distribution.set_default_validate_args(False) once"},
    {"/torch/nn/utils/clip_grad.py", "pass error_if_nonfinite=False, which does not look"},
    {"/torch/amp/grad_scaler.py",
     "GradScaler looks at each step for infinities: bfloat16 autocast needs no scaler"},
    {"/torch/optim/lbfgs.py",
     "LBFGS decides by its losses: another optimizer reads nothing, or run it in "
     "torch_pjrt.eager_mode()"},
    {"/torch/optim/lr_scheduler.py",
     "step the scheduler with a number read every few steps, not with a tensor"},
    {"/torch/_tensor_str.py", "print it every few steps, after torch_pjrt.sync()"},
};

const char* advice_here() {
  for (const std::string& file : torch_files())
    for (const Reader& r : kReaders)
      if (file.find(r.file) != file.npos) return r.advice;
  return kPlain;
}

// Looked for once a line.
const char* advice_for(const At& at) {
  {
    Table& t = table();
    std::lock_guard lock(t.mu);
    auto it = t.lines.find(at);
    if (it != t.lines.end() && it->second.advice) return it->second.advice;
  }
  return advice_here();
}

void warn_often(const ReadLine& l) {
  probe::say(0,
             cat(ir::line_text(l.where.at),
                 l.where.own ? cat(", called from ", ir::line_text(l.where.own)) : "", ": ", l.kind,
                 " has cut the graph ", l.cuts, " times and waited ", milliseconds(l.wait_ns), ": ",
                 l.advice, " (torch_pjrt.explain() lists all cuts)"));
}

// A step that is being captured is inside no_cuts(), too.
[[noreturn]] void fail_forbidden(const char* kind, const ir::Site& where, const char* advice) {
  bool capturing = g_capture.load(std::memory_order_acquire) != nullptr;
  std::string line = ir::site_text(where);
  fail(
      Code::kRuntime,
      cat(capturing ? "capture: " : "no_cuts: ", kind, " would cut the graph",
          line.empty() ? "" : cat(" at ", line), ": its value is not computed yet"),
      cat(capturing ? "a captured step reads nothing: return the tensor from the step, and read it "
                      "behind the call"
                    : "move the read behind the torch_pjrt.no_cuts() block, or call "
                      "torch_pjrt.sync() before it",
          advice == kPlain ? "" : cat("; or: ", advice)));
}

}  // namespace

const char* exchange_read_kind(const char* name) { return std::exchange(t_kind, name); }

const char* permanent(const std::string& name) {
  static TableMutex mu;
  static auto* names = new std::set<std::string>;
  std::lock_guard lock(mu);
  return names->insert(name).first->c_str();
}

ReadKind::ReadKind(const char* name, const char* advice) : set_(!t_kind) {
  if (set_) t_kind = name, t_advice = advice;
}
ReadKind::~ReadKind() {
  if (set_) t_kind = t_advice = nullptr;
}

Read::Read(const char* kind)
    : kind_(t_kind ? t_kind : kind),
      where_(user_site()),
      advice_(t_advice),
      start_(probe::now_ns()),
      wait_(start_) {}

void Read::synced() { wait_ = probe::now_ns(); }

void Read::cut() {
  if (!advice_) advice_ = advice_for({kind_, where_});
  if (cuts_forbidden()) fail_forbidden(kind_, where_, advice_);
  cut_ = true;
  static probe::Counter& cuts = probe::counter("GraphCut");
  cuts.add();
  if (probe::dial() >= 2) probe::say(2, cat("graph cut: ", kind_, " at ", ir::site_text(where_)));
}

void Read::record() {
  int64_t end = probe::now_ns();
  probe::event(probe::Phase::kWait, wait_, end);
  static probe::Timer& timer = probe::timer("Read");
  timer.record(end - start_);
  static const int64_t often = flag_int(Flag::kCutWarning);
  ReadLine now;
  {
    Table& t = table();
    std::lock_guard lock(t.mu);
    ReadLine& l = t.lines.try_emplace({kind_, where_}, ReadLine{kind_, where_, nullptr, 0, 0, 0})
                      .first->second;
    if (advice_) l.advice = advice_;
    l.cuts += cut_;
    ++l.reads;
    l.wait_ns += end - start_;
    now = l;
  }
  if (cut_ && often && now.cuts == often) warn_often(now);
}

Read::~Read() {
  try {
    record();
  } catch (...) {  // no memory for a line of statistics
  }
}

std::vector<ReadLine> read_lines() {
  Table& t = table();
  std::lock_guard lock(t.mu);
  std::vector<ReadLine> out;
  for (const auto& [key, line] : t.lines) out.push_back(line);
  return out;
}

void clear_read_lines() {
  Table& t = table();
  std::lock_guard lock(t.mu);
  t.lines.clear();
}

int exchange_no_cuts(int to) {
  int before = exchange_thread_mode(ThreadMode::kNoCuts, to);
  g_forbidding += (to == kModeOn) - (before == kModeOn);
  return before;
}

bool cuts_forbidden() {
  return g_forbidding.load(std::memory_order_relaxed) > 0 &&
         thread_mode(ThreadMode::kNoCuts) == kModeOn;
}

}  // namespace tp::torch_room
