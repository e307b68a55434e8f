#include "torch/body.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "torch/argument.h"
#include "torch/capture.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/kernels.h"
#include "torch/random.h"
#include "torch/runtime.h"
#include "torch/spmd.h"
#include "torch/unsynced.h"

namespace tp::torch_room {

namespace {

c10::Device device_of(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& t : tensors)
    if (t.device().is_xla()) return t.device();
  return {c10::kXLA, static_cast<c10::DeviceIndex>(current_device())};
}

// Random numbers of a `while`, whose rounds nobody counts: far more than it will draw.
constexpr int64_t kManyRounds = int64_t{1} << 32;

}  // namespace

Body::Body(const std::vector<at::Tensor>& like, std::string name)
    : name_(std::move(name)), outer_(t_trace), device_(device_of(like)) {
  for (const at::Tensor& t : like)
    if (!impl_or_null(t) || t.device() != device_)
      fail(Code::kRuntime,
           cat(name_, ": expected tensors of ", device_.str(), ", found one of ", t.device().str()),
           cat("move it with .to(\"", device_.str(), "\")"));
  first_ = stand_in_leaf(ir::scalar_type(ir::DType::kPred), device_index(device_))->sequence();
  first_offset_ = static_cast<int64_t>(random_offset());
  t_trace = this;
  for (const at::Tensor& t : like) {
    const Impl& impl = impl_of(t);
    ir::NodePtr leaf = stand_in_leaf(type_of(impl), device_index(device_));
    stand_ins_.push_back(make_tensor({leaf, 0}, dense_strides(impl), device_));
    aliases_.push_back(alias_ptr(impl_of(stand_ins_.back())));
    leaves_.push_back(std::move(leaf));
  }
  at::Tensor mark;
  if (aliases_.empty())
    mark = make_tensor({stand_in_leaf(ir::scalar_type(ir::DType::kPred), 0), 0}, {}, device_);
  first_alias_ = aliases_.empty() ? impl_of(mark).alias()->id : aliases_.front()->id;
}

Body::~Body() { end(); }

void Body::end() {
  if (!std::exchange(active_, false)) return;
  t_trace = outer_;
  draws_ = static_cast<int64_t>(random_offset()) - first_offset_;
  if (draws_) set_random_offset(static_cast<uint64_t>(first_offset_));
}

void Body::drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t at) {
  offsets_.push_back(offset);
  if (outer_)
    outer_->drew(seed, offset, at);
  else if (Capture* c = g_capture.load(std::memory_order_acquire))
    c->drew(seed, offset, at);
}

void Body::refuse(std::string why) {
  fail(Code::kRuntime, cat(name_, " has to run on the device, but ", why),
       "return what is to be read or written from it");
}

int64_t Body::stand_in_of(const Alias& a) const {
  for (size_t i = 0; i < aliases_.size(); ++i)
    if (aliases_[i].get() == &a) return static_cast<int64_t>(i);
  return -1;
}

std::vector<int64_t> Body::written() const {
  std::vector<int64_t> out;
  for (size_t i = 0; i < aliases_.size(); ++i)
    if (!(aliases_[i]->value().node == leaves_[i])) out.push_back(static_cast<int64_t>(i));
  return out;
}

Body::Source Body::source(const at::Tensor& t) const {
  Impl* impl = impl_or_null(t);
  if (!impl || !owns(*impl->alias())) return {};
  Alias& a = *impl->alias();
  ir::Value all = root_value(a);
  auto number = [](const ir::Value& v) { return v.node->sequence() << 16 | v.index; };
  if (t.is_conj() || t.is_neg() || !(type_of(*impl).dtype() == a.type.dtype())) {
    ir::Value v = resolved_value(t);
    return {.value = number(v), .base = make_tensor(v, dense_strides(*impl), device_)};
  }
  auto same_memory = [&](const Alias& other) {
    return a.strides ? other.strides && *a.strides == *other.strides : !other.strides;
  };
  for (size_t i = 0; i < leaves_.size(); ++i)
    if (all.node == leaves_[i] && same_memory(*aliases_[i]))
      return {.stand_in = static_cast<int64_t>(i), .window = true};
  return {.value = number(all),
          .base = make_tensor(
              all, a.strides ? std::span<const int64_t>(*a.strides) : std::span<const int64_t>(),
              device_),
          .window = true};
}

std::vector<ir::NodePtr> Body::depended_on() const {
  std::vector<ir::NodePtr> all = leaves_;
  all.insert(all.end(), offsets_.begin(), offsets_.end());
  return all;
}

at::Tensor Body::outside(const at::Tensor& t) const {
  check(!active_, "a body has ended before its values are looked at");
  ir::Value v = resolved_value(t);
  if (ir::depends_on(v, depended_on(), first_)) return {};
  return make_tensor(std::move(v), dense_strides(impl_of(t)), device_);
}

void Body::finish(const std::vector<at::Tensor>& results) {
  check(!active_ && !code_.region, "a body is finished once, behind its end");
  std::vector<ir::Value> values;
  for (const at::Tensor& t : results) {
    if (!impl_or_null(t) || t.device() != device_)
      fail(Code::kRuntime, cat(name_, ": expected results on ", device_.str(), ", found one on ",
                               t.device().str()));
    values.push_back(resolved_value(t));
    types_.push_back(values.back().type());
    strides_.push_back(dense_strides(impl_of(t)));
  }
  code_ = ir::extract_region(values, depended_on(), first_);
  for (const ir::Node* n : code_.region->graph.order)
    if (n->kind().host)
      fail(Code::kRuntime, cat(name_, " has to run on the device, but ", n->kind().name, " (",
                               ir::line_and_caller(n->location()), ") runs on the CPU"));
}

bool Body::uses(const Body& other) const {
  auto leaves = other.depended_on();
  return std::any_of(code_.captured.begin(), code_.captured.end(),
                     [&](const ir::Value& v) { return ir::depends_on(v, leaves, other.first_); });
}

// A node with regions while it is put together.
struct Recording {
  const Body& body;  // or one of the bodies: they have one name and device
  std::vector<ir::Value> operands = {};
  std::vector<ir::Extra> extra = {};
  std::vector<ir::RegionPtr> regions = {};

  void add(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& t : tensors) operands.push_back(resolved_value(t));
  }
  void add(const Body& b) {
    check(static_cast<bool>(b.code_.region), "a body is finished before it is used");
    for (const ir::NodePtr& n : b.offsets_) operands.push_back({n, 0});
    for (const ir::Value& v : b.code_.captured) operands.push_back(v);
    extra.push_back({static_cast<int64_t>(b.offsets_.size()), b.draws_,
                     static_cast<int64_t>(b.code_.captured.size())});
    regions.push_back(b.code_.region);
  }
  std::vector<at::Tensor> results(const ir::NodePtr& node, size_t laid_out) const {
    node->set_location(here());
    note_recorded(*node);
    std::vector<at::Tensor> out;
    for (uint32_t i = 0; i < node->types().size(); ++i)
      out.push_back(make_tensor(
          {node, i},
          i < laid_out ? std::span<const int64_t>(body.strides_[i]) : std::span<const int64_t>(),
          body.device_));
    return out;
  }
  // Leaves room for the numbers that the rounds draw.
  static void advance(int64_t rounds, int64_t draws) {
    if (draws) take_random(rounds < 0 ? draws * kManyRounds : draws * rounds);
  }
  static int64_t draws_of(const Body* b) { return b ? b->draws_ : 0; }
  const std::vector<ir::Type>& result_types() const { return body.types_; }
  const std::string& name() const { return body.name_; }
};

std::vector<at::Tensor> record_loop(const Body* condition, const Body& body,
                                    const LoopArguments& a) {
  Recording r{body};
  return guarded(
      [&] {
        r.add(a.carried);
        std::vector<ir::Type> types;
        for (const ir::Value& v : r.operands) types.push_back(v.type());
        for (size_t i = 0; i < types.size(); ++i)
          if (i >= r.result_types().size() || !(r.result_types()[i] == types[i]))
            fail(
                Code::kRuntime,
                cat(r.name(), ": expected carried value ", i, " to stay ", types[i].text(),
                    ", found ", i < r.result_types().size() ? r.result_types()[i].text() : "none"));
        for (ir::Type t : std::span(r.result_types()).subspan(types.size())) {
          Dims dims(t.dims());
          std::vector<int64_t> stacked{a.length};
          stacked.insert(stacked.end(), t.dims().begin(), t.dims().end());
          types.push_back(ir::make_type(t.dtype(), stacked));
        }
        r.add(a.scanned);
        r.add(a.invariants);
        if (condition) r.add(*condition);
        r.add(body);
        ir::LoopShape shape{a.length,
                            a.reverse,
                            static_cast<int64_t>(a.carried.size()),
                            static_cast<int64_t>(a.scanned.size()),
                            static_cast<int64_t>(a.invariants.size()),
                            r.extra};
        if (Recording::draws_of(condition))
          fail(Code::kRuntime, cat(r.name(), ": its condition draws random numbers"),
               "draw them in the body");
        Recording::advance(a.length, Recording::draws_of(&body));
        return r.results(ir::make_loop(shape, r.regions, r.operands, types), a.carried.size());
      },
      [&] { return r.name(); });
}

std::vector<at::Tensor> record_branch(const at::Tensor& predicate, const Body& on_true,
                                      const Body& on_false,
                                      const std::vector<at::Tensor>& operands) {
  Recording r{on_true}, other{on_false};
  return guarded(
      [&] {
        const auto &types = r.result_types(), &others = other.result_types();
        for (size_t i = 0; i < std::max(types.size(), others.size()); ++i)
          if (i >= types.size() || i >= others.size() || !(types[i] == others[i]))
            fail(Code::kRuntime,
                 cat(r.name(), ": expected both branches to give one type, found ",
                     i < types.size() ? types[i].text() : "nothing", " and ",
                     i < others.size() ? others[i].text() : "nothing", " for result ", i));
        r.add({predicate});
        r.add(operands);
        r.add(on_true);
        r.add(on_false);
        Recording::advance(1,
                           std::max(Recording::draws_of(&on_true), Recording::draws_of(&on_false)));
        return r.results(ir::make_branch(r.extra, r.regions, r.operands, types), types.size());
      },
      [&] { return r.name(); });
}

namespace {

std::vector<std::string> texts_of(const std::vector<shard::Ref>& shardings) {
  std::vector<std::string> out;
  for (const shard::Ref& s : shardings) out.push_back(s->text);
  return out;
}

// Of the values that are put together from a region's results.
std::vector<ir::Type> whole_types(const std::string& name, std::span<const ir::Type> parts,
                                  const std::vector<shard::Ref>& out) {
  if (parts.size() != out.size())
    fail(Code::kValue, cat(name, ": ", out.size(), " out_specs, ", parts.size(), " results"));
  std::vector<ir::Type> types;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!out[i]->replicated() && out[i]->tiles.counts.size() > static_cast<size_t>(parts[i].rank()))
      fail(Code::kValue, cat(name, ": out_specs ", i, " has ", out[i]->tiles.counts.size(),
                             " entries, the result ", parts[i].rank(), " dims"));
    types.push_back(parts[i].with(shard::whole_dims(*out[i], parts[i].dims())));
  }
  return types;
}

// The results of a program of this node's values, as `out` says.
std::vector<at::Tensor> run_alone(const ir::NodePtr& node, const std::vector<shard::Ref>& out,
                                  c10::Device device) {
  exec::PlanRequest request;
  for (uint32_t i = 0; i < out.size(); ++i) {
    request.roots.push_back({node, i});
    request.layouts.pins.push_back({true, out[i]});
  }
  request.uploaded = [](const ir::Node&) { return false; };
  request.device = device_index(device);
  request.straight = true;
  request.where = ir::line_text(here());
  std::vector<client::DataPtr> values;
  {
    GilRelease no_gil;
    values = executor().sync(executor().plan(std::move(request))).outputs;
  }
  std::vector<at::Tensor> results;
  for (client::DataPtr& v : values) results.push_back(make_device_tensor(std::move(v), {}, device));
  return results;
}

}  // namespace

std::vector<at::Tensor> run_replicas(const Body& body, const std::vector<at::Tensor>& operands,
                                     const std::vector<shard::Ref>& in,
                                     const std::vector<shard::Ref>& out) {
  Recording r{body};
  return guarded(
      [&] {
        r.add(operands);
        r.add(body);
        std::vector<ir::Type> types = whole_types(r.name(), r.result_types(), out);
        Recording::advance(1, Recording::draws_of(&body));
        ir::NodePtr made = ir::make_manual(r.extra[0], texts_of(in), texts_of(out), r.regions[0],
                                           r.operands, types, true);
        made->set_location(here());
        return run_alone(made, out, operands.at(0).device());
      },
      [&] { return r.name(); });
}

std::vector<at::Tensor> record_manual(const Body& body, const std::vector<at::Tensor>& operands,
                                      const std::vector<shard::Ref>& in,
                                      const std::vector<shard::Ref>& out) {
  Recording r{body};
  return guarded(
      [&] {
        std::vector<at::Tensor> placed;
        for (size_t i = 0; i < operands.size(); ++i)
          placed.push_back(constrained(operands[i], in.at(i)));
        r.add(placed);
        r.add(body);
        std::vector<ir::Type> types = whole_types(r.name(), r.result_types(), out);
        Recording::advance(1, Recording::draws_of(&body));
        auto results = r.results(ir::make_manual(r.extra[0], texts_of(in), texts_of(out),
                                                 r.regions[0], r.operands, types),
                                 0);
        for (size_t i = 0; i < results.size(); ++i) results[i] = constrained(results[i], out[i]);
        return results;
      },
      [&] { return r.name(); });
}

}  // namespace tp::torch_room
