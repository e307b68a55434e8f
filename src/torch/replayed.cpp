#include "torch/replayed.h"

#include <utility>

#include "torch/lent.h"
#include "torch/random.h"
#include "torch/runtime.h"

namespace tp::torch_room {

std::vector<client::DataPtr> launch(const exec::Replay& replay,
                                    const std::vector<client::DataPtr>& buffers, const Lent& lent,
                                    std::string where) {
  auto [seed, offset] = take_random(replay.draws());
  GilRelease no_gil;
  return replay.run({.arguments = buffers,
                     .may_donate = lent.may_donate(),
                     .seed = seed,
                     .offset = offset,
                     .where = std::move(where)});
}

at::Tensor as_strided(const at::Tensor& base, const OutputRecipe& r, int64_t offset) {
  return make_view(impl_of(base), ref_of(r.sizes), ref_of(r.strides), offset,
                   caffe2::TypeMeta::fromScalarType(r.dtype));
}

at::Tensor Roots::tensor(const OutputRecipe& r) {
  at::Tensor& base = bases_[r.at];
  if (!base.defined()) {
    const auto& layout = layouts_[r.at];
    base = make_device_tensor(
        values_[r.at], layout ? std::span<const int64_t>(*layout) : std::span<const int64_t>(),
        device_);
  }
  return r.same ? base : as_strided(base, r, r.offset);
}

}  // namespace tp::torch_room
