#include "torch/cuts.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/error.h"
#include "base/flags.h"
#include "base/forks.h"
#include "base/text.h"
#include "probe/events.h"
#include "probe/probe.h"
#include "torch/frames.h"

namespace tp::torch_room {
namespace {

thread_local const char* t_kind = nullptr;
std::atomic<int> g_forbidden{0};

struct Table {
  TableMutex mu;
  std::map<std::pair<std::string_view, ir::LocationId>, ReadLine> lines;
};
Table& table() {
  static auto* t = new Table;
  return *t;
}

std::string milliseconds(int64_t ns) { return cat(ns / 1'000'000, " ms"); }

void warn_often(const ReadLine& l) {
  probe::say(0, cat(ir::line_text(l.where), ": ", l.kind, " has cut the graph ", l.cuts,
                    " times and waited ", milliseconds(l.wait_ns),
                    ": read it every few steps, or keep the value on the device "
                    "(torch_pjrt.explain() lists all cuts)"));
}

}  // namespace

const char* exchange_read_kind(const char* name) { return std::exchange(t_kind, name); }

const char* permanent(const std::string& name) {
  static TableMutex mu;
  static auto* names = new std::set<std::string>;
  std::lock_guard lock(mu);
  return names->insert(name).first->c_str();
}

ReadKind::ReadKind(const char* name) : set_(!t_kind) {
  if (set_) t_kind = name;
}
ReadKind::~ReadKind() {
  if (set_) t_kind = nullptr;
}

Read::Read(const char* kind)
    : kind_(t_kind ? t_kind : kind), where_(user_line()), start_(probe::now_ns()), wait_(start_) {}

void Read::synced() { wait_ = probe::now_ns(); }

void Read::cut() {
  if (g_forbidden.load(std::memory_order_relaxed) > 0) {
    std::string line = ir::line_text(where_);
    fail(
        Code::kRuntime,
        cat("no_cuts: ", kind_, " would cut the graph", line.empty() ? "" : cat(" at ", line),
            ": its value is not computed yet"),
        "move the read behind the torch_pjrt.no_cuts() block, or call torch_pjrt.sync() before it");
  }
  cut_ = true;
  static probe::Counter& cuts = probe::counter("GraphCut");
  cuts.add();
  if (probe::dial() >= 2)
    probe::say(2, cat("graph cut: ", kind_, " at ", ir::line_and_function(where_)));
}

Read::~Read() {
  try {
    book();
  } catch (const std::exception&) {  // a flag that cannot be read: only the counts miss it
  }
}

void Read::book() {
  int64_t end = probe::now_ns();
  probe::event(probe::Phase::kWait, wait_, end);
  static probe::Timer& timer = probe::timer("Read");
  timer.record(end - start_);
  static const int64_t often = flag_int(Flag::kCutWarning);
  ReadLine now;
  {
    Table& t = table();
    std::lock_guard lock(t.mu);
    ReadLine& l =
        t.lines.try_emplace({kind_, where_}, ReadLine{kind_, where_, 0, 0, 0}).first->second;
    l.cuts += cut_;
    ++l.reads;
    l.wait_ns += end - start_;
    now = l;
  }
  if (cut_ && often && now.cuts == often) warn_often(now);
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

void forbid_cuts(int change) { g_forbidden += change; }

}  // namespace tp::torch_room
