#include "exec/executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <numeric>
#include <thread>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/flags.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "client/registry.h"
#include "exec/blame.h"
#include "exec/cold.h"
#include "exec/dump.h"
#include "exec/fill.h"
#include "lower/lower.h"
#include "probe/events.h"
#include "probe/probe.h"

namespace tp::exec {
namespace {

using client::DataPtr;
using ir::Value;

// Says what is being compiled once that has taken longer than the flag allows.
class SlowNotice {
 public:
  explicit SlowNotice(std::string text)
      : thread_([this, text = std::move(text)] {
          std::unique_lock lock(mu_);
          auto limit = std::chrono::milliseconds(flag_int(Flag::kSlowCompile));
          if (!done_cv_.wait_for(lock, limit, [this] { return done_; })) probe::say(0, text);
        }) {}
  ~SlowNotice() {
    {
      std::lock_guard lock(mu_);
      done_ = true;
    }
    done_cv_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mu_;
  std::condition_variable done_cv_;
  bool done_ = false;
  std::thread thread_;
};

// Dense host bytes with an owner, for the packed numbers and for fills.
template <class T>
client::HostBuffer host_vector(std::vector<T> v, ir::DType dtype) {
  auto owner = std::make_shared<std::vector<T>>(std::move(v));
  int64_t n = static_cast<int64_t>(owner->size());
  return {owner->data(), ir::make_type(dtype, std::span(&n, 1)), owner};
}

void put_scalar(const ir::Scalar& s, const ir::LeafUse& use, std::vector<int64_t>& ints,
                std::vector<double>& reals) {
  if (use.feed == ir::Feed::kInteger) {
    ints[use.index] = s.integer;
    return;
  }
  reals[use.index] = s.re;
  if (s.kind == ir::Scalar::Kind::kComplex) reals[use.index + 1] = s.im;
}

std::string module_text(const ir::Graph& g, const Key& key) {
  bool cpu = client::client().platform() == "cpu";
  return lower::lower(g, "g" + key.total.hex().substr(0, 12),
                      cpu ? lower::Target::kCpu : lower::Target::kAccelerator)
      .text;
}

bool is_leaf(const Value& v) {
  return v.node->role() == ir::Role::kData || v.node->role() == ir::Role::kFill;
}

}  // namespace

struct Executor::Planned {
  ir::Graph graph;
  Key key;
  std::vector<int>
      output_of;  // for each request root: its place among graph.roots, or -1 for a leaf
};

Executor::Executor(std::string torch_revision, std::string revision)
    : torch_revision_(std::move(torch_revision)),
      revision_(std::move(revision)),
      cache_(static_cast<size_t>(flag_int(Flag::kCompilationCacheSize))) {}

namespace {

// Places of `roots` in the order in which they enter the program: by hash, ties in the caller's
// order (that of creation). Creation order alone would not do: optimizer state is created after the
// first step's gradients and before the second's, and the two steps have to be one program.
std::vector<size_t> canonical_order(const std::vector<Value>& roots) {
  std::vector<std::pair<Hash128, uint32_t>> keys;
  keys.reserve(roots.size());
  for (const Value& r : roots) keys.emplace_back(r.node->hash(), r.index);
  std::vector<size_t> order(roots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto& [x, i] = keys[a];
    const auto& [y, k] = keys[b];
    return std::tie(x.hi, x.lo, i) < std::tie(y.hi, y.lo, k);
  });
  return order;
}

}  // namespace

void Executor::revive(std::vector<Value>& roots) {
  for (;;) {  // a failed program may itself have read a failed program's buffers
    std::unordered_map<const ir::Node*, Value> lost;
    ir::Graph g = ir::build_graph(roots, [](const ir::Node&) { return true; });
    {
      std::lock_guard lock(mu_);
      if (failed_.empty()) return;
      for (const ir::LeafUse& use : g.leaves) {
        auto it = failed_.find(static_cast<const client::Data*>(use.node->payload().get()));
        if (it != failed_.end()) lost.emplace(use.node, it->second.value);
      }
    }
    if (lost.empty()) return;
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
      if (changed)
        lost[n] = {ir::Node::make(n->kind(), operands, n->types(), n->attrs().words()), 0};
    }
    for (Value& r : roots) r = now(r);
  }
}

// The caller holds graph_lock().
Executor::Planned Executor::plan(SyncRequest& request) {
  Planned p;
  bool failures;
  {
    std::lock_guard lock(mu_);
    failures = !failed_.empty();
  }
  if (failures) revive(request.roots);
  std::vector<Value> roots;
  std::unordered_map<const ir::Node*, std::vector<int>> place;  // per output index
  p.output_of.assign(request.roots.size(), -1);
  for (size_t i : canonical_order(request.roots)) {
    const Value& r = request.roots[i];
    if (is_leaf(r)) continue;
    std::vector<int>& of_node = place[r.node.get()];
    if (of_node.size() <= r.index) of_node.resize(r.index + 1, -1);
    int& at = of_node[r.index];
    if (at < 0) {
      at = static_cast<int>(roots.size());
      roots.push_back(r);
    }
    p.output_of[i] = at;
  }
  p.graph = ir::build_graph(std::move(roots), request.uploaded);
  if (flag_int(Flag::kVerify) >= 2) ir::verify(p.graph);
  p.key = make_key({.force_data = request.force_data,
                    .environment = client::client().environment_hash(),
                    .torch_revision = torch_revision_,
                    .revision = revision_,
                    .roots = p.graph.roots,
                    .parameter_sequence = p.graph.sequence,
                    .donated = {},
                    .sharding = {}});
  return p;
}

// What one compile needs. It owns all of it: the sync that wants the program may be gone before it
// ends (Ctrl-C), and nodes are not for other threads.
struct Executor::Job {
  Key key;
  std::vector<uint64_t> signature;
  size_t nodes = 0;
  std::string module;
  std::vector<ir::Type> outputs;
  int device = 0;
  std::string where, blame;
  Sketch sketch;
};

ProgramPtr Executor::program_for(SyncRequest& request, Planned& planned) {
  auto job = std::make_shared<Job>();
  {
    std::lock_guard lock(ir::graph_lock());
    planned = plan(request);
    const auto& [graph, key, output_of] = planned;
    if (graph.roots.empty()) return nullptr;
    if (saves_tensors()) [[unlikely]]
      save_tensors(graph, saves_modules() ? module_text(graph, key) : std::string(), request.where);
    if (ProgramPtr hit = cache_.find(key, graph.signature)) return hit;
    probe::Span span(probe::timer("Lower"));
    probe::Section section("torch_pjrt::lower");
    int64_t start = probe::now_ns();
    *job = {.key = key,
            .signature = graph.signature,
            .nodes = graph.num_nodes(),
            .module = module_text(graph, key),
            .outputs = {},
            .device = request.device,
            .where = request.where,
            .blame = blame_text({key.total, request.where}, graph.roots),
            .sketch = make_sketch(graph, key, request.where)};
    for (const Value& r : graph.roots) job->outputs.push_back(r.type());
    auto record = std::make_shared<GraphRecord>();
    *record = {job->nodes, ir::dump_text(graph, ir::Lines::kYes), job->module, ir::dump_dot(graph),
               key.total};
    probe::event(probe::Phase::kLower, start, probe::now_ns(), key.total.hi);
    dump_compiled(
        {record->text, record->dot, job->module, request.where, record->key.hex(), record->nodes});
    std::lock_guard mine(mu_);
    records_.put(key.total, std::move(record));
  }
  return cache_.find_or_compile(job->key, job->signature, [this, job] { return compile(*job); });
}

namespace {

client::ExecutablePtr compile_module(const client::CompileRequest& request, const std::string& what,
                                     const std::string& blame) {
  probe::Section section("torch_pjrt::compile");
  SlowNotice notice(cat("compiling for more than ", flag_int(Flag::kSlowCompile), " ms: ", what));
  try {
    return client::client().compile(request);
  } catch (const Error& e) {
    throw with_line(e, blame);
  }
}

}  // namespace

ProgramPtr Executor::compile(const Job& job) {
  std::string what = cat(job.nodes, " ops, key ", job.key.total.hex().substr(0, 8),
                         job.where.empty() ? "" : cat(", synced at ", job.where));
  auto program = std::make_shared<Program>();
  StoredProgram stored{
      job.key,     hash_bytes(job.signature.data(), job.signature.size() * sizeof job.signature[0]),
      job.outputs, static_cast<int64_t>(job.nodes),
      job.where,   explainer_.words()};
  int64_t start = probe::now_ns();
  program->executable = disk_.load(stored);
  program->from_disk = program->executable != nullptr;
  if (!program->from_disk)
    program->executable = compile_module(
        {.module = job.module, .outputs = job.outputs, .device = job.device}, what, job.blame);
  int64_t end = probe::now_ns();
  probe::event(probe::Phase::kCompile, start, end, job.key.total.hi);
  program->compile_seconds = static_cast<double>(end - start) * 1e-9;
  if (!program->from_disk) disk_.store(stored, *program->executable, program->compile_seconds);
  program->key = job.key;
  program->signature = job.signature;
  program->nodes = job.nodes;
  if (probe::dial() >= 3) probe::say(3, cat("graph\n", record(job.key.total.hex()).text));
  if (probe::dial() >= 4) probe::say(4, cat("module\n", job.module));
  probe::say(1, cat(program->from_disk ? "loaded " : "compiled ", what, " in ",
                    static_cast<int64_t>(program->compile_seconds * 1e3), " ms"));
  if (program->from_disk)
    explainer_.remember(job.sketch);
  else
    explainer_.compiled(job.sketch, program->nodes, program->compile_seconds, why_cold(stored));
  return program;
}

namespace {

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

[[noreturn]] void rethrow_failure(const Error& e, const std::vector<Value>& program,
                                  const std::vector<Value>& asked) {
  if (e.raised_by() < 0) throw Error(e);
  auto hit = dependents(program, e.raised_by());
  std::vector<size_t> roots;
  for (size_t i = 0; i < asked.size(); ++i)
    if (hit.contains(asked[i].node.get())) roots.push_back(i);
  throw HostFailure(e, std::move(roots));
}

}  // namespace

std::vector<DataPtr> Executor::arguments(const Planned& planned, SyncResult& result, int device) {
  const ir::Graph& g = planned.graph;
  std::vector<DataPtr> args(g.num_buffers);
  std::vector<int64_t> ints(g.num_integers);
  std::vector<double> reals(g.num_reals);
  for (const ir::LeafUse& use : g.leaves) {
    if (use.feed != ir::Feed::kBuffer)
      put_scalar(use.node->scalar(), use, ints, reals);
    else if (use.node->role() == ir::Role::kData)
      args[use.index] = std::static_pointer_cast<client::Data>(use.node->payload());
    else
      args[use.index] = result.uploads[use.node] = upload_fill(*use.node, device);
  }
  if (!ints.empty())
    args.push_back(
        client::client().transfer_to_device(host_vector(std::move(ints), ir::DType::kS64), device));
  if (!reals.empty())
    args.push_back(client::client().transfer_to_device(
        host_vector(std::move(reals), ir::DType::kF64), device));
  return args;
}

std::vector<DataPtr> Executor::start(const SyncRequest& request, const Planned& planned,
                                     const Program& program, SyncResult& result) {
  int64_t begin = probe::now_ns();
  std::vector<DataPtr> args = arguments(planned, result, request.device), outputs;
  uint64_t id = planned.key.total.hi;
  int64_t launch = probe::now_ns();
  probe::event(probe::Phase::kPrepare, begin, launch, id);
  try {
    probe::Section section("torch_pjrt::execute");
    outputs = client::client().execute(*program.executable, args, {}, request.device);
  } catch (const Error& e) {
    rethrow_failure(e, planned.graph.roots, request.roots);
  }
  try {
    outputs.back()->on_ready(
        [launch, id] { probe::event(probe::Phase::kExecute, launch, probe::now_ns(), id); });
  } catch (const Error&) {  // the program runs; only its end is not on the timeline
  }
  return outputs;
}

SyncResult Executor::sync(SyncRequest request) {
  client::check_not_forked();
  retire(static_cast<size_t>(flag_int(Flag::kInFlight)));
  SyncResult result;
  Planned planned;
  ProgramPtr program = program_for(request, planned);
  std::vector<DataPtr> outputs;
  if (program) {
    Blame blame{planned.key.total, request.where};
    try {
      outputs = start(request, planned, *program, result);
    } catch (const HostFailure&) {
      throw;  // the error of one op, at its own line
    } catch (const Error& e) {
      throw with_line(e, blame_text(blame, planned.graph.roots));
    }
    explainer_.ran(planned.key.total);
    if (probe::dial() >= 2)
      probe::say(2, cat("sync at ", request.where, ": ", program->nodes, " ops, key ",
                        planned.key.total.hex().substr(0, 8)));
    launched(std::move(planned.graph.roots), outputs, program, std::move(blame));
  }
  for (size_t i = 0; i < request.roots.size(); ++i) {
    const ir::Node& n = *request.roots[i].node;
    if (planned.output_of[i] >= 0) {
      result.outputs.push_back(outputs[planned.output_of[i]]);
    } else if (n.role() == ir::Role::kData) {
      result.outputs.push_back(std::static_pointer_cast<client::Data>(n.payload()));
    } else {
      DataPtr& up = result.uploads[&n];
      if (!up) up = upload_fill(n, request.device);
      result.outputs.push_back(up);
    }
  }
  return result;
}

GraphRecord Executor::describe(SyncRequest request) {
  std::lock_guard lock(ir::graph_lock());
  Planned p = plan(request);
  if (p.graph.roots.empty()) {  // nothing but leaves: show them
    p.graph = ir::build_graph(request.roots, request.uploaded);
    return {p.graph.num_nodes(),
            ir::dump_text(p.graph, ir::Lines::kYes),
            "",
            ir::dump_dot(p.graph),
            {}};
  }
  return {p.graph.num_nodes(), ir::dump_text(p.graph, ir::Lines::kYes), module_text(p.graph, p.key),
          ir::dump_dot(p.graph), p.key.total};
}

GraphRecord Executor::last() {
  std::lock_guard lock(mu_);
  if (!last_) return {};
  if (auto* r = records_.get(last_->key.total)) return **r;
  return {last_->nodes, "", "", "", last_->key.total};
}

GraphRecord Executor::record(std::string_view key) {
  std::lock_guard lock(mu_);
  for (auto& [hash, r] : records_)
    if (hash.hex().starts_with(key)) return *r;
  return {};
}

void Executor::launched(std::vector<Value> roots, std::vector<DataPtr> outputs, ProgramPtr program,
                        Blame blame) {
  std::lock_guard lock(mu_);
  last_ = std::move(program);
  launches_.push_back({std::move(roots), std::move(outputs), std::move(blame)});
}

// Drops finished launches and, above `keep`, waits for the oldest ones. Destroys them outside the
// lock: dropping a root may free device buffers.
void Executor::retire(size_t keep) {
  for (;;) {
    Launch l;
    {
      std::lock_guard lock(mu_);
      if (launches_.empty()) return;
      if (launches_.size() <= keep && !launches_.front().outputs.back()->ready()) return;
      l = std::move(launches_.front());
      launches_.pop_front();
      ++leaving_;
    }
    auto leave = [this] {
      std::lock_guard lock(mu_);
      --leaving_;
      left_.notify_all();
    };
    try {
      l.outputs.back()->await();
    } catch (const Error& e) {
      bury(l, e);
    } catch (...) {  // Ctrl-C: it flies on
      {
        std::lock_guard lock(mu_);
        launches_.push_front(std::move(l));
      }
      leave();
      throw;
    }
    leave();
  }
}

void Executor::bury(const Launch& l, const Error& e) {
  probe::counter("FailedExecutions").add();
  std::unordered_set<const ir::Node*> hit;
  if (e.raised_by() >= 0) hit = dependents(l.roots, e.raised_by());
  std::lock_guard lock(mu_);
  std::erase_if(failed_, [](const auto& f) { return f.second.output.expired(); });
  auto told = std::make_shared<bool>(false);
  std::string blame = blame_text(l.blame, l.roots);
  for (size_t i = 0; i < l.outputs.size(); ++i) {
    bool concerned = e.raised_by() < 0 || hit.contains(l.roots[i].node.get());
    failed_[l.outputs[i].get()] = {l.outputs[i], l.roots[i], told, concerned, blame};
  }
}

void Executor::wait() {
  client::check_not_forked();
  retire(0);
}

bool Executor::busy() {
  try {
    if (cache_.compiling()) return true;
    std::lock_guard lock(mu_);
    if (leaving_ > 0) return true;
    for (const Launch& l : launches_)
      if (!l.outputs.back()->ready()) return true;
    return false;
  } catch (const Error&) {  // the device does not answer
    return true;
  }
}

std::optional<Executor::Recovered> Executor::recover(const client::Data* data) {
  retire(0);
  std::unique_lock lock(mu_);
  wait_interruptibly(lock, left_, [&] { return leaving_ == 0; });
  auto it = failed_.find(data);
  if (it == failed_.end() || it->second.output.expired()) return std::nullopt;
  const Failed& f = it->second;
  bool told = !f.concerned || std::exchange(*f.told, true);
  return Recovered{f.value, f.concerned, f.blame, told};
}

}  // namespace tp::exec
