#include "exec/placement.h"

#include <algorithm>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"
#include "exec/device_sets.h"
#include "ir/region.h"

namespace tp::exec {
namespace {

shard::Ref or_null(const shard::Ref& s) { return s && !s->replicated() ? s : nullptr; }

bool equal(const shard::Ref& a, const shard::Ref& b) {
  return !a || !b ? !a && !b : shard::same(*a, *b);
}

std::string word(const shard::Ref& s) { return s ? s->text : "-"; }

std::string text_of(const Placement& p) {
  std::string_view form = p.form() == shard::Form::kShardy ? "shardy " : "gspmd ";
  std::string s = cat(p.replicas ? "replicas " : form, join(p.devices, ","));
  for (const shard::Ref& r : p.parameters) append(s, cat(";", word(r)));
  append(s, "->");
  for (const Pin& o : p.outputs) append(s, cat(";", o.pinned ? word(o.sharding) : "?"));
  return s;
}

// The one set of devices of a graph. A result that is asked to be elsewhere is where its value is.
std::vector<int> devices_of(DeviceSets& sets, const std::vector<int>& output_of,
                            const Layouts& layouts) {
  if (auto error = sets.meeting()) throw std::move(*error);
  for (size_t i = 0; sets.sets().empty() && i < output_of.size() && i < layouts.pins.size(); ++i)
    if (output_of[i] >= 0 && or_null(layouts.pins[i].sharding))
      sets.add(layouts.pins[i].sharding->devices);
  if (sets.sets().empty()) return {};
  if (sets.sets().size() > 1)
    fail(Code::kValue,
         cat("one graph has values on devices ", join(sets.sets()[0], ","), " (", sets.example(0),
             ") and on devices ", join(sets.sets()[1], ","), " (", sets.example(1), ")"),
         "use one mesh for both, or call torch_pjrt.sync() between them");
  return sets.sets()[0];
}

// The pins of the graph's roots; a tensor's that is also another's result stays where it is first.
void place_outputs(Placement& p, const std::vector<int>& output_of, const Layouts& layouts,
                   std::vector<Donor>& donors) {
  for (size_t i = 0; i < layouts.pins.size() && i < output_of.size(); ++i) {
    const shard::Ref& asked = layouts.pins[i].sharding;
    if (output_of[i] < 0 || !layouts.pins[i].pinned) continue;
    if (asked && asked->devices != p.devices) continue;
    Pin& o = p.outputs[static_cast<size_t>(output_of[i])];
    if (!o.pinned) o = {true, or_null(asked)};
  }
  std::erase_if(donors, [&p](const Donor& d) {
    Pin& o = p.outputs[d.output];
    if (!o.pinned) o = {true, p.parameters[d.parameter]};
    return !equal(o.sharding, p.parameters[d.parameter]);
  });
}

// Is the graph a program of replicas? What they have parts of is their region's alone.
bool is_of_replicas(const ir::Graph& g, const Placement& p) {
  auto region = std::ranges::find_if(g.order, [](const ir::Node* n) {
    return n->role() == ir::Role::kInterior && ir::is_of_replicas(*n);
  });
  if (region == g.order.end()) return false;
  std::vector<bool> cut(g.order.size());
  for (const ir::LeafUse& use : g.leaves)
    if (use.feed == ir::Feed::kBuffer && p.parameters[use.index]) cut[use.node->slot] = true;
  for (const ir::Node* n : g.order)
    for (const ir::Value& v : n->operands())
      if (n != *region && (cut[v.node->slot] || v.node.get() == *region))
        fail(Code::kValue,
             cat("manual.region(replicas=True): ", n->kind().name, " reads a value of the mesh"),
             "give it to the function as an argument");
  return true;
}

}  // namespace

shard::Form Placement::form() const {
  return flag_bool(Flag::kShardy) ? shard::Form::kShardy : shard::Form::kGspmd;
}

Placement place(const ir::Graph& g, const std::vector<int>& output_of, const Layouts& layouts,
                std::vector<Donor>& donors) {
  Placement p;
  if (!shard::any()) return p;
  DeviceSets sets(g, layouts);
  p.parameters.resize(g.num_buffers);
  for (const ir::LeafUse& use : g.leaves)
    if (use.feed == ir::Feed::kBuffer)
      p.parameters[use.index] = or_null(own_sharding(*use.node, layouts));
  for (const ir::Node* n : g.order)
    if (n->role() == ir::Role::kInterior && n->sharding()) {
      p.constraints.push_back(shard::find(*n->sharding()));
      check(p.constraints.back() != nullptr, "a constraint's sharding is known");
    }
  p.devices = devices_of(sets, output_of, layouts);
  if (p.devices.size() < 2) return {};
  p.replicas = is_of_replicas(g, p);
  p.outputs.resize(g.roots.size());
  place_outputs(p, output_of, layouts, donors);
  p.text = text_of(p);
  return p;
}

ir::Type result_type(const Placement& p, const ir::Graph& g, size_t i) {
  ir::Type t = g.roots[i].type();
  const shard::Ref& s = p.replicas ? p.outputs[i].sharding : nullptr;
  return s ? t.with(shard::shard_dims(*s, t.dims())) : t;
}

void add_to(const Placement& p, size_t num_parameters, client::CompileRequest& request) {
  if (!p.partitioned()) return;
  if (p.replicas) {
    request.num_replicas = static_cast<int>(p.devices.size());
    request.devices = p.devices;
    return;
  }
  request.num_partitions = static_cast<int>(p.devices.size());
  request.spmd = true;
  request.devices = p.devices;
  request.shardy = p.form() == shard::Form::kShardy;
  request.parameter_shardings = p.parameters;
  request.parameter_shardings.resize(num_parameters);
  for (const Pin& o : p.outputs) {
    request.open_outputs.push_back(!o.pinned);
    request.output_shardings.push_back(o.sharding);
  }
}

}  // namespace tp::exec
