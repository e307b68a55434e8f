#include "exec/replay.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "exec/partitioned.h"
#include "shard/sharding.h"

namespace tp::exec {

using client::DataPtr;

Replay::Replay(Executor& executor, PlanPtr asked, const LeafRoles& roles) : executor_(executor) {
  Prepared prepared = executor.prepare(std::move(asked));
  const Plan& plan = *prepared.plan;
  program_ = prepared.program;
  device_ = plan.device;
  draws_ = roles.draws;
  numbers_ = numbers_of(plan);
  buffers_.resize(plan.graph.num_buffers);
  for (const ir::LeafUse& use : plan.graph.leaves) {
    if (use.feed == ir::Feed::kBuffer)
      buffers_[use.index] = source_of(*use.node, roles, plan.device);
    else if (roles.seeds.contains(use.node))
      seeds_.push_back(use.index);
    else if (auto it = roles.offsets.find(use.node); it != roles.offsets.end())
      offsets_.emplace_back(use.index, it->second);
  }
  if (program_ && plan.placement.partitioned())
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (DataPtr& held = buffers_[i].held) held = fit(executor.client(), *program_, i, held);
  for (size_t i = 0; i < plan.output_of.size(); ++i) {
    Result& r = results_.emplace_back();
    r.output = plan.output_of[i];
    if (r.output < 0) r.source = source_of(*plan.passed[i].node, roles, plan.device);
  }
  for (const Donor& d : plan.donors) {
    int64_t argument = buffers_[d.parameter].argument;
    if (argument < 0) continue;
    donor_slots_.emplace_back(d.parameter, static_cast<uint32_t>(argument));
    donors_.push_back(static_cast<uint32_t>(argument));
  }
  std::sort(donors_.begin(), donors_.end());
}

Replay::Source Replay::source_of(const ir::Node& leaf, const LeafRoles& roles, int device) const {
  auto it = roles.arguments.find(&leaf);
  if (it != roles.arguments.end()) return {it->second, nullptr};
  if (leaf.role() == ir::Role::kFill) return {-1, upload_fill(executor_.client(), leaf, device)};
  auto held = std::static_pointer_cast<client::Data>(leaf.payload());
  check(held != nullptr, "a constant of a recording has a buffer");
  return {-1, std::move(held)};
}

void Replay::put_numbers(const Call& call, std::vector<DataPtr>& to) const {
  auto upload = [this](auto numbers) {
    return upload_numbers(executor_.client(), std::move(numbers), device_,
                          program_->placement.devices);
  };
  if (!numbers_.integers.empty()) {
    if (seeds_.empty()) {
      std::lock_guard lock(mu_);
      if (!integers_) integers_ = upload(numbers_.integers);
      to.push_back(integers_);
    } else {
      std::vector<int64_t> now = numbers_.integers;
      for (uint32_t at : seeds_) now[at] = call.seed;
      for (auto [at, delta] : offsets_) now[at] = call.offset + delta;
      to.push_back(upload(std::move(now)));
    }
  }
  if (!numbers_.reals.empty()) {
    std::lock_guard lock(mu_);
    if (!reals_) reals_ = upload(numbers_.reals);
    to.push_back(reals_);
  }
}

std::vector<DataPtr> Replay::run(const Call& call) const {
  std::vector<DataPtr> outputs;
  executor_.throttle();
  if (program_) {
    std::vector<DataPtr> args;
    args.reserve(buffers_.size() + 2);
    for (const Source& s : buffers_) args.push_back(s.of(call.arguments));
    put_numbers(call, args);
    if (shard::any() && !program_->placement.partitioned())
      for (size_t i = 0; i < args.size(); ++i) fit(executor_.client(), *program_, i, args[i]);
    std::vector<uint8_t> donated;
    for (auto [slot, argument] : donor_slots_) {
      if (call.may_donate.empty() || !call.may_donate[argument]) continue;
      if (shares_parts(*call.arguments[argument])) continue;
      donated.resize(args.size());
      donated[slot] = 1;
    }
    outputs = executor_.run(program_, {.arguments = args,
                                       .donated = donated,
                                       .device = device_,
                                       .where = call.where,
                                       .roots = {}});
  }
  std::vector<DataPtr> results;
  results.reserve(results_.size());
  for (const Result& r : results_)
    results.push_back(r.output < 0 ? r.source.of(call.arguments)
                                   : outputs[static_cast<size_t>(r.output)]);
  return results;
}

}  // namespace tp::exec
