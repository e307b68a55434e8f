// What programs may count on from the plugin that compiles them: facts that choose between forms of
// one meaning, and what this process may do with the plugin's memory. They come from the plugin's
// row (torch_pjrt/plugins.py) and, where it says nothing, from the table of platforms
// (client/platforms.h); of a platform that is not in there the most careful is assumed. A value:
// any thread.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace tp {

// Mistakes of XLA's compiler. docs/design/0006-cpu-plugins.md says which plugin makes which, and
// tests/python/test_cpu_plugins.py has a program for each that comes out wrong.
enum class Mistake : uint8_t {
  kUpdates,       // an update in place reads what it has written, under another shape's name
  kBitcasts,      // of two bitcasts it makes one, whatever their widths
  kBoolProducts,  // x times a converted bool becomes a select: nan * 0 = 0
  kBoolSums,      // constants of bools add up to false
  kSquares,       // x * x and |x| of integers are taken for non-negative, though they overflow
  kNarrowMasks,   // 256-bit code for AVX-512 forgets lanes of a mask over int64 made int8
  kArctangents,  // atan, or atan2 by a constant 1, of 64 and more elements is wrong in most of them
};

// By Mistake: the names in plugins' rows.
inline constexpr std::array<std::string_view, 7> kMistakeNames{
    "updates", "bitcasts", "bool products", "bool sums", "squares", "narrow masks", "arctangents"};

// What a plugin has, or how its programs run. docs/plugins.md says what follows from each.
enum class Fact : uint8_t {
  kHostMemory,        // device memory is this process's
  kHostCalls,         // programs may call this process, where the plugin has the extension for it
  kHostLayouts,       // a copy to the host may ask for row-major order
  kSerialSums,        // float32 sums add up one term after the other
  kSlowGroups,        // grouped convolutions are slow as such
  kRngOp,             // the op for random bits is as good as the cipher written out
  kDoubles,           // float64 is one, not a pair of float32
  kWideProducts,      // products of 64-bit integers
  kWideConvolutions,  // convolutions of 64-bit integers
  kDoubleFft,         // Fourier transforms of float64 and complex128
  kLevels,            // compiles have an optimization level
  kNone,              // no fact
};

// By Fact: the names in plugins' rows.
inline constexpr std::array<std::string_view, 11> kFactNames{
    "host memory", "host calls",         "host layouts",
    "serial sums", "slow groups",        "rng op",
    "float64",     "int64 products",     "int64 convolutions",
    "float64 fft", "optimization levels"};

class Capabilities {
 public:
  // Of a plugin that nobody has tried: careful, but nothing is refused before the plugin does.
  Capabilities() {
    for (Fact f : {Fact::kHostLayouts, Fact::kDoubles, Fact::kWideProducts, Fact::kWideConvolutions,
                   Fact::kDoubleFft})
      set(f, true);
  }

  bool makes(Mistake m) const { return mistakes_ >> static_cast<int>(m) & 1; }
  void set(Mistake m, bool makes) { put(mistakes_, static_cast<int>(m), makes); }
  bool has(Fact f) const { return facts_ >> static_cast<int>(f) & 1; }
  Capabilities& set(Fact f, bool has) {
    put(facts_, static_cast<int>(f), has);
    return *this;
  }
  Capabilities& without_mistakes() {
    mistakes_ = 0;
    return *this;
  }
  // Beyond this many parameters a program takes one tuple: some plugins cannot pass more one by
  // one. 0: never a tuple.
  int64_t max_flat_parameters = 3200;
  // Element types that the plugin does not take: bit i stands for ir::DType i.
  uint32_t missing_types = 0;

  // Equal where programs may be the same.
  uint64_t bits() const {
    return mistakes_ | uint64_t{facts_} << 8 | static_cast<uint64_t>(max_flat_parameters) << 24;
  }

 private:
  template <class Set>
  static void put(Set& set, int bit, bool on) {
    auto one = static_cast<Set>(Set{1} << bit);
    set = static_cast<Set>(on ? set | one : set & ~one);
  }
  uint8_t mistakes_ = (1u << kMistakeNames.size()) - 1;
  uint16_t facts_ = 0;
};

}  // namespace tp
