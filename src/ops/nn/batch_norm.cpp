// Batch normalisation in its five spellings, and its backward. Channels are dim 1; the running
// statistics are extra results that the recorder writes back. Pure functions; any thread.
#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/nn/norm.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

constexpr std::string_view kParams[] = {"weight", "bias", "running_mean", "running_var"};

// The _with_update forms always train; no_stats and native_batch_norm say it.
bool training(const Args& a) { return a.has("training") ? a.b("training") : true; }

void check_batch_norm(const Args& a) {
  Type x = a.type("input");
  if (x.rank() < 2)
    fail(Code::kIndex, cat("batch_norm: expected an input of at least 2 dimensions, but got ",
                           size_text(x.dims())));
  for (std::string_view name : kParams) {
    std::optional<Type> t = a.opt_type(name);
    if (t && t->numel() != x.dim(1))
      fail(Code::kRuntime, cat(name, " should contain ", x.dim(1), " elements not ", t->numel()));
    if (!t && !training(a) && name.starts_with("running"))
      fail(Code::kRuntime, cat(name, " must be defined in evaluation mode"));
  }
  if (training(a) && x.numel() == 0)
    fail(Code::kRuntime, cat("input tensor must have at least one element, but got input_sizes = ",
                             size_text(x.dims())));
}

void put_main_types(const Args& a, std::vector<Type>& out) {
  check_batch_norm(a);
  Type x = a.type("input");
  DType t = param_dtype(a, {"weight", "bias", "running_mean", "running_var"}, "batch_norm", true);
  int64_t n = training(a) ? x.dim(1) : 0;  // eager's eval mode saves nothing
  Type stat = ir::make_type(t, {&n, 1});
  out.insert(out.end(), {x, stat, stat});
}

Groups channel_groups(Type x) {
  IntList reduced;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != 1) reduced.push_back(i);
  return groups_over(x, reduced);
}

struct Statistics {
  V mean, rstd;                 // that the input is normalised with
  V running_mean, running_var;  // updated; invalid where there are none
};

// new = momentum * batch + (1 - momentum) * old
V blend(Lowering& l, V batch, std::string_view name) {
  if (!l.has(name)) return {};
  Builder& b = l.builder();
  V momentum = l.number("momentum", ir::scalar_type(DType::kF64));
  V keep = b.sub(b.ones(momentum.type), momentum);
  auto weight = [&](V w) { return b.broadcast_to(b.convert(w, batch.dtype()), batch.dims()); };
  V old = b.reshape(computed(l, name), batch.dims());
  return b.add(b.mul(batch, weight(momentum)), b.mul(old, weight(keep)));
}

Statistics statistics(Lowering& l, V x, const Groups& g) {
  Builder& b = l.builder();
  if (!training(l)) {
    IntList channels{x.dim(1)};
    V mean = b.reshape(computed(l, "running_mean"), channels);
    V var = b.reshape(computed(l, "running_var"), channels);
    return {mean, b.rsqrt(b.add(var, l.number("eps", var.type))), l.opt("running_mean"),
            l.opt("running_var")};
  }
  Moments m = moments(b, x, g);
  auto n = static_cast<double>(g.count);
  V unbiased = b.div(b.mul(m.variance, n), n - 1);
  return {m.mean, inverse_std(b, l, m.variance), blend(l, m.mean, "running_mean"),
          blend(l, unbiased, "running_var")};
}

void put_normalized(Lowering& l, std::vector<V>& out, V x, const Statistics& s, const Groups& g) {
  Builder& b = l.builder();
  V y = b.mul(b.sub(x, stretch(b, s.mean, x, g.kept)), stretch(b, s.rstd, x, g.kept));
  if (V w = computed(l, "weight")) y = b.mul(y, stretch(b, b.reshape(w, s.mean.dims()), x, g.kept));
  if (V c = computed(l, "bias")) y = b.add(y, stretch(b, b.reshape(c, s.mean.dims()), x, g.kept));
  put_result(l, out, y);
  for (V v : {s.mean, s.rstd}) put_result(l, out, training(l) ? v : b.zeros(l.out(1)));
}

void put_running(Lowering& l, std::vector<V>& out, const Statistics& s) {
  for (V v : {s.running_mean, s.running_var}) {
    size_t i = out.size();
    if (i >= l.node().types().size()) return;
    put_result(l, out, l.out(i) ? l.builder().reshape(v, l.out(i).dims()) : V());
  }
}

V save_or_running(Lowering& l, std::string_view saved, std::string_view running) {
  std::string_view train = l.has("train") ? "train" : "update";
  return computed(l, l.b(train) ? saved : running);
}

}  // namespace

// Evaluation writes nothing: the types of the running statistics are null.
void batch_norm_type(const Args& a, std::vector<Type>& out) {
  put_main_types(a, out);
  for (std::string_view name : {"running_mean", "running_var"})
    out.push_back(training(a) ? a.opt_type(name).value_or(Type()) : Type());
}

void batch_norm_functional_type(const Args& a, std::vector<Type>& out) {
  put_main_types(a, out);
  out.insert(out.end(), {a.type("running_mean"), a.type("running_var")});
}

void batch_norm_stateless_type(const Args& a, std::vector<Type>& out) { put_main_types(a, out); }

// One more result in the middle: the reserve that only cuDNN fills.
void batch_norm_update_type(const Args& a, std::vector<Type>& out) {
  batch_norm_functional_type(a, out);
  int64_t none = 0;
  out.insert(out.begin() + 3, ir::make_type(DType::kU8, {&none, 1}));
}

void batch_norm_lower(Lowering& l, std::vector<V>& out) {
  V x = computed(l, "input");
  Groups g = channel_groups(x.type);
  Statistics s = statistics(l, x, g);
  put_normalized(l, out, x, s, g);
  put_running(l, out, s);
}

void batch_norm_update_lower(Lowering& l, std::vector<V>& out) {
  V x = computed(l, "input");
  Groups g = channel_groups(x.type);
  Statistics s = statistics(l, x, g);
  put_normalized(l, out, x, s, g);
  out.push_back(l.builder().zeros(l.out(3)));
  put_running(l, out, s);
}

void batch_norm_backward_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input");
  std::string_view saved_var = a.operand("save_var") >= 0 ? "save_var" : "save_invstd";
  DType t = param_dtype(a, {"weight", "running_mean", "running_var", "save_mean", saved_var},
                        "batch_norm_backward");
  IntList mask = a.ints("output_mask");
  int64_t channels = x.dim(1);
  Type param = ir::make_type(t, {&channels, 1});
  out.push_back(mask[0] ? x : Type());
  out.push_back(mask[1] ? param : Type());
  out.push_back(mask[2] ? param : Type());
}

void batch_norm_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_out"), x = computed(l, "input"), weight = computed(l, "weight");
  Groups g = channel_groups(x.type);
  IntList channels{x.dim(1)};
  bool train = l.b(l.has("train") ? "train" : "update");
  V mean = b.reshape(save_or_running(l, "save_mean", "running_mean"), channels);
  std::string_view saved = l.operand("save_var") >= 0 ? "save_var" : "save_invstd";
  V rstd = b.reshape(save_or_running(l, saved, "running_var"), channels);
  if (!train) rstd = b.rsqrt(b.add(rstd, l.number("eps", rstd.type)));
  V rstd_over = stretch(b, rstd, x, g.kept);
  V normalized = b.mul(b.sub(x, stretch(b, mean, x, g.kept)), rstd_over);
  V weighted = weight ? b.mul(grad, stretch(b, b.reshape(weight, channels), x, g.kept)) : grad;
  V gx;
  if (l.out(0))
    gx =
        train ? through_moments(b, weighted, normalized, rstd_over, g) : b.mul(weighted, rstd_over);
  put_result(l, out, gx);
  put_result(l, out,
             l.out(1) ? b.reduce(b.mul(grad, normalized), g.reduced, Builder::Red::kSum) : V());
  put_result(l, out, l.out(2) ? b.reduce(grad, g.reduced, Builder::Red::kSum) : V());
}

}  // namespace tp::ops
