// torch.amp's two kernels: unscaling gradients while looking for what is not finite, and the
// scale's update. Any thread.
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

void unscale_type(const Args& a, std::vector<Type>& out) {
  for (Type t : a.types("self")) out.push_back(t);
  out.push_back(a.type("found_inf"));
}
// Results: the gradients in order, then found_inf (1 where any is not finite, otherwise as it was).
void unscale_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V found = l.in("found_inf"), inv_scale = l.in("inv_scale");
  V any = b.zeros(ir::scalar_type(DType::kPred));
  for (V g : l.list("self")) {
    V finite = b.op("stablehlo.is_finite", {g}, g.type.with(DType::kPred));
    IntList all;
    for (int64_t d = 0; d < g.rank(); ++d) all.push_back(d);
    any = b.or_(any, b.reduce(b.not_(finite), all, Builder::Red::kOr));
    V x = b.convert(g, ir::compute_dtype(g.dtype()));
    V factor = b.broadcast_to(b.reshape(b.convert(inv_scale, x.dtype()), IntList{}), x.dims());
    out.push_back(b.convert(b.mul(x, factor), g.dtype()));
  }
  V one = b.ones(found.type);
  out.push_back(b.select(b.broadcast_to(any, found.dims()), one, found));
}

// Results: the scale, the growth tracker.
void update_scale_type(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("self"));
  out.push_back(a.type("growth_tracker"));
}
void update_scale_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V scale = l.in("self"), tracker = l.in("growth_tracker");
  V found = b.broadcast_to(b.reshape(l.in("found_inf"), IntList{}), scale.dims());
  V bad = b.compare(found, 0, Cmp::kNe);
  auto scaled = [&](const char* factor) {  // eager multiplies in double
    V wide = b.convert(scale, DType::kF64);
    return b.convert(b.mul(wide, l.number(factor, wide.type)), scale.dtype());
  };
  V grown = scaled("scale_growth_factor");
  V finite = b.op("stablehlo.is_finite", {grown}, grown.type.with(DType::kPred));
  V steps = b.add(tracker, 1);
  V due = b.compare(steps, l.number("growth_interval", steps.type), Cmp::kEq);
  V good = b.select(b.and_(b.reshape(due, scale.dims()), finite), grown, scale);
  out.push_back(b.select(bad, scaled("scale_backoff_factor"), good));
  V restart = b.or_(b.reshape(bad, tracker.dims()), due);
  out.push_back(b.select(restart, b.zeros(tracker.type), steps));
}

}  // namespace

Family amp() {
  static const Row kRows[] = {
      {.name = "aten::_amp_foreach_non_finite_check_and_unscale",
       .type = unscale_type,
       .lower = unscale_lower,
       .also = "aten::_amp_foreach_non_finite_check_and_unscale_"},
      {.name = "aten::_amp_update_scale",
       .type = update_scale_type,
       .lower = update_scale_lower,
       .also = "aten::_amp_update_scale_",
       .general = "scale_growth_factor scale_backoff_factor growth_interval"},
  };
  return kRows;
}

}  // namespace tp::ops
