#include "exec/launches.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "probe/probe.h"

namespace tp::exec {

using ir::Value;

namespace {

// "3 buffers: f32[2,3], f32[3], f32[3]"
std::string listed(const std::vector<ir::Type>& types) {
  constexpr size_t kShown = 4;
  std::string s = cat(types.size(), types.size() == 1 ? " buffer: " : " buffers: ");
  for (size_t i = 0; i < types.size() && i < kShown; ++i) s += cat(i ? ", " : "", types[i].text());
  return types.size() > kShown ? s + ", ..." : s;
}

// Of a program whose end the plugin would not let us watch. Its outputs may well be sound: reading
// one asks the output itself.
class Unwatched final : public client::Completion {
 public:
  explicit Unwatched(Error error) : error_(std::move(error)) {}
  bool ready() const override { return true; }
  void await() const override { throw error_; }

 private:
  Error error_;
};

// Never throws: the program runs already, and what it was given to overwrite is gone.
std::shared_ptr<const client::Completion> end_of(const client::Data& output) {
  try {
    return output.completion();
  } catch (const Error& e) {
    return std::make_shared<Unwatched>(e);
  }
}

// A plugin that cannot say is asked again by the launch that needs the bytes.
bool is_gone(const client::Data& data) {
  try {
    return data.deleted();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Error lost_error(const Error& e, const std::string& lost) {
  return Error(e.code(),
               cat(e.message(),
                   "\n  this value is lost: it needs what the failed program was updating "
                   "in place (",
                   lost, ")"))
      .fix(
          "load it again (a checkpoint, the data), or run with TORCH_PJRT_DONATION=0, which keeps "
          "old values until the new ones are there");
}

Error launch_error(const Error& e, std::span<const client::DataPtr> arguments) {
  std::vector<ir::Type> gone;
  for (const client::DataPtr& a : arguments)
    if (is_gone(*a)) gone.push_back(a->type());
  return e.raised_by() >= 0 || gone.empty() ? e : lost_error(e, listed(gone));
}

// The nodes that depend on the one at place `at` of the program with these roots.
std::unordered_set<const ir::Node*> dependents(const std::vector<Value>& roots, int64_t at) {
  std::lock_guard lock(ir::graph_lock());
  ir::Graph g = ir::build_graph(roots, [](const ir::Node&) { return true; });
  std::unordered_set<const ir::Node*> found;
  for (size_t i = static_cast<size_t>(at); i < g.order.size(); ++i) {
    auto operands = g.order[i]->operands();
    if (i == static_cast<size_t>(at) ||
        std::any_of(operands.begin(), operands.end(),
                    [&](const Value& v) { return found.contains(v.node.get()); }))
      found.insert(g.order[i]);
  }
  return found;
}

void Launches::add(std::vector<Value> roots, const std::vector<client::DataPtr>& outputs,
                   std::vector<ir::Type> donated, Blame blame,
                   std::vector<client::DataPtr> consumed) {
  Launch l{0,
           std::move(roots),
           {outputs.begin(), outputs.end()},
           end_of(*outputs.back()),
           std::move(donated),
           std::move(blame),
           std::move(consumed)};
  std::lock_guard lock(mu_);
  l.number = next_++;
  in_flight_.push_back(std::move(l));
}

// The oldest launch, in leaving_ while its end is awaited. It goes back to in_flight_ where that
// throws (Ctrl-C, or no memory to note its failure).
class Launches::Leaving {
 public:
  explicit Leaving(Launches& of) : of_(of) {}
  ~Leaving() {
    std::list<Launch> done;  // destroyed outside the lock: dropping a root may free device buffers
    std::lock_guard lock(of_.mu_);
    if (at_ == of_.leaving_.end()) return;
    std::list<Launch>& to = over_ ? done : of_.in_flight_;
    auto place = std::find_if(to.begin(), to.end(),
                              [this](const Launch& l) { return l.number > at_->number; });
    to.splice(place, of_.leaving_, at_);
    of_.left_.notify_all();
  }
  Leaving(const Leaving&) = delete;

  // Is there a launch before `before` or, where that is 0, more than `keep` or one that is over?
  bool take(size_t keep, uint64_t before) {
    std::lock_guard lock(of_.mu_);
    if (of_.in_flight_.empty()) return false;
    const Launch& first = of_.in_flight_.front();
    bool due = before ? first.number < before : of_.in_flight_.size() > keep || first.end->ready();
    if (due) of_.leaving_.splice(of_.leaving_.begin(), of_.in_flight_, of_.in_flight_.begin());
    at_ = due ? of_.leaving_.begin() : at_;
    return due;
  }
  Launch& launch() { return *at_; }
  void over() { over_ = true; }

 private:
  Launches& of_;
  std::list<Launch>::iterator at_ = of_.leaving_.end();
  bool over_ = false;
};

void Launches::retire(size_t keep, uint64_t before) {
  for (;;) {
    Leaving l(*this);
    if (!l.take(keep, before)) return;
    try {
      l.launch().end->await();
    } catch (const Error& e) {
      record_failure(l.launch(), e);
    }
    l.over();
  }
}

void Launches::retire(size_t keep) { retire(keep, 0); }

// Others may have taken launches, and, where Ctrl-C ends their wait, put them back.
void Launches::wait() {
  RankedLock lock(mu_);
  const uint64_t end = next_;
  auto any_of_mine = [end](const std::list<Launch>& in) {
    return std::any_of(in.begin(), in.end(), [end](const Launch& l) { return l.number < end; });
  };
  while (any_of_mine(in_flight_) || any_of_mine(leaving_)) {
    lock.unlock();
    retire(0, end);
    lock.lock();
    wait_interruptibly(lock, left_,
                       [&] { return any_of_mine(in_flight_) || !any_of_mine(leaving_); });
  }
}

bool Launches::in_flight() {
  std::lock_guard lock(mu_);
  if (!leaving_.empty()) return true;
  return std::any_of(in_flight_.begin(), in_flight_.end(),
                     [](const Launch& l) { return !l.end->ready(); });
}

bool Launches::reads_failed(const ir::Node& n) {
  if (!any_failed_.load(std::memory_order_relaxed)) return false;
  std::lock_guard lock(mu_);
  std::erase_if(failed_, [](const auto& f) { return f.second.output.expired(); });
  any_failed_.store(!failed_.empty(), std::memory_order_relaxed);
  auto operands = n.operands();
  return std::any_of(operands.begin(), operands.end(), [this](const Value& v) {
    return failed_.contains(static_cast<const client::Data*>(v.node->payload().get()));
  });
}

// Does computing `root` need bytes that are gone? Under both locks.
bool Launches::is_lost(const Value& root) const {
  ir::Graph g = ir::build_graph({root}, [](const ir::Node&) { return true; });
  for (const ir::LeafUse& use : g.leaves) {
    auto* data = static_cast<const client::Data*>(use.node->payload().get());
    if (!data) continue;
    auto it = failed_.find(data);
    if (it != failed_.end() ? !it->second.lost.empty() : is_gone(*data)) return true;
  }
  return false;
}

void Launches::record_failure(Launch& l, const Error& e) {
  probe::counter("FailedExecutions").add();
  std::unordered_set<const ir::Node*> hit;
  if (e.raised_by() >= 0 && !l.roots.empty()) hit = dependents(l.roots, e.raised_by());
  std::lock_guard graph(ir::graph_lock());
  std::lock_guard lock(mu_);
  any_failed_.store(true, std::memory_order_relaxed);
  std::erase_if(failed_, [](const auto& f) { return f.second.output.expired(); });
  auto reported = std::make_shared<bool>(false);
  std::string blame = blame_text(l.blame, l.roots);
  std::string what = l.donated.empty() ? "buffers of an earlier program" : listed(l.donated);
  for (size_t i = 0; i < l.outputs.size(); ++i) {
    client::DataPtr output = l.outputs[i].lock();
    if (!output) continue;
    if (l.roots.empty()) {  // a replay's: nothing says how to compute it anew
      failed_[output.get()] = {output, Value(), reported, "", true, blame};
      continue;
    }
    bool lost = is_lost(l.roots[i]);
    bool concerned = e.raised_by() < 0 || hit.contains(l.roots[i].node.get());
    failed_[output.get()] = {
        output, lost ? Value() : l.roots[i], reported, lost ? what : "", concerned, blame};
  }
}

std::optional<Launches::Recovered> Launches::recover(const client::Data* data) {
  wait();
  std::lock_guard lock(mu_);
  auto it = failed_.find(data);
  if (it == failed_.end() || it->second.output.expired()) return std::nullopt;
  const Failed& f = it->second;
  bool reported = !f.concerned || std::exchange(*f.reported, true);
  return Recovered{f.value, reported, f.lost, f.concerned, f.blame};
}

bool Launches::revive(std::vector<Value>& roots) {
  for (bool any = false;;
       any = true) {  // a failed program may itself have read a failed program's buffers
    std::unordered_map<const ir::Node*, Value> lost;
    {
      std::lock_guard lock(mu_);
      if (failed_.empty()) return any;
    }
    ir::Graph g = ir::build_graph(roots, [](const ir::Node&) { return true; });
    {
      std::lock_guard lock(mu_);
      for (const ir::LeafUse& use : g.leaves) {
        auto it = failed_.find(static_cast<const client::Data*>(use.node->payload().get()));
        if (it != failed_.end() && it->second.value) lost.emplace(use.node, it->second.value);
      }
    }
    if (lost.empty()) return any;
    auto now = [&lost](const Value& v) {
      auto it = lost.find(v.node.get());
      return it == lost.end()                    ? v
             : v.node->role() == ir::Role::kData ? it->second
                                                 : Value{it->second.node, v.index};
    };
    for (const ir::Node* n : g.order) {
      std::vector<Value> operands;
      bool changed = false;
      for (const Value& v : n->operands()) {
        operands.push_back(now(v));
        changed = changed || !(operands.back() == v);
      }
      if (changed) lost[n] = {n->with_operands(operands), 0};
    }
    for (Value& r : roots) r = now(r);
  }
}

}  // namespace tp::exec
