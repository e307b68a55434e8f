// torch.optim's fused steps: one node updates all parameters of a group (Adam and AdamW:
// arXiv:1412.6980, 1711.05101; amsgrad: 1904.09237; Adagrad: JMLR 12, 2121). Formulas and their
// widths are those of eager's CPU kernels: float at least, corrections of the bias in double. Any
// thread.
//
// Results: the lists that the in-place form writes, in its order. What stays as it is (gradients
// that are not unscaled, steps) has no type and is not written.
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

void check_count(const std::vector<Type>& params, const std::vector<Type>& list) {
  if (list.size() != params.size())
    fail(Code::kRuntime,
         cat("Expected lists of ", params.size(), " tensors, but got ", list.size()));
}

// Parameters with gradients and state of their type.
void check_like(const std::vector<Type>& params, const std::vector<Type>& list, const char* what) {
  check_count(params, list);
  for (size_t i = 0; i < params.size(); ++i)
    if (list[i] != params[i])
      fail(Code::kRuntime, cat("Expected ", what, " ", i, " to be ", params[i].text(),
                               " like its parameter, but got ", list[i].text()));
}

void check_params(const std::vector<Type>& params, std::string_view kernel) {
  for (Type t : params)
    if (!ir::is_float(t.dtype()) || ir::dtype_size(t.dtype()) == 1)
      fail(Code::kNotImplemented, not_implemented_for(kernel, t.dtype()));
}

// Parameters, gradients (where they are unscaled) and the lists of state.
void step_type(const Args& a, std::vector<Type>& out, std::string_view kernel,
               std::initializer_list<const char*> states) {
  std::vector<Type> params = a.types("self");
  check_params(params, kernel);
  check_like(params, a.types("grads"), "gradient");
  out.insert(out.end(), params.begin(), params.end());
  for (Type t : params) out.push_back(a.has("grad_scale") ? t : Type());
  for (const char* state : states) {
    check_like(params, a.types(state), "state");
    out.insert(out.end(), params.begin(), params.end());
  }
}

// The steps of one group, parameter by parameter.
class Group {
 public:
  explicit Group(Lowering& l, size_t states)
      : l(l), b(l.builder()), params(l.list("self")), grads(l.list("grads")), new_(states + 2) {
    if (l.has("grad_scale")) scale_ = scalar(l.in("grad_scale"));
    if (l.has("found_inf")) skip_ = b.compare(scalar(l.in("found_inf")), 1, Cmp::kEq);
  }

  V scalar(V v) { return b.reshape(v, IntList{}); }
  // A 0-d value as an operand for x.
  V like(V v, V x) { return b.broadcast_to(b.convert(v, x.dtype()), x.dims()); }
  V wide(V v) { return b.convert(v, ir::compute_dtype(v.dtype())); }
  V rate() { return b.convert(scalar(l.in("lr")), DType::kF64); }

  // The gradient to follow: unscaled, which the caller's gradient becomes too, and turned round.
  V gradient(size_t i) {
    V g = wide(grads[i]);
    if (scale_) g = b.div(g, like(scale_, g));
    set(1, scale_ ? g : V{}, grads[i]);
    return l.b("maximize") ? b.neg(g) : g;
  }
  // A number of the group, which may be an input of the program, in double.
  V f64(std::string_view name) { return l.number(name, ir::scalar_type(DType::kF64)); }
  V one_less(V v) { return b.sub(b.scalar(1, DType::kF64), v); }
  V times(V x, V factor) { return b.mul(x, like(factor, x)); }
  V plus(V x, V more) { return b.add(x, like(more, x)); }

  // The decayed value, or `plain` where the decay is 0: 0 times infinity is not 0.
  V decayed(V plain, const std::function<V(V)>& with) {
    bool input = bool(l.input("weight_decay"));
    if (!input && l.f("weight_decay") == 0) return plain;
    V decay = f64("weight_decay"), v = with(decay);
    if (!input) return v;
    V none = b.compare(decay, 0.0, Cmp::kEq);
    return b.select(b.broadcast_to(none, v.dims()), plain, v);
  }
  V with_decay(V g, V p) {
    return decayed(g, [&](V decay) { return b.add(g, times(p, decay)); });
  }
  // The next result of list k (0: parameters, 1: gradients, then state); invalid: none.
  void set(size_t k, V v, V old) {
    if (v) v = b.convert(v, old.dtype());
    if (v && skip_) v = b.select(b.broadcast_to(skip_, v.dims()), old, v);
    new_[k].push_back(v);
  }
  void results(std::vector<V>& out) const {
    for (const auto& list : new_) out.insert(out.end(), list.begin(), list.end());
  }

  Lowering& l;
  Builder& b;
  std::vector<V> params, grads;

 private:
  V scale_, skip_;
  std::vector<std::vector<V>> new_;
};

// --- Adam ----------------------------------------------------------------------------------------

template <Text kernel>
void adam_type(const Args& a, std::vector<Type>& out) {
  if (a.b("amsgrad"))
    step_type(a, out, kernel.text, {"exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"});
  else
    step_type(a, out, kernel.text, {"exp_avgs", "exp_avg_sqs"});
  check_count(a.types("self"), a.types("state_steps"));
}

template <bool decoupled>
void adam_lower(Lowering& l, std::vector<V>& out) {
  bool amsgrad = l.b("amsgrad");
  Group s(l, amsgrad ? 3 : 2);
  Builder& b = s.b;
  auto means = l.list("exp_avgs"), squares = l.list("exp_avg_sqs");
  auto maxima = l.list("max_exp_avg_sqs"), steps = l.list("state_steps");
  V lr = s.rate(), beta1 = s.f64("beta1"), beta2 = s.f64("beta2"), eps = s.f64("eps");
  for (size_t i = 0; i < s.params.size(); ++i) {
    V step = b.convert(s.scalar(steps[i]), DType::kF64);
    auto correction = [&](V beta) { return s.one_less(b.binary("stablehlo.power", beta, step)); };
    V p = s.wide(s.params[i]), g = s.gradient(i);
    if (!decoupled) g = s.with_decay(g, p);
    if (decoupled)
      p = s.decayed(p, [&](V decay) { return s.times(p, s.one_less(b.mul(lr, decay))); });
    V mean = b.add(s.times(s.wide(means[i]), beta1), s.times(g, s.one_less(beta1)));
    V square = b.add(s.times(s.wide(squares[i]), beta2), s.times(b.mul(g, g), s.one_less(beta2)));
    V top = amsgrad ? b.max(s.wide(maxima[i]), square) : square;
    V root = b.div(b.sqrt(top), s.like(b.sqrt(correction(beta2)), top));
    V denominator = s.plus(root, eps);
    V size = s.like(b.div(lr, correction(beta1)), p);
    s.set(0, b.sub(p, b.div(b.mul(size, mean), denominator)), s.params[i]);
    s.set(2, mean, means[i]);
    s.set(3, square, squares[i]);
    if (amsgrad) s.set(4, top, maxima[i]);
  }
  s.results(out);
}

// --- SGD -----------------------------------------------------------------------------------------

void sgd_type(const Args& a, std::vector<Type>& out) {
  if (a.f("momentum") != 0)
    step_type(a, out, "fused_sgd_kernel", {"momentum_buffer_list"});
  else
    step_type(a, out, "fused_sgd_kernel", {});
}

void sgd_lower(Lowering& l, std::vector<V>& out) {
  bool has_momentum = l.f("momentum") != 0;  // which the results' types say too
  Group s(l, has_momentum ? 1 : 0);
  Builder& b = s.b;
  auto buffers = l.list("momentum_buffer_list");
  V lr = s.rate(), momentum = s.f64("momentum"), kept = s.one_less(s.f64("dampening"));
  for (size_t i = 0; i < s.params.size(); ++i) {
    V p = s.wide(s.params[i]), g = s.with_decay(s.gradient(i), p);
    if (has_momentum) {
      V old = s.wide(buffers[i]);
      V buffer = l.b("is_first_step") ? g : b.add(s.times(old, momentum), s.times(g, kept));
      s.set(2, buffer, buffers[i]);
      g = l.b("nesterov") ? b.add(g, s.times(buffer, momentum)) : buffer;
    }
    s.set(0, b.sub(p, b.mul(g, s.like(lr, g))), s.params[i]);
  }
  s.results(out);
}

// --- Adagrad -------------------------------------------------------------------------------------

// The in-place form says that it writes the steps, which it does not.
void adagrad_type(const Args& a, std::vector<Type>& out) {
  step_type(a, out, "fused_adagrad_kernel", {"state_sums"});
  check_count(a.types("self"), a.types("state_steps"));
  out.insert(out.end(), a.types("self").size(), Type());
}

void adagrad_lower(Lowering& l, std::vector<V>& out) {
  Group s(l, 1);
  Builder& b = s.b;
  auto sums = l.list("state_sums"), steps = l.list("state_steps");
  V lr = s.rate(), lr_decay = s.f64("lr_decay"), eps = s.f64("eps");
  for (size_t i = 0; i < s.params.size(); ++i) {
    V before = b.sub(b.convert(s.scalar(steps[i]), DType::kF64), 1.0);
    V rate = b.div(lr, b.add(b.mul(before, lr_decay), 1.0));
    V p = s.wide(s.params[i]), g = s.with_decay(s.gradient(i), p);
    V sum = b.add(s.wide(sums[i]), b.mul(g, g));
    V root = s.plus(b.sqrt(sum), eps);
    s.set(0, b.sub(p, b.div(b.mul(s.like(rate, g), g), root)), s.params[i]);
    s.set(2, sum, sums[i]);
  }
  s.results(out);
  out.insert(out.end(), s.params.size(), V{});
}

// Schedules change them: of momentum (OneCycleLR), of the decay.
constexpr const char* kOfAdam = "beta1 beta2 weight_decay eps";
constexpr const char* kOfSgd = "weight_decay momentum dampening";
constexpr const char* kOfAdagrad = "lr_decay weight_decay eps";

const Row kRows[] = {
    {.name = "aten::_fused_adam",
     .type = adam_type<"fused_adam_kernel">,
     .lower = adam_lower<false>,
     .numbers = "lr",
     .general = kOfAdam},
    {.name = "aten::_fused_adam.tensor_lr",
     .type = adam_type<"fused_adam_kernel">,
     .lower = adam_lower<false>,
     .general = kOfAdam},
    {.name = "aten::_fused_adamw",
     .type = adam_type<"fused_adamw_kernel">,
     .lower = adam_lower<true>,
     .numbers = "lr",
     .general = kOfAdam},
    {.name = "aten::_fused_adamw.tensor_lr",
     .type = adam_type<"fused_adamw_kernel">,
     .lower = adam_lower<true>,
     .general = kOfAdam},
    {.name = "aten::_fused_sgd",
     .type = sgd_type,
     .lower = sgd_lower,
     .numbers = "lr",
     .general = kOfSgd},
    {.name = "aten::_fused_sgd.tensor_lr", .type = sgd_type, .lower = sgd_lower, .general = kOfSgd},
    {.name = "aten::_fused_adagrad",
     .type = adagrad_type,
     .lower = adagrad_lower,
     .numbers = "lr",
     .general = kOfAdagrad},
    {.name = "aten::_fused_adagrad.tensor_lr",
     .type = adagrad_type,
     .lower = adagrad_lower,
     .general = kOfAdagrad},
};

}  // namespace

Family optim() { return kRows; }

}  // namespace tp::ops
