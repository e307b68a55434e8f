#include "exec/segments.h"

#include <algorithm>
#include <unordered_set>

#include "exec/runs.h"
#include "ops/core/numbers.h"
#include "ops/core/row.h"

namespace tp::exec {
namespace {

using ir::Node;
using ir::Value;

// A program of so many ops costs little to compile, and its launch little beside them.
constexpr uint32_t kSegmentNodes = 64;
// Ops that a fusion may compute again for each value that is kept.
constexpr uint32_t kMostRecomputed = 512;

bool is_interior(const Node& n) { return n.role() == ir::Role::kInterior; }

bool is_recomputed(const Node& n) {
  const ops::Row* row = ops::row_of(n.kind());
  return row && row->recomputed;
}

// Interior nodes in the order in which they were recorded.
std::vector<const Node*> recorded_order(const ir::Graph& g) {
  std::vector<const Node*> order;
  order.reserve(g.order.size());
  for (const Node* n : g.order)
    if (is_interior(*n)) order.push_back(n);
  std::sort(order.begin(), order.end(),
            [](const Node* a, const Node* b) { return a->sequence() < b->sequence(); });
  return order;
}

// What a node is, but for the numbers that differ from round to round.
uint64_t word_of(const Node& n) {
  Hash128 h = n.node_hash();
  const ops::Row* row = ops::row_of(n.kind());
  if (row && *row->general) {
    std::vector<uint64_t> words;
    std::vector<ops::Number> numbers;
    ops::split_numbers(n, *row, words, numbers);
    h = mix(n.kind().hash, hash_bytes(words.data(), words.size() * sizeof(uint64_t)).lo);
  }
  for (ir::Type t : n.types()) h = mix(h, t ? t.hash().lo : 0);
  return h.lo;
}

class Splitter {
 public:
  explicit Splitter(const ir::Graph& g)
      : g_(g), order_(recorded_order(g)), place_(g.order.size()), roots_(g.order.size()) {
    for (uint32_t i = 0; i < order_.size(); ++i) place_[order_[i]->slot] = i;
    for (const Value& r : g.roots) roots_[r.node->slot] = true;
  }

  size_t size() const { return order_.size(); }
  const Node& at(uint32_t i) const { return *order_[i]; }

  // Runs that are loops, where nearly all of the graph is. Each begins where a round does.
  std::vector<Run> loops() const {
    std::vector<uint64_t> words;
    words.reserve(order_.size());
    for (const Node* n : order_) words.push_back(word_of(*n));
    std::vector<Run> found = find_runs(words);
    std::erase_if(found, [this](const Run& r) { return is_layers(r); });
    size_t covered = 0;
    for (const Run& r : found) covered += r.end - r.start;
    if (5 * covered < 4 * order_.size()) return {};
    std::vector<uint32_t> crossing = crossings();
    for (Run& r : found) r.start += phase_of(r, crossing);
    return found;
  }

  // Do fusions compute a lot again for the values that are kept?
  bool recomputes() const {
    size_t cheap = 0, again = 0;
    each_depth([&](uint32_t, uint32_t depth) {
      again += depth;
      return false;
    });
    for (const Node* n : order_) cheap += is_recomputed(*n);
    return again >= 2048 && again >= 8 * cheap;
  }

  // Where they have computed that much again.
  std::vector<uint32_t> chain_cuts() const {
    std::vector<uint32_t> cuts;
    size_t again = 0;
    each_depth([&](uint32_t i, uint32_t depth) {
      again += depth;
      if (again < kMostRecomputed) return false;
      cuts.push_back(i + 1);
      again = 0;
      return true;
    });
    return cuts;
  }

  std::vector<uint32_t> loop_cuts(const std::vector<Run>& loops) const {
    std::vector<uint32_t> cuts;
    for (const Run& r : loops) {
      uint32_t together = 1, left = r.count(), at = r.start;
      while (2 * together * r.period <= kSegmentNodes) together *= 2;
      cuts.push_back(at);
      for (; left > 0; cuts.push_back(at)) {
        while (together > left) together /= 2;
        at += together * r.period;
        left -= together;
      }
    }
    return cuts;
  }

  Split split(std::vector<uint32_t> cuts) const {
    std::sort(cuts.begin(), cuts.end());
    Split s;
    s.segment_of.resize(g_.order.size());
    size_t next = 0;
    uint32_t segment = 0;
    for (uint32_t i = 0; i < order_.size(); ++i) {
      bool cut = false;
      for (; next < cuts.size() && cuts[next] <= i; ++next) cut = true;
      if (cut && i > 0) ++segment;
      s.segment_of[order_[i]->slot] = segment;
    }
    s.num_segments = segment + 1;
    return s.num_segments > 1 ? s : Split{};
  }

 private:
  bool has(const Node& n) const { return n.slot < g_.order.size() && g_.order[n.slot] == &n; }

  // The buffers that round i of the run takes and the round before it does not.
  size_t new_buffers(const Run& r, uint32_t i) const {
    std::unordered_set<const Node*> before, now;
    auto collect = [&](uint32_t round, std::unordered_set<const Node*>& to) {
      for (uint32_t k = 0; k < r.period; ++k)
        for (const Value& v : order_[r.start + round * r.period + k]->operands())
          if (v.node->role() == ir::Role::kData || v.node->role() == ir::Role::kFill)
            to.insert(v.node.get());
    };
    collect(i - 1, before);
    collect(i, now);
    return static_cast<size_t>(
        std::ranges::count_if(now, [&](const Node* n) { return !before.contains(n); }));
  }

  // Layers take weights of their own, rounds of a loop at most a batch.
  bool is_layers(const Run& r) const {
    size_t taken = new_buffers(r, r.count() / 2);
    bool few = taken <= std::max(r.period / 32, r.period >= 8 ? 2u : 0u);
    return !few && !(r.count() >= 64 && taken <= 2);
  }

  // By place: how many values are made before it and used behind it.
  std::vector<uint32_t> crossings() const {
    std::vector<uint32_t> last(order_.size()), change(order_.size() + 1), out(order_.size());
    for (uint32_t i = 0; i < order_.size(); ++i) {
      last[i] = i;
      for (const Value& v : order_[i]->operands())
        if (is_interior(*v.node)) last[place_[v.node->slot]] = i;
    }
    for (uint32_t i = 0; i < order_.size(); ++i) {
      if (roots_[order_[i]->slot]) continue;  // they are kept anyhow
      ++change[i + 1];
      --change[std::min<size_t>(last[i] + 1, order_.size())];
    }
    uint32_t open = 0;
    for (uint32_t i = 0; i < order_.size(); ++i) out[i] = open += change[i];
    return out;
  }

  // How far into the run a round ends: where clearly less has to be handed on than at its start.
  static uint32_t phase_of(const Run& r, const std::vector<uint32_t>& crossing) {
    uint32_t from = r.start + r.count() / 2 * r.period, best = 0;
    for (uint32_t i = 1; i < r.period; ++i)
      if (4 * crossing[from + i] < 3 * crossing[from + best]) best = i;
    return best;
  }

  // f(i, d) for each kept node that its users compute again, d ops deep; where f says so, what
  // stands there is a segment's end.
  template <class F>
  void each_depth(F&& f) const {
    std::vector<uint32_t> depth(order_.size());
    uint32_t begin = 0;
    for (uint32_t i = 0; i < order_.size(); ++i) {
      if (!is_recomputed(*order_[i])) continue;
      for (const Value& v : order_[i]->operands())
        if (is_interior(*v.node) && place_[v.node->slot] >= begin)
          depth[i] = std::max(depth[i], depth[place_[v.node->slot]]);
      ++depth[i];
      if (roots_[order_[i]->slot] && f(i, depth[i])) begin = i + 1;
    }
  }

  const ir::Graph& g_;
  std::vector<const Node*> order_;
  std::vector<uint32_t> place_;  // by slot
  std::vector<bool> roots_;      // by slot
};

const Run& longest(const std::vector<Run>& loops) {
  return *std::ranges::max_element(loops, {}, [](const Run& r) { return r.end - r.start; });
}

}  // namespace

Split split_graph(const ir::Graph& g, size_t least_nodes) {
  constexpr size_t kLeastChain = 64;
  if (!least_nodes || g.order.size() < kLeastChain) return {};
  Splitter s(g);
  bool again = s.recomputes();
  if (s.size() < least_nodes && !again) return {};
  std::vector<Run> loops = s.loops();
  if (loops.empty()) return again ? s.split(s.chain_cuts()) : Split{};
  Split split = s.split(s.loop_cuts(loops));
  const Run& most = longest(loops);
  split.rounds = most.count();
  split.where = s.at(most.start).location();
  return split;
}

Loop loop_of(const ir::Graph& g) {
  Splitter s(g);
  if (s.size() < kLeastRounds) return {};
  std::vector<Run> loops = s.loops();
  if (loops.empty() || loops.back().end + loops.back().period < s.size()) return {};
  const Run& r = loops.back();
  uint32_t end = r.start + r.count() * r.period;
  uint64_t length = s.at(end - 1).sequence() - s.at(end - 1 - r.period).sequence();
  bool whole = end == s.size();
  return {r.count(), s.at(end - 1).sequence() + (whole ? 0 : length), s.at(r.start).location()};
}

}  // namespace tp::exec
