#include "exec/placement.h"

#include <algorithm>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"

namespace tp::exec {
namespace {

shard::Ref sharding_of(const ir::LeafUse& use, const Layouts& layouts) {
  if (use.feed != ir::Feed::kBuffer) return nullptr;
  if (use.node->role() == ir::Role::kData) {
    auto* data = static_cast<const client::Data*>(use.node->payload().get());
    return data ? data->sharding() : nullptr;
  }
  auto it = layouts.fills.find(use.node);
  return it == layouts.fills.end() ? nullptr : it->second;
}

std::string named(const ir::Node& n) {
  return cat(n.types()[0].text(), n.location() ? cat(" of ", ir::line_text(n.location())) : "");
}

// The one set of devices of a graph.
class Devices {
 public:
  void add(const shard::Ref& s, const ir::Node& n) {
    if (!s) return;
    if (!first_) {
      first_ = s;
      named_ = named(n);
    } else if (first_->devices != s->devices) {
      fail(Code::kValue,
           cat("one graph has values on devices ", join(first_->devices, ","), " (", named_,
               ") and on devices ", join(s->devices, ","), " (", named(n), ")"),
           "use one mesh for both, or bring one to the host: x.cpu()");
    }
  }
  std::vector<int> get() const { return first_ ? first_->devices : std::vector<int>(); }

 private:
  shard::Ref first_;
  std::string named_;
};

shard::Ref or_null(const shard::Ref& s) { return s && !s->replicated() ? s : nullptr; }

bool equal(const shard::Ref& a, const shard::Ref& b) {
  return !a || !b ? !a && !b : shard::same(*a, *b);
}

std::string word(const shard::Ref& s) { return s ? s->text : "-"; }

std::string text_of(const Placement& p) {
  std::string s =
      cat(p.form() == shard::Form::kShardy ? "shardy " : "gspmd ", join(p.devices, ","));
  for (const shard::Ref& r : p.parameters) append(s, cat(";", word(r)));
  append(s, "->");
  for (const Pin& o : p.outputs) append(s, cat(";", o.pinned ? word(o.sharding) : "?"));
  return s;
}

// The pins of the graph's roots; a tensor's that is also another's result stays where it is first.
void place_outputs(Placement& p, const std::vector<int>& output_of, const Layouts& layouts,
                   std::vector<Donor>& donors) {
  for (size_t i = 0; i < layouts.pins.size() && i < output_of.size(); ++i) {
    if (output_of[i] < 0 || !layouts.pins[i].pinned) continue;
    Pin& o = p.outputs[static_cast<size_t>(output_of[i])];
    if (!o.pinned) o = {true, or_null(layouts.pins[i].sharding)};
  }
  std::erase_if(donors, [&p](const Donor& d) {
    Pin& o = p.outputs[d.output];
    if (!o.pinned) o = {true, p.parameters[d.parameter]};
    return !equal(o.sharding, p.parameters[d.parameter]);
  });
}

}  // namespace

shard::Form Placement::form() const {
  return flag_bool(Flag::kShardy) ? shard::Form::kShardy : shard::Form::kGspmd;
}

Placement place(const ir::Graph& g, const std::vector<int>& output_of, const Layouts& layouts,
                std::vector<Donor>& donors) {
  Placement p;
  if (!shard::any()) return p;
  Devices devices;
  p.parameters.resize(g.num_buffers);
  for (const ir::LeafUse& use : g.leaves)
    if (shard::Ref s = sharding_of(use, layouts)) {
      devices.add(s, *use.node);
      p.parameters[use.index] = or_null(s);
    }
  for (const ir::Node* n : g.order)
    if (n->role() == ir::Role::kInterior && n->sharding()) {
      p.constraints.push_back(shard::find(*n->sharding()));
      check(p.constraints.back() != nullptr, "a constraint's sharding is known");
      devices.add(p.constraints.back(), *n);
    }
  for (size_t i = 0; i < output_of.size() && i < layouts.pins.size(); ++i)
    if (output_of[i] >= 0)
      devices.add(or_null(layouts.pins[i].sharding),
                  *g.roots[static_cast<size_t>(output_of[i])].node);
  p.devices = devices.get();
  if (p.devices.size() < 2) return {};
  p.outputs.resize(g.roots.size());
  place_outputs(p, output_of, layouts, donors);
  p.text = text_of(p);
  return p;
}

void add_to(const Placement& p, size_t num_parameters, client::CompileRequest& request) {
  if (!p.partitioned()) return;
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
