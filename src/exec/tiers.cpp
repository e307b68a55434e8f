#include "exec/tiers.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"

namespace tp::exec {

namespace {

constexpr std::string_view kWords[] = {"off", "small", "varying", "on"};  // by Tier
thread_local std::optional<Tier> t_tier;

std::optional<Tier> tier_of(std::string_view word) {
  for (size_t i = 0; i < std::size(kWords); ++i)
    if (kWords[i] == word) return static_cast<Tier>(i);
  return std::nullopt;
}

}  // namespace

Tier tier_setting() {
  return t_tier ? *t_tier : tier_of(flag_text(Flag::kTiers)).value_or(Tier::kOff);
}

std::string exchange_thread_tier(const std::string& word) {
  std::optional<Tier> to = tier_of(word);
  if (!to && !word.empty())
    fail(Code::kValue, cat("tiers: expected off, small, varying or on, found '", word, "'"));
  std::optional<Tier> was = std::exchange(t_tier, to);
  return was ? std::string(kWords[static_cast<size_t>(*was)]) : std::string();
}

int Tiers::seen(const Hash128& key) {
  std::lock_guard lock(mu_);
  int* n = seen_.get(key);
  return n ? *n : 0;
}

Tiers::Count Tiers::count(const Hash128& key, const std::string& site) {
  constexpr int kOfTwo = 8;
  std::lock_guard lock(mu_);
  int* n = seen_.get(key);
  InterpretedLine* l = lines_.get(site);
  int64_t graphs = l ? l->graphs + (n == nullptr) : 1;
  return {n ? *n : 0, graphs == 1 ? 2 : graphs == 2 ? kOfTwo : kMostSeen, graphs};
}

void Tiers::note(const Hash128& key, const std::string& site, size_t nodes, bool peeled) {
  std::lock_guard lock(mu_);
  int* n = seen_.get(key);
  int before = n ? *n : 0;
  seen_.put(key, std::min(before + 1, kMostSeen));
  InterpretedLine* l = lines_.get(site);
  if (!l) l = lines_.put(site, {.site = site});
  l->nodes = nodes;
  l->graphs += before == 0;
  ++l->times;
  l->peeled += peeled;
}

bool Tiers::compiled_before(const std::string& site) {
  std::lock_guard lock(mu_);
  return compiled_.get(site) != nullptr;
}

void Tiers::compiles(const std::string& site) {
  std::lock_guard lock(mu_);
  compiled_.put(site, true);
}

bool Tiers::varies(const Hash128& core, const Hash128& graph, bool learn) {
  std::lock_guard lock(mu_);
  Core* c = cores_.get(core);
  if (!c) {
    if (learn) cores_.put(core, {graph});
    return false;
  }
  if (learn && !(c->graph == graph)) c->varies = true;
  return c->varies;
}

std::vector<InterpretedLine> Tiers::lines() {
  std::lock_guard lock(mu_);
  std::vector<InterpretedLine> out;
  for (auto& [site, line] : lines_) out.push_back(line);
  return out;
}

void Tiers::clear() {
  std::lock_guard lock(mu_);
  seen_.clear();
  cores_.clear();
  compiled_.clear();
}

}  // namespace tp::exec
