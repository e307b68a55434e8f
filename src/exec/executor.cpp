#include "exec/executor.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"
#include "exec/blame.h"
#include "exec/graph_limit.h"
#include "exec/module.h"
#include "exec/partitioned.h"
#include "probe/events.h"
#include "probe/probe.h"

namespace tp::exec {

using client::DataPtr;
using ir::Value;

Executor::Executor(ClientSource client, std::string torch_revision, std::string revision)
    : client_(std::move(client)),
      torch_revision_(std::move(torch_revision)),
      revision_(std::move(revision)),
      cache_(static_cast<size_t>(flag_int(Flag::kCompilationCacheSize))) {}

KeyContext Executor::context(client::ComputationClient& client) const {
  return {client.environment_hash(), torch_revision_, revision_};
}

PlanPtr Executor::plan(PlanRequest&& request) {
  KeyContext context = this->context(client_());
  std::vector<Value> replaced;
  std::lock_guard lock(ir::graph_lock());
  if (launches_.any_failed()) [[unlikely]] {
    replaced = request.roots;
    if (!launches_.revive(request.roots)) replaced.clear();
  }
  return make_plan(std::move(request), std::move(replaced), context);
}

std::vector<DataPtr> Executor::arguments(const Plan& plan, Uploads& uploads) {
  client::ComputationClient& client = client_();
  const ir::Graph& g = plan.graph;
  std::vector<DataPtr> args(g.num_buffers);
  for (const ir::LeafUse& use : g.leaves) {
    if (use.feed != ir::Feed::kBuffer) continue;
    if (use.node->role() == ir::Role::kData) {
      args[use.index] = std::static_pointer_cast<client::Data>(use.node->payload());
    } else {
      bool sharded = plan.placement.partitioned();
      args[use.index] = upload_once(client, *use.node, plan.device, uploads,
                                    sharded ? plan.placement.parameters[use.index] : nullptr);
    }
  }
  kept_numbers_.put(client, plan, args);
  return args;
}

std::vector<DataPtr> Executor::run_fitting(const Program& program, const Launch& launch) {
  std::vector<DataPtr> args;
  for (size_t i = 0; i < launch.arguments.size(); ++i)
    args.push_back(fit(client_(), program, i, launch.arguments[i]));
  return run_partitioned(client_(), program, args, launch.donated, launch.device);
}

// A part that somebody else holds is not given away, though nobody else holds the whole.
void Executor::fit_all(const Program& program, std::vector<DataPtr>& args,
                       std::vector<uint8_t>& donated, SyncResult& result) {
  for (size_t i = 0; i < args.size(); ++i) {
    bool given = !donated.empty() && donated[i];
    if (given && shares_parts(*args[i])) donated[i] = 0;
    DataPtr fits = fit(client_(), program, i, args[i]);
    if (fits != args[i] && !given) result.moved.emplace_back(args[i], fits);
    args[i] = std::move(fits);
  }
}

std::vector<DataPtr> Executor::run(const ProgramPtr& program, Launch launch) {
  std::vector<DataPtr> outputs;
  uint64_t id = program->key.total.hi;
  int64_t start = probe::now_ns();
  try {
    probe::Section section("torch_pjrt::execute");
    outputs = program->placement.partitioned()
                  ? run_fitting(*program, launch)
                  : client_().execute(*program->executable, launch.arguments, launch.donated,
                                      launch.device);
  } catch (const Error& e) {
    throw with_line(launch_error(e, launch.arguments),
                    blame_text({program->key.total, launch.where}, launch.roots));
  }
  try {
    outputs.back()->on_ready(
        [start, id] { probe::event(probe::Phase::kExecute, start, probe::now_ns(), id); });
  } catch (const Error&) {  // the program runs; only its end is not on the timeline
  }
  std::vector<ir::Type> given;
  std::vector<DataPtr> consumed;
  for (size_t i = 0; i < launch.donated.size(); ++i) {
    if (!launch.donated[i]) continue;
    given.push_back(launch.arguments[i]->type());
    consumed.push_back(launch.arguments[i]);
  }
  static probe::Counter& donations = probe::counter("DonatedBuffers");
  donations.add(static_cast<int64_t>(given.size()));
  launches_.add(std::move(launch.roots), outputs, std::move(given),
                {program->key.total, std::move(launch.where)}, std::move(consumed));
  std::lock_guard lock(mu_);
  last_ = {program->key.total, program->nodes};
  return outputs;
}

std::vector<uint8_t> Executor::given(const Plan& plan, const std::function<bool()>& take) {
  if (plan.donors.empty() || !plan.replaced.empty() || !take || !take()) return {};
  return releasable(plan.graph, plan.donors, plan.known);
}

std::vector<uint8_t> Executor::donations(const Plan& plan, const std::function<bool()>& take,
                                         size_t num_arguments) {
  std::vector<uint8_t> may = given(plan, take);
  if (may.empty()) return {};
  std::vector<uint8_t> donated(num_arguments);
  for (size_t i = 0; i < plan.donors.size(); ++i) donated[plan.donors[i].parameter] = may[i];
  return donated;
}

void throw_host_failure(const Error& e, const Plan& plan) {
  auto hit = dependents(plan.graph.roots, e.raised_by());
  std::vector<size_t> roots;
  for (size_t i = 0; i < plan.output_of.size(); ++i)
    if (hit.contains(plan.root(i).node.get())) roots.push_back(i);
  throw HostFailure(e, std::move(roots));
}

std::vector<DataPtr> Executor::start(const Prepared& prepared, const std::function<bool()>& take,
                                     SyncResult& result) {
  const Plan& plan = *prepared.plan;
  int64_t begin = probe::now_ns();
  // Before the arguments: then the leaf is the only owner of a buffer that may go.
  std::vector<uint8_t> donated = donations(plan, take, count_arguments(plan));
  std::vector<DataPtr> args = arguments(plan, result.uploads);
  if (plan.placement.partitioned()) fit_all(*prepared.program, args, donated, result);
  probe::event(probe::Phase::kPrepare, begin, probe::now_ns(), plan.key.total.hi);
  try {
    return run(prepared.program, {args, donated, plan.device, plan.where, plan.graph.roots});
  } catch (const Error& e) {
    if (e.raised_by() < 0) throw;
    throw_host_failure(e, plan);  // the error of one op, at its own line
  }
}

void Executor::throttle() { launches_.retire(static_cast<size_t>(flag_int(Flag::kInFlight))); }

namespace {
shard::Ref layout_of(const Plan& plan, const ir::Node& fill) {
  auto it = plan.layouts.fills.find(&fill);
  return it == plan.layouts.fills.end() ? nullptr : it->second;
}
}  // namespace

bool Executor::calls_back() {
  return interpreter_ && flag_bool(Flag::kHostKernels) && interpreter_->calls_back();
}

SyncResult Executor::pass_leaves(const Plan& plan) {
  SyncResult result;
  result.outputs.resize(plan.output_of.size());
  for (size_t i = 0; i < plan.passed.size(); ++i) {
    if (!plan.passed[i]) continue;
    const ir::Node& n = *plan.passed[i].node;
    result.outputs[i] =
        n.role() == ir::Role::kData
            ? std::static_pointer_cast<client::Data>(n.payload())
            : upload_once(client_(), n, plan.device, result.uploads, layout_of(plan, n));
  }
  return result;
}

SyncResult Executor::run_program(const Prepared& prepared, const std::function<bool()>& take) {
  const Plan& plan = *prepared.plan;
  // Before the launch: once a program has started, what it overwrites is gone.
  SyncResult result = pass_leaves(plan);
  if (!prepared.program) return result;
  RunsPtr runs = explainer_.runs_of(plan.key.total);
  if (plan.output_of.size() == 1 && plan.donors.empty() && !plan.general && !plan.force_data &&
      !plan.placement.partitioned())
    one_ops_.learn(plan.graph, plan.device, prepared.program, runs);
  std::vector<DataPtr> outputs = start(prepared, take, result);
  runs->fetch_add(1, std::memory_order_relaxed);
  if (probe::dial() >= 2)
    probe::say(2, cat("sync at ", plan.where, ": ", prepared.program->nodes, " ops, key ",
                      plan.key.total.hex().substr(0, 8)));
  for (size_t i = 0; i < plan.output_of.size(); ++i)
    if (plan.output_of[i] >= 0) result.outputs[i] = outputs[static_cast<size_t>(plan.output_of[i])];
  return result;
}

SyncResult Executor::sync(const PlanPtr& asked, const std::function<bool()>& take) {
  if (const GraphLimitPtr& limit = graph_limit()) [[unlikely]]
    if (!asked->graph.roots.empty()) limit->check(structure_of(*asked), *asked);
  if (auto done = run_split(asked, take)) return std::move(*done);
  throttle();
  Prepared prepared{asked, nullptr};
  if (!find(prepared)) {
    if (auto done = interpret(prepared.plan)) return std::move(*done);
    make(prepared);
  }
  return run_program(prepared, take);
}

GraphRecord Executor::describe(PlanRequest request) {
  auto uploaded = request.uploaded;
  PlanPtr p = plan(std::move(request));
  client::ComputationClient& client = client_();
  bool on_host = calls_back();
  std::lock_guard lock(ir::graph_lock());
  if (p->graph.roots.empty()) {  // nothing but leaves: a program that gives what it gets
    ir::Graph g = ir::build_graph(p->passed, uploaded);
    return {g.num_nodes(),
            ir::dump_text(g, ir::Lines::kYes),
            identity_text(g, client),
            ir::dump_dot(g),
            {}};
  }
  number_slots(*p);
  return {p->graph.num_nodes(), ir::dump_text(p->graph, ir::Lines::kYes),
          module_text(*p, client, on_host), ir::dump_dot(p->graph), p->key.total};
}

GraphRecord Executor::last() {
  std::lock_guard lock(mu_);
  if (auto* r = records_.get(last_.key)) return **r;
  return {last_.nodes, "", "", "", last_.key};
}

GraphRecord Executor::record(std::string_view key) {
  std::lock_guard lock(mu_);
  for (auto& [hash, r] : records_)
    if (hash.hex().starts_with(key)) return *r;
  return {};
}

bool Executor::busy() {
  try {
    return cache_.compiling() || launches_.in_flight();
  } catch (const Error&) {  // the device does not answer
    return true;
  }
}

void Executor::wait() { launches_.wait(); }

}  // namespace tp::exec
