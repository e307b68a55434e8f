// Graph -> module text. Parameters: buffers in leaf order, then the packed s64 vector, then the
// packed f64 one. Pure; the caller holds the graph lock, because node slots are read.
#include "lower/lower.h"

#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "hlo/builder.h"
#include "hlo/portable.h"
#include "ir/region.h"
#include "lower/control.h"
#include "lower/manual.h"
#include "lower/node.h"
#include "lower/portable.h"
#include "ops/core/row.h"

namespace tp::lower {
namespace {

using hlo::V;
using ir::DType;
using ir::Type;

class Walk {
 public:
  Walk(const ir::Graph& g, const Options& options)
      : g_(g), options_(options), outputs_(g.order.size()) {
    b_.set_target(options.target);
  }

  Module run(std::string_view name) {
    place_parameters();
    for (const ir::LeafUse& leaf : g_.leaves)
      if (leaf.feed != ir::Feed::kBuffer) outputs_[leaf.node->slot] = {number(leaf)};
    return body(name);
  }

  // Numbers are constants, parameters come in this order.
  Module run_portable(std::string_view name, std::span<const ir::Node* const> parameters) {
    std::unordered_map<const ir::Node*, V> placed;
    for (const ir::Node* n : parameters) placed[n] = b_.parameter(n->types()[0]);
    for (const ir::LeafUse& leaf : g_.leaves)
      outputs_[leaf.node->slot] = {leaf.feed == ir::Feed::kBuffer ? placed.at(leaf.node)
                                                                  : constant(*leaf.node)};
    return body(name);
  }

 private:
  Module body(std::string_view name) {
    for (const ir::Node* n : g_.order)
      if (n->role() == ir::Role::kInterior) lower(*n);
    std::vector<V> results;
    for (const ir::Value& r : g_.roots) results.push_back(at(r));
    Module m;
    std::vector<std::string> attrs;
    for (int output : options_.overwrites)
      attrs.push_back(output < 0 ? "" : cat("tf.aliasing_output = ", output, " : i32"));
    if (options_.sharded)
      m.text = finish_sharded(name, results, std::move(attrs));
    else
      m.text = b_.finish(name, results, attrs);
    m.statements = b_.statements();
    return m;
  }

  void place_parameters() {
    for (const ir::LeafUse& leaf : g_.leaves)
      if (leaf.feed == ir::Feed::kBuffer)
        outputs_[leaf.node->slot] = {b_.parameter(parameter_type(leaf))};
    int64_t integers = g_.num_integers, reals = g_.num_reals;
    if (const Inputs* in = options_.inputs) integers += in->integers, reals += in->reals;
    if (integers) integers_ = b_.parameter(ir::make_type(DType::kS64, {&integers, 1}));
    if (reals) reals_ = b_.parameter(ir::make_type(DType::kF64, {&reals, 1}));
  }

  Type parameter_type(const ir::LeafUse& leaf) const {
    Type t = leaf.node->types()[0];
    const shard::Sharding* s =
        leaf.index < options_.replicas.size() ? options_.replicas[leaf.index].get() : nullptr;
    return s ? t.with(shard::shard_dims(*s, t.dims())) : t;
  }

  // Every parameter says how it is cut: a bare one would be cut as propagation likes.
  std::string finish_sharded(std::string_view name, std::span<const V> results,
                             std::vector<std::string> attrs) {
    const Sharded& s = *options_.sharded;
    attrs.resize(g_.num_buffers + (integers_ ? 1 : 0) + (reals_ ? 1 : 0));
    for (size_t i = 0; i < attrs.size(); ++i) {
      const shard::Sharding* how = i < s.parameters.size() ? s.parameters[i].get() : nullptr;
      size_t rank = 1;  // of the packed numbers
      for (const ir::LeafUse& leaf : g_.leaves)
        if (leaf.feed == ir::Feed::kBuffer && leaf.index == i)
          rank = static_cast<size_t>(leaf.node->types()[0].rank());
      attrs[i] += cat(attrs[i].empty() ? "" : ", ", s.spelling.attribute(how, rank));
    }
    std::vector<std::string> of_results;
    for (size_t i = 0; i < results.size(); ++i)
      of_results.push_back(s.outputs[i].open
                               ? ""
                               : s.spelling.attribute(s.outputs[i].sharding.get(),
                                                      static_cast<size_t>(results[i].rank())));
    return b_.finish(name, results, attrs, of_results, s.spelling.top());
  }

  // A node's sharding constrains its results.
  V constrained(V v, const ir::Node& n) {
    if (!options_.sharded || !v) return v;
    const shard::Spelling& spelling = options_.sharded->spelling;
    shard::Ref s = shard::find(*n.sharding());
    std::string text = spelling.value(s.get(), static_cast<size_t>(v.rank()));
    if (spelling.form() == shard::Form::kShardy)
      return b_.op("sdy.sharding_constraint", {v}, v.type, cat("sharding = ", text));
    std::string open = shard::Spelling::unspecified(*s, static_cast<size_t>(v.rank()));
    if (!open.empty()) open = cat(", backend_config = \"", open, "\"");
    return b_.op("stablehlo.custom_call", {v}, v.type,
                 cat("call_target_name = \"Sharding\"", open, ", mhlo.sharding = ", text));
  }

  V element(V packed, int64_t i) { return b_.reshape(b_.slice_dim(packed, 0, i, i + 1), {}); }

  // A number in its own type, or a fill's value spread over the fill's type.
  V number(const ir::LeafUse& leaf) {
    Type t = leaf.node->types()[0];
    V v;
    if (leaf.feed == ir::Feed::kInteger) {
      v = element(integers_, leaf.index);
    } else if (leaf.node->scalar().kind == ir::Scalar::Kind::kComplex) {
      V re = element(reals_, leaf.index), im = element(reals_, leaf.index + 1);
      v = b_.op("stablehlo.complex", {re, im}, ir::scalar_type(DType::kC128));
    } else {
      v = element(reals_, leaf.index);
    }
    return b_.broadcast_to(b_.convert(v, t.dtype()), t.dims());
  }

  V constant(const ir::Node& leaf) {
    Type t = leaf.types()[0];
    const ir::Scalar& s = leaf.scalar();
    if (s.kind == ir::Scalar::Kind::kComplex) {
      Type real = t.with(ir::real_dtype(t.dtype()));
      return b_.op("stablehlo.complex", {b_.constant(s.re, real), b_.constant(s.im, real)}, t);
    }
    if (s.kind == ir::Scalar::Kind::kFloat) return b_.constant(s.re, t);
    return b_.constant_int(s.integer, t);
  }

  V at(const ir::Value& v) const { return outputs_[v.node->slot][v.index]; }

  std::vector<V> inputs_of(const ir::Node& n) {
    std::vector<V> v;
    if (!options_.inputs) return v;
    const Inputs& in = *options_.inputs;
    for (uint32_t i = in.first[n.slot]; i < in.first[n.slot + 1]; ++i)
      v.push_back(in.place[i] < 0 ? V{} : element(in.real[i] ? reals_ : integers_, in.place[i]));
    return v;
  }

  void lower(const ir::Node& n) {
    std::vector<V> in;
    for (const ir::Value& v : n.operands()) in.push_back(at(v));
    if (ir::is_of_replicas(n))
      outputs_[n.slot] = run_region(b_, *ir::regions_of(n)[0], in);
    else if (&n.kind() == &ir::manual_kind() && options_.sharded)
      outputs_[n.slot] = lower_manual(b_, n, in, options_.sharded->spelling);
    else
      lower_node(b_, n, in, inputs_of(n), outputs_[n.slot]);
    if (n.sharding())
      for (V& v : outputs_[n.slot]) v = constrained(v, n);
  }

  const ir::Graph& g_;
  const Options& options_;
  hlo::Builder b_;
  std::vector<std::vector<V>> outputs_;  // by slot
  V integers_, reals_;
};

}  // namespace

Module lower(const ir::Graph& graph, std::string_view name, const Options& options) {
  return Walk(graph, options).run(name);
}

Module lower_portable(const ir::Graph& graph, std::string_view name,
                      std::span<const ir::Node* const> parameters, Dialects dialects,
                      Capabilities target) {
  std::optional<hlo::PortableText> portable;
  if (dialects == Dialects::kStableHlo) portable.emplace();
  return Walk(graph, {.target = target}).run_portable(name, parameters);
}

}  // namespace tp::lower
