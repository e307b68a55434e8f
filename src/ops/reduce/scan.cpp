// Running reductions along one dim, in log2(n) steps (indexing.h: running): reduce_window would
// cost n^2 where a plugin does not rewrite it. Any thread.
#include <cmath>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/host/choice.h"
#include "ops/index/indexing.h"

namespace tp::ops {
namespace {

using Red = Builder::Red;

// Half types accumulate in float32; the result is rounded once.
template <class How>
void scan_self(Lowering& l, std::vector<V>& out, const How& how) {
  Builder& b = l.builder();
  V x = b.convert(l.in("self"), l.out().dtype());
  int64_t dim = l.dim("dim", x.rank());
  if (x.rank() == 0 || x.type.numel() == 0) return out.push_back(x);
  put(l, out, running(b, b.convert(x, ir::compute_dtype(x.dtype())), dim, how));
}

template <Red how>
void cumulative_lower(Lowering& l, std::vector<V>& out) {
  scan_self(l, out, how);
}

// log(exp(x) + exp(y)) without overflow; two equal infinities stay what they are.
V log_add_exp(Builder& b, V x, V y) {
  V re_x = real_part(b, x), re_y = real_part(b, y);
  V swap = b.compare(re_x, re_y, hlo::Cmp::kLt);
  V high = b.select(swap, y, x), low = b.select(swap, x, y);
  V tail = b.unary("stablehlo.log_plus_one", b.exp(b.sub(low, high)));
  V sum = b.add(high, tail);
  V re_high = real_part(b, high);
  V infinite = b.compare(b.abs(re_high), INFINITY, hlo::Cmp::kEq);
  V equal = b.compare(re_x, re_y, hlo::Cmp::kEq);
  return b.select(b.and_(equal, infinite), high, sum);
}
void logcumsumexp_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  a.dim("dim", self.rank());
  if (!ir::is_float(self.dtype()) && !ir::is_complex(self.dtype()))
    fail(Code::kNotImplemented, not_implemented_for("logcumsumexp_out_cpu", self.dtype()));
  out.push_back(self);
}
void logcumsumexp_lower(Lowering& l, std::vector<V>& out) {
  scan_self(l, out, ScanStep(log_add_exp));
}

template <Red how>
void extreme_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  if (self.numel()) a.dim("dim", self.rank());  // eager does not look at an empty tensor's
  if (ir::is_complex(self.dtype()) && self.numel() && self.rank())
    fail(Code::kNotImplemented,
         not_implemented_for(how == Red::kMax ? "cummax_cpu" : "cummin_cpu", self.dtype()));
  out.push_back(self);
  out.push_back(self.with(DType::kS64));
}
// Of equal values the later one counts; NaN, once met, stays. So the place is that of the latest
// element that is what the running extreme is there.
template <Red how>
void extreme_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  if (self.rank() == 0 || self.type.numel() == 0) {
    out.push_back(self);
    return out.push_back(b.zeros(l.out(1)));
  }
  int64_t dim = l.dim("dim", self.rank());
  V x = self.dtype() == DType::kPred ? b.convert(self, DType::kU8) : self;
  V extreme = running(b, x, dim, how);
  V hit = b.compare(x, extreme, hlo::Cmp::kEq);
  if (ir::is_float(x.dtype())) hit = b.or_(hit, b.is_nan(x));
  V place = positions(b, x.dims(), dim, DType::kS32);
  V latest = running(b, b.select(hit, place, b.zeros(place.type)), dim, Red::kMax);
  put(l, out, extreme);
  put(l, out, latest);
}

template <Red how>
void check_cumulative(const Args& a) {
  Type self = a.type("self");
  if (self.numel() && self.rank() && a.dtype_or("dtype", DType::kF32) == DType::kPred)
    fail(
        Code::kNotImplemented,
        not_implemented_for(how == Red::kSum ? "cumsum_out_cpu" : "cumprod_out_cpu", DType::kPred));
}

std::string running(DType want, DType have) {
  return cat("expected scalar_type ", eager_name(want).scalar, " but found ",
             eager_name(have).scalar);
}

}  // namespace

Family scan() {
  static const Row kRows[] = {
      {.name = "aten::cumsum",
       .lower = cumulative_lower<Red::kSum>,
       .check = check_cumulative<Red::kSum>,
       .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kComputedIn},
       .faster_on_host = faster_on_host::along_a_row},
      {.name = "aten::cumprod",
       .lower = cumulative_lower<Red::kProd>,
       .check = check_cumulative<Red::kProd>,
       .out = {.check = out_wants<expected_out_dtype>, .dtype = OutDtype::kComputedIn}},
      {.name = "aten::logcumsumexp",
       .type = logcumsumexp_type,
       .lower = logcumsumexp_lower,
       .out = {.check = out_wants<running>}},
      {.name = "aten::_logcumsumexp", .type = logcumsumexp_type, .lower = logcumsumexp_lower},
      {.name = "aten::cummax",
       .type = extreme_type<Red::kMax>,
       .lower = extreme_lower<Red::kMax>,
       .out = {.check = out_wants<running>}},
      {.name = "aten::cummin",
       .type = extreme_type<Red::kMin>,
       .lower = extreme_lower<Red::kMin>,
       .out = {.check = out_wants<running>}},
  };
  return kRows;
}

}  // namespace tp::ops
