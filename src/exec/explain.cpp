#include "exec/explain.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <map>
#include <utility>

#include "base/flags.h"
#include "base/text.h"
#include "exec/reasons.h"
#include "ir/callers.h"
#include "probe/probe.h"

namespace tp::exec {
namespace {

constexpr size_t kKept = 1000, kShown = 3;
constexpr int kLoud = 8;  // lines a site; then every power of two
// Graphs of a line that are like none known and not spoken of: a script may train a few models.
constexpr int kExpected = 3;

std::string environment_text(const client::ComputationClient& c) {
  std::string text =
      cat(c.platform(), " ", c.platform_version(), " ", flags_in_key(), c.variables_text());
  for (char& x : text)
    if (x == '\n') x = ' ';
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

double epoch_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The value under `key`, made where there is none.
template <class K, class V>
V& value_of(LruMap<K, V>& map, const K& key) {
  V* found = map.get(key);
  return found ? *found : *map.put(key, V());
}

std::string line_of(const CompileEvent& e) {
  return cat(e.fresh ? "compiled a new graph" : "recompiled", e.site.empty() ? "" : " at ", e.site,
             " in ", static_cast<int64_t>(e.seconds * 1e3), " ms, ", e.nodes, " ops, key ",
             e.key.substr(0, 8), ": ", summary(e.reasons));
}

CompileEvent event_of(const Sketch& s, size_t nodes, double seconds) {
  CompileEvent e{.at = epoch_seconds(),
                 .seconds = seconds,
                 .nodes = nodes,
                 .outputs = s.roots.size(),
                 .key = s.key.total.hex(),
                 .site = s.site,
                 .rounds = rounds_of(s)};
  for (const Sketch::Leaf& l : s.leaves) e.arguments += l.feed == ir::Feed::kBuffer;
  return e;
}

}  // namespace

std::string unsynced_text(const Rounds& r) {
  if (r.count <= 1) return {};
  return cat("\n  try: torch_pjrt.sync() at the end of each step: the graph holds ",
             ir::line_text(r.where), " about ", r.count, " times");
}

std::string summary(const std::vector<Reason>& reasons) {
  std::string s;
  for (size_t i = 0; i < reasons.size() && i < kShown; ++i)
    s += cat(i ? "; " : "", reasons[i].text);
  if (reasons.size() > kShown) s += cat("; and ", reasons.size() - kShown, " more");
  return s;
}

void Explainer::set_versions(std::string torch, std::string ours) {
  std::lock_guard lock(mu_);
  torch_ = std::move(torch);
  ours_ = std::move(ours);
}

// Linear in all that is known. Of equals, one of the same line; of these, the newest.
const Sketch* Explainer::nearest_locked(const Sketch& s) {
  const Sketch* best = nullptr;
  size_t least = std::numeric_limits<size_t>::max();
  for (auto& [key, known] : known_) {  // newest first
    size_t far = 2 * distance(known, s) + (known.site != s.site);
    if (far < least) {
      least = far;
      best = &known;
    }
  }
  return best;
}

bool Explainer::loud_locked(const std::string& site) {
  int n = ++value_of(sites_, site);
  return n - 1 <= kLoud || std::has_single_bit(static_cast<unsigned>(n));
}

std::vector<std::pair<std::string, std::string>> Explainer::words(
    const client::ComputationClient& c) {
  std::string environment = environment_text(c);
  std::lock_guard lock(mu_);
  return {{std::string(ingredient_name(Ingredient::kEnvironment)), std::move(environment)},
          {std::string(ingredient_name(Ingredient::kTorchRevision)), torch_},
          {std::string(ingredient_name(Ingredient::kRevision)), ours_}};
}

// Whether this compile was to be expected, and why it was needed.
void Explainer::judge_locked(CompileEvent& e, const Sketch& s) {
  if (s.part) {
    e.reasons = {
        {"part", "an op of an interpreted graph that PyTorch's CPU kernels do not compute"}};
    return;
  }
  if (const CompileEvent* first = interpreted_.get(s.key.total)) {
    e.nearest = first->nearest;
    e.reasons = first->reasons;
    e.fresh = first->fresh;
    e.unexpected = first->unexpected;
    return;
  }
  const Sketch* near = nearest_locked(s);
  if (!near) return;
  e.nearest = near->key.total.hex();
  Comparison c = compare(*near, s);
  e.reasons = std::move(c.reasons);
  if ((e.fresh = c.fresh)) return;
  e.unexpected = sites_.get(s.site) != nullptr;
}

// From the third time on that something is told of a line.
std::string Explainer::advice_locked(const CompileEvent& e) {
  constexpr int kPatience = 3;
  if (e.rounds.count > 1) return unsynced_text(e.rounds);
  if (++value_of(reported_, e.site) < kPatience) return {};
  std::string_view text = cure(e.reasons);
  return text.empty() ? std::string() : cat("\n  try: ", text);
}

void Explainer::keep_locked(const CompileEvent& e) {
  events_.push_back(e);
  if (events_.size() > kKept) events_.pop_front();
}

void Explainer::interpreted(Sketch s, size_t nodes) {
  CompileEvent e = event_of(s, nodes, 0);
  e.interpreted = true;
  std::lock_guard lock(mu_);
  e.number = ++count_;
  unjudged_.emplace_back(std::move(e), std::move(s));
  if (unjudged_.size() > kKept) unjudged_.pop_front();
}

void Explainer::judge_interpreted_locked() {
  for (auto& [e, s] : unjudged_) {
    judge_locked(e, s);
    ++value_of(sites_, s.site);
    keep_locked(e);
    interpreted_.put(s.key.total, std::move(e));
    known_.put(s.key.total, std::move(s));
  }
  unjudged_.clear();
}

void Explainer::compiled(Sketch s, size_t nodes, double seconds, std::vector<Reason> miss) {
  CompileEvent e = event_of(s, nodes, seconds);
  bool loud = false;
  std::string advice;
  {
    std::lock_guard lock(mu_);
    s.torch = torch_;
    s.ours = ours_;
    if (!s.part) judge_interpreted_locked();
    judge_locked(e, s);
    e.number = ++count_;
    loud = !s.part && loud_locked(s.site) &&
           (e.unexpected || (e.fresh && value_of(sites_, s.site) > kExpected));
    if (!s.part && !e.unexpected &&
        !miss.empty()) {  // the first compile of this line here, but not at all
      e.reasons = std::move(miss);
      e.unexpected = true;
      e.fresh = false;
      loud = !std::exchange(value_of(reported_miss_, e.reasons[0].text), true);
    }
    if (loud) advice = advice_locked(e);
    keep_locked(e);
    if (!s.part) known_.put(s.key.total, std::move(s));
  }
  static probe::Counter& recompiles = probe::counter("Recompile");
  if (e.unexpected) recompiles.add();
  if (e.unexpected || e.fresh) probe::say(loud ? 0 : 1, cat(line_of(e), advice));
}

void Explainer::remember(Sketch s) {
  if (s.part) return;
  std::lock_guard lock(mu_);
  judge_interpreted_locked();
  ++value_of(sites_, s.site);
  if (!known_.get(s.key.total)) known_.put(s.key.total, std::move(s));
}

RunsPtr Explainer::runs_of(const Hash128& key) {
  std::lock_guard lock(mu_);
  RunsPtr& runs = value_of(runs_, key);
  if (!runs) runs = std::make_shared<std::atomic<int64_t>>(0);
  return runs;
}

std::vector<CompileEvent> Explainer::events() {
  std::lock_guard lock(mu_);
  judge_interpreted_locked();
  return {events_.begin(), events_.end()};
}

std::vector<ir::LocationId> Explainer::lines_of(std::string_view op) {
  std::map<ir::LocationId, int> count;
  {
    std::lock_guard lock(mu_);
    judge_interpreted_locked();
    for (const auto& [key, sketch] : known_)
      for (const Sketch::Op& o : sketch.ops)
        if (o.where && std::string_view(o.name).find(op) != std::string_view::npos)
          ++count[o.where];
  }
  std::vector<ir::LocationId> out;
  for (const auto& [where, n] : count) out.push_back(where);
  std::stable_sort(out.begin(), out.end(), [&](auto a, auto b) { return count[a] > count[b]; });
  return out;
}

std::unordered_map<Hash128, int64_t> Explainer::runs() {
  std::lock_guard lock(mu_);
  std::unordered_map<Hash128, int64_t> out;
  for (auto& [key, n] : runs_)
    if (int64_t now = n->load(std::memory_order_relaxed)) out.emplace(key, now);
  return out;
}

void Explainer::clear() {
  std::lock_guard lock(mu_);
  judge_interpreted_locked();  // known graphs stay
  events_.clear();
  for (auto& [key, n] : runs_) n->store(0, std::memory_order_relaxed);
}

}  // namespace tp::exec
