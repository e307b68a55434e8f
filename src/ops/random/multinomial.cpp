#include "ops/random/multinomial.h"

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/index/indexing.h"
#include "ops/random/random_bits.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
using Red = Builder::Red;

// With replacement: where a uniform number falls among the running sums.
V draw_with_replacement(Builder& b, Random& random, V p, int64_t n) {
  int64_t categories = p.dim(1);
  V sums = running_sum(b, p, 1);
  V total = b.slice_dim(sums, 1, categories - 1, categories);
  IntList dims{p.dim(0), n, categories};
  V u = random.uniform(p.type.with(IntList{p.dim(0), n}));
  u = b.mul(u, b.broadcast_to(total, u.dims()));
  V wide_u = b.broadcast(u, p.type.with(dims), IntList{0, 1});
  V wide_sums = b.broadcast(sums, p.type.with(dims), IntList{0, 2});
  V passed = b.convert(b.compare(wide_sums, wide_u, Cmp::kLe), DType::kS64);
  V place = b.reduce(passed, IntList{2}, Red::kSum);
  return b.min(place, b.constant_int(categories - 1, place.type));
}

}  // namespace

void multinomial_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  int64_t n = a.i("num_samples");
  if (self.rank() < 1 || self.rank() > 2) fail(Code::kRuntime, "prob_dist must be 1 or 2 dim");
  if (!ir::is_float(self.dtype()))
    fail(Code::kRuntime, cat("multinomial only supports floating-point dtypes for input, got: ",
                             eager_name(self.dtype()).scalar));
  if (n <= 0) fail(Code::kRuntime, "cannot sample n_sample <= 0 samples");
  if (!a.b_or("replacement", false) && n > self.dims().back())
    fail(Code::kRuntime, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  IntList dims = dims_of(self);
  dims.back() = n;
  out.push_back(ir::make_type(DType::kS64, dims));
}
// Without: the largest of p / exponential, which is how eager draws too.
void multinomial_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V p = l.in("self");
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  p = b.convert(p, ir::compute_dtype(p.dtype()));
  if (p.rank() == 1) p = b.reshape(p, IntList{1, p.dim(0)});
  Random random(l);
  int64_t n = l.i("num_samples");
  V places;
  if (l.b_or("replacement", false) && n > 1) {
    places = draw_with_replacement(b, random, p, n);
  } else {
    V race = b.div(p, b.neg(b.log(random.open_uniform(p.type))));
    places = b.slice_dim(sort_along(b, race, 1, true).indices, 1, 0, n);
  }
  out.push_back(b.reshape(places, l.out().dims()));
}

std::string multinomial_words(DType want, DType have) {
  return cat("multinomial expects ", eager_name(want).scalar,
             " tensor out, got: ", eager_name(have).scalar);
}

}  // namespace tp::ops
