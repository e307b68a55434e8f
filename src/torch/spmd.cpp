#include "torch/spmd.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "client/registry.h"
#include "client/sharded_data.h"
#include "ops/core/row.h"
#include "probe/probe.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/runtime.h"
#include "torch/trace.h"

namespace tp::torch_room {

using client::DataPtr;
using ir::Value;

namespace {

Value constraint(Value v, const shard::Ref& sharding) {
  static const ir::OpKind& kKind = ops::kind_of(*ops::find_row("torch_pjrt::sharding"));
  ir::Type type = v.type();
  ir::AttrsBuilder attrs;
  attrs.operand(ir::symbol("self"), 0);
  ir::NodePtr made = ir::Node::make(kKind, std::span(&v, 1), std::span(&type, 1), attrs.words(),
                                    ir::ShardingPtr(sharding, &sharding->text));
  made->set_location(here());
  return {std::move(made), 0};
}

// What a constraint says of a place; null where it leaves that open.
shard::Ref closed(const ir::ShardingPtr& s) {
  shard::Ref found = s ? shard::find(*s) : nullptr;
  return found && !found->open ? found : nullptr;
}

void check_devices(const shard::Sharding& s) {
  size_t have = client::client().devices().size();
  for (int d : s.devices)
    if (d < 0 || static_cast<size_t>(d) >= have)
      fail(Code::kValue,
           cat("mark_sharding: the mesh has device ", d, ", the client ", have,
               have == 1 ? " device" : " devices"),
           "TORCH_PJRT_CPU_DEVICES=8 gives the CPU client 8");
}

// A mesh of one device is no mesh: the tensor is on it, or has to be made there.
bool is_alone(const shard::Sharding& s, int device) {
  if (s.devices.size() > 1) return false;
  if (s.devices[0] == device) return true;
  fail(Code::kValue,
       cat("mark_sharding: the mesh is device ", s.devices[0],
           " alone, the tensor is on xla:", device),
       cat("x.to('xla:", s.devices[0], "')"));
}

// Bytes that are on devices, elsewhere.
DataPtr moved(const DataPtr& data, const shard::Ref& to, int device) {
  GilRelease no_gil;
  client::check_not_forked();
  if (!data->sharding())
    return to->replicated() ? client::spread(client::client(), data, to)
                            : client::cut(client::client(), data, to);
  static probe::Counter& moves = probe::counter("Reshard");
  moves.add();
  exec::PlanRequest request;
  request.roots = {constraint({ir::Node::make_data(data->type(), data), 0}, to)};
  request.uploaded = [](const ir::Node&) { return false; };
  request.layouts.pins = {{true, to}};
  request.device = device;
  request.where = "mark_sharding";
  return executor().sync(executor().plan(std::move(request))).outputs[0];
}

struct State {
  DataPtr data;
  at::Tensor host;
  Value value;
  bool taken, initial;
};
State state_of_alias(Alias& a) {
  std::lock_guard lock(state_lock());
  return {a.buffer(), a.host(), a.value(), a.taken(),
          static_cast<bool>(a.initial) && a.value().node == a.initial};
}

// False where the alias has another state by now.
bool put_data(Alias& a, const State& was, DataPtr data) {
  Dropped old(1);
  std::lock_guard lock(state_lock());
  if (a.buffer() != was.data || (was.host.defined() && !a.host().is_same(was.host))) return false;
  old.state(a, Alias::OnDevice{std::move(data), {}, a.uploaded()});
  old.gathers(a);
  return true;
}

bool constrain_pending(Alias& a, const State& was, const shard::Ref& sharding) {
  Value made;
  if (!was.initial) made = constraint(was.value, sharding);
  shard::Ref layout = sharding;
  Dropped old(1);
  std::lock_guard lock(state_lock());
  if (!(a.value() == was.value) || a.buffer()) return false;
  if (was.initial) {  // a value not made yet starts where it is to be
    a.layout.swap(layout);
    a.placed = true;
    return true;
  }
  old.state(a, Alias::Pending{std::move(made), a.raised()});
  old.gathers(a);
  return true;
}

bool mark_root(Alias& a, const shard::Ref& sharding) {
  State s = state_of_alias(a);
  if (s.taken) {
    wait_while_taken();
    return false;
  }
  int device = device_index(a.device);
  if (s.data) {
    const shard::Ref& has = s.data->sharding();
    if (has && shard::same(*has, *sharding)) return true;
    return put_data(a, s, moved(s.data, sharding, device));
  }
  if (s.host.defined()) {
    auto owner = std::make_shared<at::Tensor>(s.host);
    const void* bytes = s.host.const_data_ptr();
    GilRelease no_gil;
    client::check_not_forked();
    return put_data(a, s,
                    client::upload_parts(client::client(), {bytes, a.type, std::move(owner)},
                                         sharding, device));
  }
  return constrain_pending(a, s, sharding);
}

}  // namespace

void mark_sharding(const at::Tensor& t, const shard::Ref& sharding) {
  guarded(
      [&] {
        Impl& impl = impl_of(t);
        shard::check_fits(*sharding, span_of(t.sizes()), "mark_sharding");
        {
          GilRelease no_gil;
          client::check_not_forked();
          check_devices(*sharding);
        }
        if (is_alone(*sharding, device_index(t.device()))) return;
        if (!impl.whole()) {
          constrain_view(impl, constraint(value_of(impl), sharding));
          return;
        }
        while (!mark_root(*impl.alias(), sharding)) {
        }
      },
      [] { return std::string("mark_sharding"); });
}

at::Tensor constrained(const at::Tensor& t, const shard::Ref& sharding) {
  return guarded(
      [&] {
        shard::check_fits(*sharding, span_of(t.sizes()), "mark_sharding_with_gradients");
        return make_tensor(constraint(resolved_value(t), sharding), {}, t.device());
      },
      [] { return std::string("mark_sharding_with_gradients"); });
}

at::Tensor on_mesh(const at::Tensor& t, const shard::Ref& sharding) {
  return guarded(
      [&] {
        shard::check_fits(*sharding, span_of(t.sizes()), "on_mesh");
        if (tracing()) t_trace->refuse("manual.region(replicas=True) is a program of its own");
        at::Tensor whole = impl_of(t).whole() ? t : t.clone();
        DataPtr data = computed(*impl_of(whole).alias());
        {
          GilRelease no_gil;
          check_devices(*sharding);
        }
        const shard::Ref& has = data->sharding();
        if (!has || !shard::same(*has, *sharding))
          data = moved(data, sharding, device_index(t.device()));
        return make_device_tensor(std::move(data), {}, t.device());
      },
      [] { return std::string("on_mesh"); });
}

std::vector<at::Tensor> optimization_barrier(const std::vector<at::Tensor>& tensors) {
  return guarded(
      [&] {
        static const ir::OpKind& kKind =
            ops::kind_of(*ops::find_row("torch_pjrt::optimization_barrier"));
        std::vector<Value> values;
        std::vector<ir::Type> types;
        std::vector<int64_t> operands;
        for (const at::Tensor& t : tensors) {
          operands.push_back(static_cast<int64_t>(values.size()));
          values.push_back(resolved_value(t));
          types.push_back(values.back().type());
        }
        if (values.empty()) return std::vector<at::Tensor>();
        ir::AttrsBuilder attrs;
        attrs.operands(ir::symbol("tensors"), operands);
        ir::NodePtr made = ir::Node::make(kKind, values, types, attrs.words());
        made->set_location(here());
        std::vector<at::Tensor> out;
        for (uint32_t i = 0; i < values.size(); ++i)
          out.push_back(make_tensor({made, i}, {}, tensors[i].device()));
        return out;
      },
      [] { return std::string("optimization_barrier"); });
}

at::Tensor manual_collective(const at::Tensor& t, const ManualCollective& c) {
  return guarded(
      [&] {
        static const ir::OpKind& kKind =
            ops::kind_of(*ops::find_row("torch_pjrt::manual_collective"));
        Value v = resolved_value(t);
        ir::AttrsBuilder attrs;
        attrs.operand(ir::symbol("self"), 0);
        attrs.text(ir::symbol("kind"), c.kind);
        attrs.ints(ir::symbol("parameters"), c.parameters);
        attrs.ints(ir::symbol("groups"), c.groups);
        attrs.integer(ir::symbol("group_size"), c.group_size);
        attrs.ints(ir::symbol("shape"), c.shape);
        if (c.replicas) attrs.boolean(ir::symbol("replicas"), true);
        ir::DType dtype = c.kind == "index" ? ir::DType::kS64 : v.type().dtype();
        ir::Type type = ir::make_type(dtype, c.shape);
        ir::NodePtr made = ir::Node::make(kKind, {&v, 1}, {&type, 1}, attrs.words());
        made->set_location(here());
        return make_tensor({std::move(made), 0}, {}, t.device());
      },
      [&] { return cat("spmd.manual: ", c.kind); });
}

Whereabouts sharding_of(const at::Tensor& t) {
  Impl& impl = impl_of(t);
  if (!impl.whole()) {
    if (!shard::any()) return {};
    const ir::ShardingPtr& s = value_of(impl).node->sharding();
    return {closed(s), false};
  }
  State s = state_of_alias(*impl.alias());
  if (s.data) return {s.data->sharding(), true};
  return {layout_like(impl), false};
}

namespace {

at::Tensor part_on_host(const DataPtr& part) {
  at::Tensor to = at::empty(ref_of(part->type().dims()),
                            at::TensorOptions(to_scalar_type(part->type().dtype())));
  GilRelease no_gil;
  client::client().transfer_from_device(*part, to.mutable_data_ptr(),
                                        std::make_shared<at::Tensor>(to));
  return to;
}

Alias& whole_alias(const at::Tensor& t, const char* what) {
  Impl& impl = impl_of(t);
  if (!impl.whole())
    fail(Code::kValue, cat(what, ": the tensor is a view of a larger one"),
         "give it a copy: x.clone()");
  return *impl.alias();
}

}  // namespace

std::vector<Shard> local_shards(const at::Tensor& t, int only) {
  return guarded(
      [&] {
        DataPtr data = computed(whole_alias(t, "local_shards"));
        std::vector<Shard> out;
        if (!data->sharding()) {
          shard::Box whole{{}, Dims(data->type().dims())};
          whole.start.resize(whole.size.size());
          out.push_back({data->device(), std::move(whole), 0, part_on_host(data)});
          return out;
        }
        const shard::Sharding& s = *data->sharding();
        for (size_t p = 0; p < s.devices.size(); ++p) {
          if (only >= 0 && p != static_cast<size_t>(only)) continue;
          auto at = std::find(s.tiles.order.begin(), s.tiles.order.end(), static_cast<int>(p));
          out.push_back({s.devices[p], shard::box_of(s, data->type().dims(), p),
                         static_cast<size_t>(at - s.tiles.order.begin()) % s.tiles.replicas,
                         part_on_host(data->parts()[p])});
        }
        return out;
      },
      [] { return std::string("local_shards"); });
}

void put_shards(const at::Tensor& t, const std::vector<at::Tensor>& parts) {
  guarded(
      [&] {
        Alias& a = whole_alias(t, "put_shards");
        shard::Ref s = sharding_of(t).sharding;
        if (!s || parts.size() != s->devices.size())
          fail(Code::kValue, cat("put_shards: ", parts.size(), " parts for a tensor on ",
                                 s ? s->devices.size() : 1, " devices"));
        ir::Type type = a.type.with(shard::shard_dims(*s, a.type.dims()));
        std::vector<DataPtr> up;
        for (size_t p = 0; p < parts.size(); ++p) {
          const at::Tensor& part = parts[p];
          bool fits = part.is_cpu() && part.is_contiguous() &&
                      part.scalar_type() == to_scalar_type(type.dtype()) &&
                      part.sizes() == ref_of(type.dims());
          if (!fits)
            fail(Code::kValue, cat("put_shards: part ", p, " is no dense CPU ", type.text()));
          up.push_back(send(part, type, s->devices[p]));
        }
        write_data(impl_of(t), std::make_shared<client::ShardedData>(a.type, device_index(a.device),
                                                                     s, std::move(up)));
      },
      [] { return std::string("put_shards"); });
}

std::vector<ShardedLine> sharded_lines() {
  std::vector<ShardedLine> out;
  if (!shard::any()) return out;
  for (const AliasPtr& a :
       aliases_where([](const Alias& a) { return a.buffer() && a.buffer()->sharding(); })) {
    DataPtr data = state_of_alias(*a).data;
    if (!data || !data->sharding()) continue;
    auto same = std::ranges::find_if(out, [&](const ShardedLine& l) {
      return l.where == a->made_at && l.type == data->type() &&
             shard::same(*l.sharding, *data->sharding());
    });
    if (same != out.end())
      ++same->count;
    else
      out.push_back({a->made_at, data->type(), data->sharding(), 1});
  }
  return out;
}

shard::Ref layout_like(const Impl& t) {
  if (!t.whole() || !shard::any()) return nullptr;
  Alias& a = *t.alias();
  State s = state_of_alias(a);
  if (s.data) return s.data->sharding();
  if (s.value && s.value.node->sharding()) return closed(s.value.node->sharding());
  std::lock_guard lock(state_lock());
  return a.placed ? a.layout : nullptr;
}

void inherit_layout(const at::Tensor& fresh, const at::Tensor& like) {
  if (!shard::any()) return;
  Impl *to = impl_or_null(fresh), *from = impl_or_null(like);
  if (!to || !from || !to->whole() || fresh.sizes() != like.sizes()) return;
  shard::Ref layout = layout_like(*from);
  if (!layout) return;
  std::lock_guard lock(state_lock());
  to->alias()->layout.swap(layout);
  to->alias()->placed = true;
}

}  // namespace tp::torch_room
