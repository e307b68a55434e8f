#include "exec/executor.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"
#include "client/registry.h"
#include "exec/blame.h"
#include "exec/cold.h"
#include "exec/dump.h"
#include "exec/fill.h"
#include "lower/lower.h"
#include "ops/host.h"
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

std::string module_text(const ir::Graph& g, const Key& key, std::span<const Donor> donors,
                        const lower::Inputs* inputs) {
  bool cpu = client::client().platform() == "cpu";
  std::vector<int> overwrites(donors.empty() ? 0 : g.num_buffers, -1);
  for (const Donor& d : donors) overwrites[d.parameter] = static_cast<int>(d.output);
  return lower::lower(g, "g" + key.total.hex().substr(0, 12),
                      {.target = cpu ? lower::Target::kCpu : lower::Target::kAccelerator,
                       .overwrites = overwrites,
                       .inputs = inputs})
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
  std::vector<Donor> donors;
  std::vector<uint32_t> known;     // references by slot, see exec/donation.h
  std::optional<General> general;  // where it is a general program's; signature and key say so too
  bool revived = false;            // `known` is not to be trusted then
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

// The caller holds graph_lock().
void find_donors(const SyncRequest& request, std::span<const int> output_of, const ir::Graph& g,
                 std::vector<Donor>* donors, std::vector<uint32_t>* known) {
  const InPlace& in = request.in_place;
  if (in.was.empty() || !flag_bool(Flag::kDonation)) return;
  std::vector<Overwrite> overwritten;
  for (size_t i = 0; i < output_of.size(); ++i)
    if (in.was[i] && output_of[i] >= 0)
      overwritten.push_back({static_cast<uint32_t>(output_of[i]), in.was[i]});
  // A host op may raise while the program runs, as it would in eager mode: no tensor may pay for
  // that with its value.
  bool may_raise = !overwritten.empty() &&
                   std::any_of(g.order.begin(), g.order.end(),
                               [](const ir::Node* n) { return ops::is_host_kind(n->kind()); });
  if (may_raise) return;
  Kept kept{.results = {}, .by_tensor = in.kept};
  for (const Value& r : request.roots)
    if (is_leaf(r)) kept.results.insert(identity(*r.node));
  *donors = choose_donors(g, overwritten, kept);
  if (donors->empty()) return;
  *known = count_references(g);
  auto add = [&](const ir::Node* n, uint32_t references) {
    if (n->slot < g.order.size() && g.order[n->slot] == n) (*known)[n->slot] += references;
  };
  for (const Value& r : request.roots) add(r.node.get(), in.root_references + 1);
  for (const ir::Node* n : in.held) add(n, 1);
}

std::span<const uint32_t> as_words(const std::vector<Donor>& donors) {
  static_assert(sizeof(Donor) == 2 * sizeof(uint32_t));
  return {reinterpret_cast<const uint32_t*>(donors.data()), 2 * donors.size()};
}

}  // namespace

// The caller holds graph_lock().
Executor::Planned Executor::plan(SyncRequest& request) {
  bool revived = launches_.revive(request.roots);
  Planned p = build(request, canonical_order(request.roots));
  p.revived = revived;
  return p;
}

Executor::Planned Executor::build(SyncRequest& request, const std::vector<size_t>& order) {
  Planned p;
  std::vector<Value> roots;
  std::unordered_map<const ir::Node*, std::vector<int>> place;  // per output index
  p.output_of.assign(request.roots.size(), -1);
  for (size_t i : order) {
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
  find_donors(request, p.output_of, p.graph, &p.donors, &p.known);
  p.key = key_of(request, p);
  return p;
}

Key Executor::key_of(const SyncRequest& request, const Planned& p) const {
  std::span<const uint64_t> general;
  if (p.general) general = p.graph.signature;
  // A program is compiled for its device.
  std::string place = request.device == 0 ? std::string() : cat("device ", request.device);
  return make_key({.force_data = request.force_data,
                   .environment = client::client().environment_hash(),
                   .torch_revision = torch_revision_,
                   .revision = revision_,
                   .roots = p.graph.roots,
                   .general = general,
                   .parameter_sequence = p.graph.sequence,
                   .donated = as_words(p.donors),
                   .sharding = place});
}

namespace {

// Gives nodes their places in this graph again, after another was built of them.
void number_slots(const ir::Graph& g) {
  for (size_t i = 0; i < g.order.size(); ++i) g.order[i]->slot = static_cast<uint32_t>(i);
}

}  // namespace

bool Executor::generalize(SyncRequest& request, Planned& planned) {
  Numbers numbers = split_numbers(planned.graph);
  if (numbers.values.empty()) return false;
  // Hashes of roots hold the numbers; a family's graphs have one order that does not.
  Planned p = build(request, structural_order(request.roots, planned.graph));
  numbers = split_numbers(p.graph);
  std::vector<bool> varies = families_.varying(numbers);
  if (varies.empty()) {
    number_slots(planned.graph);  // they are p's now
    return false;
  }
  General g = make_general(p.graph, std::move(numbers), varies);
  p.graph.signature = std::move(g.signature);
  p.general = std::move(g);
  p.key = key_of(request, p);
  p.revived = planned.revived;
  planned = std::move(p);
  return true;
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
    const ir::Graph& graph = planned.graph;
    const Key& key = planned.key;
    if (graph.roots.empty()) return nullptr;
    if (saves_tensors()) [[unlikely]]
      save_tensors(
          graph, saves_modules() ? module_text(graph, key, planned.donors, nullptr) : std::string(),
          request.where);
    if (ProgramPtr hit = cache_.find(key, graph.signature)) return hit;
    if (generalize(request, planned))
      if (ProgramPtr hit = cache_.find(key, graph.signature)) return hit;
    probe::Span span(probe::timer("Lower"));
    probe::Section section("torch_pjrt::lower");
    int64_t start = probe::now_ns();
    *job = {.key = key,
            .signature = graph.signature,
            .nodes = graph.num_nodes(),
            .module = module_text(graph, key, planned.donors,
                                  planned.general ? &planned.general->inputs : nullptr),
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
  // Of the thread that waits, which is the one whose spans a profiler shows.
  probe::Section section("torch_pjrt::compile");
  return cache_.find_or_compile(job->key, job->signature, [this, job] { return compile(*job); });
}

namespace {

client::ExecutablePtr compile_module(const client::CompileRequest& request, const std::string& what,
                                     const std::string& blame) {
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

[[noreturn]] void rethrow_failure(const Error& e, const std::vector<Value>& program,
                                  const std::vector<Value>& asked) {
  if (e.raised_by() < 0) throw Error(e);
  auto hit = dependents(program, e.raised_by());
  std::vector<size_t> roots;
  for (size_t i = 0; i < asked.size(); ++i)
    if (hit.contains(asked[i].node.get())) roots.push_back(i);
  throw HostFailure(e, std::move(roots));
}

void put_numbers(const General& g, Numbers64& to) {
  to.integers.resize(to.integers.size() + g.inputs.integers);
  to.reals.resize(to.reals.size() + g.inputs.reals);
  for (size_t i = 0; i < g.values.size(); ++i) {
    if (g.inputs.place[i] < 0) continue;
    auto at = static_cast<size_t>(g.inputs.place[i]);
    if (g.values[i].real)
      to.reals[at] = std::bit_cast<double>(g.values[i].bits);
    else
      to.integers[at] = g.values[i].bits;
  }
}

}  // namespace

std::vector<DataPtr> Executor::arguments(const Planned& planned, SyncResult& result, int device) {
  const ir::Graph& g = planned.graph;
  std::vector<DataPtr> args(g.num_buffers);
  Numbers64 numbers{std::vector<int64_t>(g.num_integers), std::vector<double>(g.num_reals)};
  if (planned.general) put_numbers(*planned.general, numbers);
  for (const ir::LeafUse& use : g.leaves) {
    if (use.feed != ir::Feed::kBuffer)
      numbers.put(use.node->scalar(), use.feed, use.index);
    else if (use.node->role() == ir::Role::kData)
      args[use.index] = std::static_pointer_cast<client::Data>(use.node->payload());
    else
      args[use.index] = upload_once(*use.node, device, result.uploads);
  }
  if (!numbers.integers.empty())
    args.push_back(upload_numbers(std::move(numbers.integers), device));
  if (!numbers.reals.empty()) args.push_back(upload_numbers(std::move(numbers.reals), device));
  return args;
}

namespace {

// One flag an argument, or none at all where nothing is given away.
std::vector<uint8_t> donations(const SyncRequest& request, const ir::Graph& graph,
                               std::span<const Donor> donors, std::span<const uint32_t> known,
                               size_t num_arguments) {
  constexpr long kHandles = 2;  // the leaf's and the argument list's
  if (donors.empty() || !request.in_place.take()) return {};
  std::vector<uint8_t> may = releasable(graph, donors, known, kHandles);
  std::vector<uint8_t> donated(num_arguments);
  for (size_t i = 0; i < donors.size(); ++i) donated[donors[i].parameter] = may[i];
  return donated;
}

}  // namespace

std::vector<DataPtr> Executor::start(SyncRequest& request, Planned& planned,
                                     const ProgramPtr& program, SyncResult& result) {
  int64_t begin = probe::now_ns();
  std::vector<DataPtr> args = arguments(planned, result, request.device), outputs;
  std::vector<uint8_t> donated;
  if (!planned.revived)
    donated = donations(request, planned.graph, planned.donors, planned.known, args.size());
  uint64_t id = planned.key.total.hi;
  int64_t launch = probe::now_ns();
  probe::event(probe::Phase::kPrepare, begin, launch, id);
  try {
    probe::Section section("torch_pjrt::execute");
    outputs = client::client().execute(*program->executable, args, donated, request.device);
  } catch (const Error& e) {
    rethrow_failure(launch_error(e, args), planned.graph.roots, request.roots);
  }
  try {
    outputs.back()->on_ready(
        [launch, id] { probe::event(probe::Phase::kExecute, launch, probe::now_ns(), id); });
  } catch (const Error&) {  // the program runs; only its end is not on the timeline
  }
  std::vector<ir::Type> given;
  for (size_t i = 0; i < donated.size(); ++i)
    if (donated[i]) given.push_back(args[i]->type());
  static probe::Counter& donations = probe::counter("DonatedBuffers");
  donations.add(static_cast<int64_t>(given.size()));
  launches_.add(std::move(planned.graph.roots), outputs, std::move(given),
                {planned.key.total, request.where});
  std::lock_guard lock(mu_);
  last_ = program;
  return outputs;
}

SyncResult Executor::sync(SyncRequest request) {
  client::check_not_forked();
  launches_.retire(static_cast<size_t>(flag_int(Flag::kInFlight)));
  SyncResult result;
  Planned planned;
  ProgramPtr program = program_for(request, planned);
  upload_roots(request.roots, request.device, result.uploads);
  std::vector<DataPtr> outputs;
  if (program) {
    std::atomic<int64_t>& runs = explainer_.runs_of(planned.key.total);
    if (request.roots.size() == 1 && planned.donors.empty() && !planned.general &&
        !request.force_data)
      one_ops_.learn(planned.graph, request.device, program, runs);
    try {
      outputs = start(request, planned, program, result);
    } catch (const HostFailure&) {
      throw;  // the error of one op, at its own line
    } catch (const Error& e) {
      throw with_line(e, blame_text({planned.key.total, request.where}, planned.graph.roots));
    }
    runs.fetch_add(1, std::memory_order_relaxed);
    if (probe::dial() >= 2)
      probe::say(2, cat("sync at ", request.where, ": ", program->nodes, " ops, key ",
                        planned.key.total.hex().substr(0, 8)));
  }
  for (size_t i = 0; i < request.roots.size(); ++i) {
    const ir::Node& n = *request.roots[i].node;
    if (planned.output_of[i] >= 0) {
      result.outputs.push_back(outputs[planned.output_of[i]]);
    } else if (n.role() == ir::Role::kData) {
      result.outputs.push_back(std::static_pointer_cast<client::Data>(n.payload()));
    } else {
      result.outputs.push_back(result.uploads.at(&n));
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
  return {p.graph.num_nodes(), ir::dump_text(p.graph, ir::Lines::kYes),
          module_text(p.graph, p.key, p.donors, nullptr), ir::dump_dot(p.graph), p.key.total};
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

bool Executor::busy() {
  try {
    return cache_.compiling() || launches_.flying();
  } catch (const Error&) {  // the device does not answer
    return true;
  }
}

void Executor::wait() {
  client::check_not_forked();
  launches_.retire(0);
}

}  // namespace tp::exec
