#include "client/platforms.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ir/dtype.h"

namespace tp::client {
namespace {

struct Platform {
  std::string_view name;             // as the plugin's PJRT_Client_PlatformName says it
  std::span<const Fact> has, lacks;  // beside Capabilities{}
};

// XLA's CPU backend keeps its buffers in this process, adds float32 sums one term after the other,
// and expands grouped convolutions to slow loops.
constexpr Fact kCpu[] = {Fact::kHostMemory, Fact::kHostCalls, Fact::kSerialSums, Fact::kSlowGroups};
// XLA:TPU rewrites 64-bit types to pairs of 32 bits, and has no such form of dot, convolution and
// FFT (libtpu 0.0.52). XLA:GPU has no cuDNN idiom for integer convolutions (jax-cuda13-pjrt
// 0.12.0.1).
constexpr Fact kAccelerator[] = {Fact::kLevels};
constexpr Fact kNotOnTpu[] = {Fact::kDoubles, Fact::kWideProducts, Fact::kWideConvolutions,
                              Fact::kDoubleFft};
constexpr Fact kNotOnCuda[] = {Fact::kWideConvolutions};

constexpr Platform kPlatforms[] = {
    {"cpu", kCpu, {}}, {"tpu", kAccelerator, kNotOnTpu}, {"cuda", kAccelerator, kNotOnCuda}};

// Whether the value is of the type that `what` takes; else throws.
template <class T>
T value_of(std::string_view what, const OptionValue& v, std::string_view expected) {
  if (auto* x = std::get_if<T>(&v)) return *x;
  fail(Code::kValue, cat("capability '", what, "' of a plugin is ", expected));
}

uint32_t types_of(std::string_view list) {
  uint32_t out = 0;
  any_word(list, [&](std::string_view word) {
    int i = 0;
    while (i < static_cast<int>(ir::DType::kCount) && ir::dtype_name(ir::DType(i)) != word) ++i;
    if (i == static_cast<int>(ir::DType::kCount))
      fail(Code::kValue, cat("capability 'missing types': no element type is called '", word,
                             "': they are f32, s64, pred, ..."));
    out |= 1u << i;
    return false;
  });
  return out;
}

void put(Capabilities& c, const std::string& name, const OptionValue& value) {
  if (name == "flat parameters") {
    c.max_flat_parameters = value_of<int64_t>(name, value, "a whole number");
    return;
  }
  if (name == "missing types") {
    c.missing_types = types_of(value_of<std::string>(name, value, "a text of element types"));
    return;
  }
  auto it = std::find(kFactNames.begin(), kFactNames.end(), name);
  if (it == kFactNames.end())
    fail(Code::kValue, cat("no capability of plugins is called '", name, "'; known are ",
                           join(kFactNames, ", "), ", flat parameters, missing types"));
  c.set(static_cast<Fact>(it - kFactNames.begin()), value_of<bool>(name, value, "true or false"));
}

void put_mistakes(Capabilities& c, std::span<const std::string> mistakes) {
  c.without_mistakes();
  for (const std::string& name : mistakes) {
    auto it = std::find(kMistakeNames.begin(), kMistakeNames.end(), name);
    if (it == kMistakeNames.end())
      fail(Code::kValue, cat("no mistake of compilers is called '", name, "'; known are ",
                             join(kMistakeNames, ", ")));
    c.set(static_cast<Mistake>(it - kMistakeNames.begin()), true);
  }
}

}  // namespace

Capabilities of_platform(std::string_view platform) {
  Capabilities c;
  for (const Platform& p : kPlatforms) {
    if (p.name != platform) continue;
    for (Fact f : p.has) c.set(f, true);
    for (Fact f : p.lacks) c.set(f, false);
  }
  return c;
}

Capabilities capabilities_of(const PluginSpec& spec, std::string_view platform) {
  Capabilities c = of_platform(spec.recorded_for.empty() ? platform : spec.recorded_for);
  c.set(Fact::kHostMemory, of_platform(platform).has(Fact::kHostMemory));
  if (spec.mistakes)
    put_mistakes(c, *spec.mistakes);
  else
    c.set(Mistake::kNarrowMasks, false);  // an option goes with it that the plugin may not have
  for (const auto& [name, value] : spec.capabilities) put(c, name, value);
  return c;
}

}  // namespace tp::client
