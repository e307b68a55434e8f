// A loop is one `while` over (round, carried values, stacks of the body's further results); what it
// scans, its invariants and what its regions capture are values of the graph around it, which a
// region may use as they are.
#include "lower/control.h"

#include "base/error.h"
#include "base/text.h"
#include "lower/node.h"

namespace tp::lower {
namespace {

using hlo::Builder;
using hlo::V;
using ir::DType;
using ir::Type;

using Values = std::span<const V>;

void append(std::vector<V>& to, Values more) { to.insert(to.end(), more.begin(), more.end()); }

std::vector<V> starts(Builder& b, V first, int rank) {
  std::vector<V> v{first};
  for (int d = 1; d < rank; ++d) v.push_back(b.zeros(first.type));
  return v;
}

V slice_of(Builder& b, V stack, V at) {
  hlo::IntList sizes(stack.dims().begin(), stack.dims().end());
  sizes[0] = 1;
  V one = b.dynamic_slice(stack, starts(b, at, stack.rank()), sizes);
  return b.reshape(one, stack.dims().subspan(1));
}

V put_slice(Builder& b, V stack, V value, V at) {
  hlo::IntList sizes(stack.dims().begin(), stack.dims().end());
  sizes[0] = 1;
  return b.dynamic_update_slice(stack, b.reshape(value, sizes), starts(b, at, stack.rank()));
}

class Loop {
 public:
  Loop(Builder& b, const ir::Node& n, Values in)
      : b_(b),
        n_(n),
        shape_(ir::loop_shape(n)),
        regions_(ir::regions_of(n)),
        carried_(take(in, shape_.carried)),
        scanned_(take(in, shape_.scanned)),
        invariants_(take(in, shape_.invariants)) {
    for (const ir::Extra& e : shape_.extra) {
      draws_.push_back(take(in, e.draws));
      captured_.push_back(take(in, e.captured));
    }
  }

  std::vector<V> run() {
    std::vector<V> init{b_.zeros(ir::scalar_type(DType::kS64))};
    append(init, carried_);
    for (Type t : n_.types().subspan(carried_.size())) init.push_back(b_.zeros(t));
    std::vector<Type> types;
    for (const V& v : init) types.push_back(v.type);
    std::vector<Type> args[] = {types, types};
    hlo::Region regions[] = {[&](Builder&, Values state) { return std::vector<V>{goes_on(state)}; },
                             [&](Builder&, Values state) { return round(state); }};
    std::vector<V> out = b_.region_op("stablehlo.while", init, types, {}, args, regions);
    return {out.begin() + 1, out.end()};
  }

 private:
  static Values take(Values& from, int64_t count) {
    Values v = from.first(static_cast<size_t>(count));
    from = from.subspan(v.size());
    return v;
  }

  V goes_on(Values state) {
    if (shape_.length >= 0)
      return b_.compare(state[0], static_cast<double>(shape_.length), hlo::Cmp::kLt);
    std::vector<V> in(state.begin() + 1, state.end());
    add_extra(0, state[0], in);
    return b_.reshape(run_region(b_, *regions_[0], in)[0], {});
  }

  std::vector<V> round(Values state) {
    V at = shape_.reverse ? b_.sub(b_.constant_int(shape_.length - 1, state[0].type), state[0])
                          : state[0];
    Values stacks = state.subspan(1 + carried_.size());
    std::vector<V> in(state.begin() + 1, state.end() - static_cast<long>(stacks.size()));
    for (const V& s : scanned_) in.push_back(slice_of(b_, s, at));
    size_t body = regions_.size() - 1;
    add_extra(body, state[0], in);
    std::vector<V> results = run_region(b_, *regions_[body], in);
    std::vector<V> next{b_.add(state[0], b_.constant_int(1, state[0].type))};
    append(next, Values(results).first(carried_.size()));
    for (size_t i = 0; i < stacks.size(); ++i)
      next.push_back(put_slice(b_, stacks[i], results[carried_.size() + i], at));
    return next;
  }

  // Random numbers of a round are those behind the last round's.
  void add_extra(size_t region, V round, std::vector<V>& in) {
    append(in, invariants_);
    for (const V& first : draws_[region]) {
      V step = b_.constant_int(shape_.extra[region].step, round.type);
      in.push_back(b_.add(first, b_.mul(round, step)));
    }
    append(in, captured_[region]);
  }

  Builder& b_;
  const ir::Node& n_;
  ir::LoopShape shape_;
  std::span<const ir::RegionPtr> regions_;
  Values carried_, scanned_, invariants_;
  std::vector<Values> draws_, captured_;  // by region
};

std::vector<V> branch(Builder& b, const ir::Node& n, Values in) {
  std::vector<ir::Extra> extra = ir::extra_of(n);
  auto regions = ir::regions_of(n);
  size_t given = in.size() - 1;
  for (const ir::Extra& e : extra) given -= static_cast<size_t>(e.draws + e.captured);
  std::vector<hlo::Region> bodies;
  size_t next = 1 + given;
  for (size_t i = 0; i < regions.size(); ++i) {
    std::vector<V> parameters;
    append(parameters, in.subspan(1, given));
    auto count = static_cast<size_t>(extra[i].draws + extra[i].captured);
    append(parameters, in.subspan(next, count));
    next += count;
    bodies.emplace_back([&b, &r = *regions[i], parameters = std::move(parameters)](
                            Builder&, Values) { return run_region(b, r, parameters); });
  }
  std::vector<Type> args[] = {{}, {}};
  return b.region_op("stablehlo.if", in.first(1), n.types(), {}, args, bodies);
}

}  // namespace

std::vector<V> run_region(Builder& b, const ir::Region& r, Values parameters) {
  check(parameters.size() == r.parameter_types.size(), "a region gets its parameters");
  std::vector<std::vector<V>> outputs(r.graph.order.size());
  for (size_t i = 0; i < r.parameters.size(); ++i)
    outputs[r.graph.leaves[i].node->slot] = {parameters[r.parameters[i]]};
  std::vector<V> in;
  for (const ir::Node* n : r.graph.order) {
    if (n->role() != ir::Role::kInterior) continue;
    in.clear();
    for (const ir::Value& v : n->operands()) in.push_back(outputs[v.node->slot][v.index]);
    lower_node(b, *n, in, {}, false, outputs[n->slot]);
  }
  std::vector<V> results;
  for (const ir::Value& v : r.graph.roots) results.push_back(outputs[v.node->slot][v.index]);
  return results;
}

void lower_control(Builder& b, const ir::Node& n, Values in, std::vector<V>& out) {
  if (&n.kind() == &ir::manual_kind())
    fail(Code::kNotImplemented, "spmd.manual inside a loop, a branch or a program of one device",
         "call it outside of torch.cond, while_loop and scan");
  out = &n.kind() == &ir::loop_kind() ? Loop(b, n, in).run() : branch(b, n, in);
}

}  // namespace tp::lower
