// CTC loss and its gradient (Graves et al. 2006): forward and backward variables over the label
// string with blanks between, in log space, one loop over time. Lengths may be values of the
// program (the .Tensor overloads); then the label strings are as long as `targets` can hold, where
// eager looks at the longest. Pure functions; any thread.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/index/indexing.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
using Red = Builder::Red;

struct Sizes {
  int64_t time, batch, classes, longest;  // longest target
  int64_t states() const { return 2 * longest + 1; }
};

bool lengths_are_values(const Args& a) { return a.operand("target_lengths") >= 0; }

Sizes sizes_of(const Args& a) {
  Type p = a.type("log_probs"), targets = a.type("targets");
  Sizes s{p.dim(0), p.dim(1), p.dim(2), 0};
  if (lengths_are_values(a)) {
    s.longest = targets.rank() == 2 ? targets.dim(1) : targets.numel();
  } else {
    for (int64_t n : a.ints("target_lengths")) s.longest = std::max(s.longest, n);
  }
  return s;
}

void check_ctc(const Args& a) {
  Type p = a.type("log_probs"), targets = a.type("targets");
  if (p.rank() != 3)
    fail(Code::kRuntime,
         cat("ctc_loss: expected log_probs of 3 dimensions, but got ", size_text(p.dims())));
  if (p.dtype() != DType::kF32 && p.dtype() != DType::kF64)
    fail(Code::kNotImplemented, not_implemented_for("ctc_loss_cpu", p.dtype()));
  if (targets.dtype() != DType::kS64 && targets.dtype() != DType::kS32)
    fail(Code::kRuntime,
         cat("Expected tensor for argument #2 'targets' to have scalar type Long; but got torch.",
             eager_name(targets.dtype()).scalar,
             "Tensor instead (while checking arguments for "
             "ctc_loss_cpu)"));
  if (int64_t blank = a.i("blank"); blank < 0 || blank >= p.dim(2))
    fail(Code::kRuntime, "blank must be in label range");
  for (std::string_view name : {"input_lengths", "target_lengths"}) {
    int64_t n =
        lengths_are_values(a) ? a.type(name).numel() : static_cast<int64_t>(a.ints(name).size());
    if (n != p.dim(1)) fail(Code::kRuntime, cat(name, " must be of size batch_size"));
  }
}

V lengths(Lowering& l, std::string_view name) {
  Builder& b = l.builder();
  if (lengths_are_values(l)) return b.convert(as_1d(b, l.in(name)), DType::kS64);
  IntList given = l.ints(name);
  std::vector<V> each;
  bool inputs = false;
  for (size_t i = 0; i < given.size(); ++i) {
    V v = l.input(name, i);
    inputs = inputs || v;
    each.push_back(v ? b.reshape(v, IntList{1}) : b.constant_list({&given[i], 1}, DType::kS64));
  }
  return inputs ? b.concat(each, 0) : b.constant_list(given, DType::kS64);
}

// A per-sequence value over [batch, states].
V per_batch(Builder& b, V v, Type states) {
  return b.broadcast(v, states.with(v.dtype()), IntList{0});
}

// Targets as [batch, longest]; what lies behind a sequence's length is anything.
V target_table(Lowering& l, const Sizes& s) {
  Builder& b = l.builder();
  V targets = b.convert(l.in("targets"), DType::kS64);
  if (targets.rank() == 2) return b.slice_dim(targets, 1, 0, s.longest);
  V length = lengths(l, "target_lengths");
  V start = b.sub(running_sum(b, length, 0), length);
  Type table = ir::make_type(DType::kS64, IntList{s.batch, s.longest});
  V place = as_1d(b, b.add(per_batch(b, start, table), b.iota(table, 1)));
  return b.reshape(take_along_list(b, targets, place, 0), table.dims());
}

struct Problem {
  Sizes size;
  V labels;                    // s64 [batch, states]: blank, target, blank, ...
  V emissions;                 // [time, batch, states]: log-probability of each state's label
  V state;                     // s64 [batch, states]: 0, 1, ..
  V input_length, last_state;  // over [batch, states]; last_state = 2 * target length
  V minus_inf;                 // [batch, states]
};

Problem problem_of(Lowering& l) {
  Builder& b = l.builder();
  Problem p;
  p.size = sizes_of(l);
  const Sizes& s = p.size;
  Type states = ir::make_type(DType::kS64, IntList{s.batch, s.states()});
  V blank = l.number("blank", states);
  V tags = target_table(l, s);
  int64_t none = 0, one = 1;
  const IntList low{none, one}, gap{none, one}, high{none, s.longest == 0 ? none : one};
  if (s.longest == 0)
    p.labels = blank;
  else
    p.labels = b.pad(tags, l.number("blank", ir::scalar_type(DType::kS64)), low, high, gap);
  V rows = b.broadcast(p.labels, states.with(IntList{s.time, s.batch, s.states()}), IntList{1, 2});
  V in_range = b.min(b.max(rows, 0.0), static_cast<double>(s.classes - 1));
  p.emissions = gather_along(b, l.in("log_probs"), in_range, 2);
  p.state = b.iota(states, 1);
  p.input_length = per_batch(b, lengths(l, "input_lengths"), states);
  p.last_state = b.mul(per_batch(b, lengths(l, "target_lengths"), states), 2.0);
  p.minus_inf = b.min_value(states.with(p.emissions.dtype()));
  return p;
}

// x moved by `steps` states (negative: towards the start), `fill` coming in.
V moved(Builder& b, V x, V fill, int64_t steps) {
  return b.pad(x, fill, IntList{0, steps}, IntList{0, -steps}, IntList{0, 0});
}

V log_sum(Builder& b, std::initializer_list<V> v) {
  V most, sum;
  for (V x : v) most = most ? b.max(most, x) : x;
  V finite = b.compare(most, -std::numeric_limits<double>::infinity(), Cmp::kNe);
  most = b.select(finite, most, b.zeros(most.type));
  for (V x : v) sum = sum ? b.add(sum, b.exp(b.sub(x, most))) : b.exp(b.sub(x, most));
  return b.add(b.log(sum), most);
}

// One step of the recursion: stay, come from the neighbour, or skip a blank between different
// labels. `toward` is 1 in time's direction, -1 against it.
V recursion(Builder& b, const Problem& p, V previous, V skip, V emission, int64_t toward) {
  V fill = b.min_value(ir::scalar_type(previous.dtype()));
  V far = b.select(skip, moved(b, previous, fill, 2 * toward), p.minus_inf);
  return b.add(log_sum(b, {previous, moved(b, previous, fill, toward), far}), emission);
}

V may_skip(Builder& b, const Problem& p, int64_t toward) {
  V outside = b.constant_int(-1, ir::scalar_type(DType::kS64));
  V other = moved(b, p.labels, outside, 2 * toward);
  V inside = b.compare(other, 0.0, Cmp::kGe);  // no label lies beyond the ends
  return b.and_(inside, b.compare(other, p.labels, Cmp::kNe));
}

// Runs step(t, previous, emission) for all times (first to last, or back) and gives [time, batch,
// states].
template <class Step>
V over_time(Builder& b, const Problem& p, bool forward, const Step& step) {
  V zero = b.zeros(ir::scalar_type(DType::kS64));
  int64_t time = p.size.time;
  const IntList slab{1, p.size.batch, p.size.states()};
  const V init[] = {zero, p.minus_inf, b.zeros(p.emissions.type)};
  auto going = [&](Builder& in, std::span<const V> v) {
    return std::vector<V>{in.compare(v[0], in.constant_int(time, v[0].type), Cmp::kLt)};
  };
  auto body = [&](Builder& in, std::span<const V> v) {
    V t = forward ? v[0] : in.sub(in.constant_int(time - 1, v[0].type), v[0]);
    const V at[] = {t, zero, zero};
    V emission = in.reshape(in.dynamic_slice(p.emissions, at, slab), p.state.dims());
    V now = step(t, v[1], emission);
    V kept = in.dynamic_update_slice(v[2], in.reshape(now, slab), at);
    return std::vector<V>{in.add(v[0], 1.0), now, kept};
  };
  return b.while_loop(init, going, body)[2];
}

V at_time(Builder& b, const Problem& p, V t, Cmp how, int64_t before_end) {
  V now = b.broadcast(t, p.state.type, {});
  return b.compare(now, b.sub(p.input_length, static_cast<double>(before_end)), how);
}

// --- loss

V forward_variables(Builder& b, const Problem& p) {
  V skip = may_skip(b, p, 1);
  V open =
      b.compare(p.state, b.min(p.last_state, 1.0), Cmp::kLe);  // states 0 and, with a target, 1
  return over_time(b, p, true, [&](V t, V previous, V emission) {
    V first = b.broadcast(b.compare(t, 0.0, Cmp::kEq), p.state.type.with(DType::kPred), {});
    V start = b.select(open, emission, p.minus_inf);
    return b.select(first, start, recursion(b, p, previous, skip, emission, 1));
  });
}

// [time, batch, states] at each sequence's last time and in its last two states, summed.
V log_likelihood(Builder& b, const Problem& p, V alpha) {
  V t = b.iota(alpha.type.with(DType::kS64), 0);
  auto over_all = [&](V v) { return b.broadcast(v, t.type.with(v.dtype()), IntList{1, 2}); };
  V ends = b.or_(b.compare(p.state, p.last_state, Cmp::kEq),
                 b.compare(p.state, b.sub(p.last_state, 1.0), Cmp::kEq));
  V hit = b.and_(over_all(ends), b.compare(t, b.sub(over_all(p.input_length), 1.0), Cmp::kEq));
  V chosen = b.select(hit, alpha, b.min_value(alpha.type));
  const IntList dims{0, 2};
  V most = b.reduce(chosen, dims, Red::kMax);
  V finite = b.compare(most, -std::numeric_limits<double>::infinity(), Cmp::kNe);
  most = b.select(finite, most, b.zeros(most.type));
  V wide = b.broadcast(most, alpha.type, IntList{1});
  return b.add(b.log(b.reduce(b.exp(b.sub(chosen, wide)), dims, Red::kSum)), most);
}

void ctc_type(const Args& a, std::vector<Type>& out) {
  check_ctc(a);
  Sizes s = sizes_of(a);
  DType t = a.type("log_probs").dtype();
  out.push_back(ir::make_type(t, {&s.batch, 1}));
  out.push_back(ir::make_type(t, IntList{s.batch, s.time, s.states()}));
}

void ctc_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out(1).numel() == 0) {
    out.push_back(b.zeros(l.out(0)));
    return out.push_back(b.zeros(l.out(1)));
  }
  Problem p = problem_of(l);
  V alpha = forward_variables(b, p), loss = b.neg(log_likelihood(b, p, alpha));
  // No input at all explains only the empty target.
  V silent = b.compare(lengths(l, "input_lengths"), 0.0, Cmp::kEq);
  V empty = b.compare(lengths(l, "target_lengths"), 0.0, Cmp::kEq);
  loss = b.select(silent, b.select(empty, b.zeros(loss.type), b.max_value(loss.type)), loss);
  out.push_back(loss);
  out.push_back(b.transpose(alpha, IntList{1, 0, 2}));
}

// --- gradient

V backward_variables(Builder& b, const Problem& p) {
  V skip = may_skip(b, p, -1);
  V ends = b.or_(b.compare(p.state, p.last_state, Cmp::kEq),
                 b.compare(p.state, b.sub(p.last_state, 1.0), Cmp::kEq));
  return over_time(b, p, false, [&](V t, V previous, V emission) {
    V start = b.select(ends, emission, p.minus_inf);
    V inner = b.select(at_time(b, p, t, Cmp::kLt, 1), recursion(b, p, previous, skip, emission, -1),
                       p.minus_inf);
    return b.select(at_time(b, p, t, Cmp::kEq, 1), start, inner);
  });
}

// Posterior probability of each class at each time, [time, batch, classes].
V posteriors(Lowering& l, const Problem& p) {
  Builder& b = l.builder();
  V alpha = b.transpose(l.in("log_alpha"), IntList{1, 0, 2}), beta = backward_variables(b, p);
  V both = b.add(alpha, beta);
  V possible = b.compare(both, -std::numeric_limits<double>::infinity(), Cmp::kNe);
  V loss = b.broadcast(l.in("neg_log_likelihood"), both.type, IntList{1});
  V log_post = b.add(b.select(possible, b.sub(both, p.emissions), both), loss);
  V labels = p.labels;
  Type one_hot = labels.type.with(IntList{p.size.batch, p.size.states(), p.size.classes});
  V is_class = b.compare(b.broadcast(labels, one_hot, IntList{0, 1}), b.iota(one_hot, 2), Cmp::kEq);
  V post = b.transpose(b.exp(log_post), IntList{1, 0, 2});  // [batch, time, states]
  const IntList batch{0}, last{2}, middle{1};
  V sum = b.dot(post, b.convert(is_class, post.dtype()), batch, batch, last, middle, post.dtype());
  return b.transpose(sum, IntList{1, 0, 2});
}

void ctc_backward_type(const Args& a, std::vector<Type>& out) {
  check_ctc(a);
  out.push_back(a.type("log_probs"));
}

void ctc_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V probs = l.in("log_probs");
  if (probs.type.numel() == 0) return out.push_back(b.zeros(probs.type));
  Problem p = problem_of(l);
  auto per_sequence = [&](V v) { return b.broadcast(v, probs.type.with(v.dtype()), IntList{1}); };
  V grad = b.mul(b.sub(b.exp(probs), posteriors(l, p)), per_sequence(l.in("grad")));
  V t = b.iota(probs.type.with(DType::kS64), 0);
  V heard = b.compare(t, per_sequence(lengths(l, "input_lengths")), Cmp::kLt);
  if (l.b("zero_infinity")) {
    V loss = per_sequence(l.in("neg_log_likelihood"));
    heard = b.and_(heard, b.compare(loss, std::numeric_limits<double>::infinity(), Cmp::kNe));
  }
  out.push_back(b.select(heard, grad, b.zeros(grad.type)));
}

}  // namespace

Family ctc() {
  static const Row kRows[] = {
      {.name = "aten::_ctc_loss",
       .type = ctc_type,
       .lower = ctc_lower,
       .general = "blank input_lengths target_lengths"},
      {.name = "aten::_ctc_loss.Tensor", .type = ctc_type, .lower = ctc_lower, .general = "blank"},
      {.name = "aten::_ctc_loss_backward",
       .type = ctc_backward_type,
       .lower = ctc_backward_lower,
       .general = "blank input_lengths target_lengths"},
      {.name = "aten::_ctc_loss_backward.Tensor",
       .type = ctc_backward_type,
       .lower = ctc_backward_lower,
       .general = "blank"},
  };
  return kRows;
}

}  // namespace tp::ops
