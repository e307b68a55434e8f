#include "torch/random.h"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "base/text.h"
#include "torch/trace.h"

namespace tp::torch_room {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(c10::kXLA, index),
                           c10::DispatchKeySet(c10::DispatchKey::XLA)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    std::random_device device;
    set_current_seed(uint64_t{device()} << 32 | device());
    return seed_;
  }
  // The state is 16 bytes: seed, offset.
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);  // a ByteTensor of the CPU, or TypeError
    TORCH_CHECK(
        state.numel() == 16 && state.is_contiguous(),
        "RNG state of device xla must be a contiguous CPU ByteTensor of 16 elements, found ",
        state.numel(), " elements");
    const auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor t = at::empty({16}, at::TensorOptions(at::kByte));
    auto* bytes = static_cast<char*>(t.mutable_data_ptr());
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return t.getIntrusivePtr();
  }
  std::pair<int64_t, int64_t> take(int64_t draws) {
    uint64_t first = std::exchange(offset_, offset_ + static_cast<uint64_t>(draws));
    return {static_cast<int64_t>(seed_), static_cast<int64_t>(first)};
  }

 private:
  Generator* clone_impl() const override {
    auto* g = new Generator(device().index());
    g->seed_ = seed_;
    g->offset_ = offset_;
    return g;
  }
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

}  // namespace

const at::Generator& default_generator() {
  static const at::Generator g = new_generator();
  return g;
}

at::Generator new_generator(int device) {
  return at::make_generator<Generator>(static_cast<c10::DeviceIndex>(device));
}

uint64_t random_offset() {
  at::Generator g = default_generator();
  std::lock_guard lock(g.mutex());
  return g.get<Generator>()->get_offset();
}

void set_random_offset(uint64_t offset) {
  at::Generator g = default_generator();
  std::lock_guard lock(g.mutex());
  g.set_offset(offset);
}

std::pair<int64_t, int64_t> take_random(int64_t draws) {
  at::Generator g = default_generator();
  std::lock_guard lock(g.mutex());
  return g.get<Generator>()->take(draws);
}

std::pair<int64_t, int64_t> next_random(const std::optional<at::Generator>& g) {
  at::Generator use = g && g->defined() ? *g : default_generator();
  if (use.device().type() != c10::kXLA)
    fail(Code::kRuntime,
         cat("Expected a 'xla' device type for generator but found '",
             use.device().type() == c10::kCPU ? "cpu" : use.device().str(), "'"),
         "make it with torch.Generator(device=\"xla\")");
  if (tracing() && use.unsafeGetGeneratorImpl() != default_generator().unsafeGetGeneratorImpl())
      [[unlikely]]
    t_trace->refuse("it draws from a generator of its own");
  std::lock_guard lock(use.mutex());
  return use.get<Generator>()->take(1);
}

}  // namespace tp::torch_room
