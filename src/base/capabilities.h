// What programs may count on from the plugin that compiles them: facts that choose between forms of
// one meaning. A plugin's row says them (torch_pjrt/plugins.py for the wheels that we test); of a
// plugin that has no row the most careful is assumed. A value: any thread.
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
};

// By Mistake: the names in plugins' rows.
inline constexpr std::array<std::string_view, 6> kMistakeNames{
    "updates", "bitcasts", "bool products", "bool sums", "squares", "narrow masks"};

class Capabilities {
 public:
  // XLA's CPU backend: device memory is this process's, sums add up one after the other, grouped
  // convolutions are slow.
  bool cpu = true;

  bool makes(Mistake m) const { return mistakes_ >> static_cast<int>(m) & 1; }
  void set(Mistake m, bool makes) {
    auto bit = static_cast<uint8_t>(1u << static_cast<int>(m));
    mistakes_ = static_cast<uint8_t>(makes ? mistakes_ | bit : mistakes_ & ~bit);
  }
  static Capabilities without_mistakes() {
    Capabilities c;
    c.mistakes_ = 0;
    return c;
  }
  uint64_t bits() const { return mistakes_ | (cpu ? 256u : 0u); }

 private:
  uint8_t mistakes_ = (1u << kMistakeNames.size()) - 1;
};

}  // namespace tp
