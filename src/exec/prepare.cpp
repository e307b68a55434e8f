// Executor::prepare: a plan's program is found in memory, or lowered and loaded from disk or
// compiled.
#include <optional>
#include <system_error>
#include <utility>

#include "base/flags.h"
#include "base/heap.h"
#include "base/text.h"
#include "exec/blame.h"
#include "exec/dump.h"
#include "exec/executor.h"
#include "exec/miss.h"
#include "exec/module.h"
#include "exec/slow_notice.h"
#include "probe/events.h"
#include "probe/probe.h"

namespace tp::exec {
namespace {

client::ExecutablePtr compile_module(client::ComputationClient& client,
                                     const client::CompileRequest& request, const std::string& what,
                                     const std::string& blame) {
  std::optional<SlowNotice> notice;
  try {
    notice.emplace(cat("compiling for more than ", flag_int(Flag::kSlowCompile), " ms: ", what));
  } catch (const std::system_error&) {  // the system gives no thread: no notice
  }
  try {
    return client.compile(request);
  } catch (const Error& e) {
    throw with_line(e, blame);
  }
}

}  // namespace

// What one compile needs. It owns all of it: the sync that wants the program may be gone before it
// ends (Ctrl-C), and nodes are not for other threads.
struct Executor::Job {
  client::ComputationClient& client;
  Key key;
  std::vector<uint64_t> signature;
  size_t nodes = 0;
  std::string module;
  std::vector<ir::Type> outputs;
  Placement placement;
  size_t num_parameters = 0;
  int device = 0;
  std::string where, blame;
  Sketch sketch;
  bool counted = false;  // as begun
};

namespace {

// Compiles that were begun, or handed to a thread beside: so that counts do not depend on how far
// that one got.
probe::Counter& begun() {
  static probe::Counter& c = probe::counter("CompileBegun");
  return c;
}

}  // namespace

std::shared_ptr<Executor::Job> Executor::job_of(const Plan& plan) {
  client::ComputationClient& client = client_();
  bool on_host = calls_back();
  std::lock_guard lock(ir::graph_lock());
  number_slots(plan);
  probe::Span span(probe::timer("Lower"));
  probe::Section section("torch_pjrt::lower");
  int64_t start = probe::now_ns();
  const ir::Graph& graph = plan.graph;
  auto job = std::make_shared<Job>(Job{
      .client = client,
      .key = plan.key,
      .signature = signature_of(plan),
      .nodes = graph.num_nodes(),
      .module = module_text(plan, client, on_host),
      .outputs = {},
      .placement = plan.placement,
      .num_parameters = count_arguments(plan),
      .device = plan.device,
      .where = plan.where,
      .blame = blame_text({plan.key.total, plan.where}, graph.roots),
      .sketch = make_sketch(graph, plan.key, plan.where, plan.donors, plan.placement.parameters)});
  job->sketch.part = plan.part;
  if (plan.rounds) job->sketch.from = {plan.rounds, plan.rounds_at};
  for (size_t i = 0; i < graph.roots.size(); ++i)
    job->outputs.push_back(result_type(plan.placement, graph, i));
  auto record = std::make_shared<GraphRecord>();
  *record = {job->nodes, ir::dump_text(graph, ir::Lines::kYes), job->module, ir::dump_dot(graph),
             plan.key.total};
  probe::event(probe::Phase::kLower, start, probe::now_ns(), plan.key.total.hi);
  dump_compiled(
      {record->text, record->dot, job->module, plan.where, record->key.hex(), record->nodes});
  std::lock_guard mine(mu_);
  records_.put(plan.key.total, std::move(record));
  return job;
}

bool Executor::find(Prepared& p) {
  if (p.plan->graph.roots.empty()) return true;
  client::ComputationClient& client = client_();
  if (!saves_tensors() && (p.program = cache_.find_known(p.plan->key))) return true;
  bool on_host = saves_modules() && calls_back();
  std::lock_guard lock(ir::graph_lock());
  number_slots(*p.plan);
  if (saves_tensors())
    save_tensors(p.plan->graph,
                 saves_modules() ? module_text(*p.plan, client, on_host) : std::string(),
                 p.plan->where);
  if ((p.program = cache_.find(p.plan->key, signature_of(*p.plan)))) return true;
  if (PlanPtr general = make_general_plan(p.plan, families_, context(client))) {
    p.plan = std::move(general);
    p.program = cache_.find(p.plan->key, signature_of(*p.plan));
  }
  return p.program != nullptr;
}

Prepared Executor::prepare(PlanPtr plan) {
  Prepared p{std::move(plan), nullptr};
  if (!find(p)) make(p);
  return p;
}

void Executor::make(Prepared& p) {
  tiers_.compiles(p.plan->where);
  std::shared_ptr<Job> job = job_of(*p.plan);
  // Of the thread that waits, which is the one whose spans a profiler shows.
  probe::Section section("torch_pjrt::compile");
  p.program =
      cache_.find_or_compile(job->key, job->signature, [this, job] { return compile(*job); });
}

void Executor::compile_beside(const Plan& plan) {
  tiers_.compiles(plan.where);
  std::shared_ptr<Job> job = job_of(plan);
  job->counted = true;
  auto run = [this, job] {
    trim_heap();  // of what interpreting took, which malloc kept: a compile takes as much again
    return compile(*job);
  };
  if (cache_.compile_beside(job->key, run)) begun().add();
}

bool Executor::is_stored(const Plan& plan) {
  std::lock_guard lock(ir::graph_lock());
  number_slots(plan);
  std::vector<uint64_t> s = signature_of(plan);
  return disk_.has(client_(), plan.key, hash_bytes(s.data(), s.size() * sizeof s[0]));
}

ProgramPtr Executor::compile(const Job& job) {
  CompileHeap heap;
  std::string what = cat(job.nodes, " ops, key ", job.key.total.hex().substr(0, 8),
                         job.where.empty() ? "" : cat(", synced at ", job.where));
  auto program = std::make_shared<Program>();
  auto words = explainer_.words(job.client);
  Sketch sketch = job.sketch;
  sketch.environment = words[0].second;
  StoredProgram stored{
      job.key,     hash_bytes(job.signature.data(), job.signature.size() * sizeof job.signature[0]),
      job.outputs, static_cast<int64_t>(job.nodes),
      job.where,   std::move(words)};
  int64_t start = probe::now_ns();
  program->executable = disk_.load(job.client, stored);
  program->from_disk = program->executable != nullptr;
  begun().add(int{!program->from_disk} - int{job.counted});  // what it is, less what was counted
  if (!program->from_disk) {
    client::CompileRequest request{
        .module = job.module, .outputs = job.outputs, .device = job.device};
    add_to(job.placement, job.num_parameters, request);
    program->executable = compile_module(
        job.client, request, cat(what, unsynced_text(rounds_of(job.sketch))), job.blame);
  }
  int64_t end = probe::now_ns();
  probe::event(probe::Phase::kCompile, start, end, job.key.total.hi);
  program->compile_seconds = static_cast<double>(end - start) * 1e-9;
  if (!program->from_disk)
    disk_.store(job.client, stored, *program->executable, program->compile_seconds);
  program->key = job.key;
  program->placement = job.placement;
  program->signature = job.signature;
  program->nodes = job.nodes;
  if (probe::dial() >= 3) probe::say(3, cat("graph\n", record(job.key.total.hex()).text));
  if (probe::dial() >= 4) probe::say(4, cat("module\n", job.module));
  probe::say(1, cat(program->from_disk ? "loaded " : "compiled ", what, " in ",
                    static_cast<int64_t>(program->compile_seconds * 1e3), " ms"));
  if (program->from_disk)
    explainer_.remember(std::move(sketch));
  else
    explainer_.compiled(std::move(sketch), program->nodes, program->compile_seconds,
                        why_missed(stored));
  return program;
}

}  // namespace tp::exec
