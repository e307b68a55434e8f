// What eager refuses of a call though the op's shape function does not, and what it does with out=
// tensors: data in the op's row (row.h). Rules are constants; their functions are pure: any thread.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "ir/dtype.h"
#include "ops/core/eager_text.h"

namespace tp::ops {

using ir::DType;

// --- kernels -------------------------------------------------------------------------------------

// Sets of dtypes.
namespace takes {
enum : unsigned {
  kBools = 1,
  kIntegers = 2,
  kWide = 4,   // f32, f64
  kSmall = 8,  // f16, bf16
  kComplexes = 16,
  kBytes = 32,     // u8, where other integers are refused
  kLongs = 64,     // s64, likewise
  kEmpty = 128,    // whatever is empty: eager returns before it comes to its kernel
  kScalars = 256,  // so is a tensor without dims
  kFloats = kWide | kSmall,
  kInexact = kFloats | kComplexes,
  kNumbers = kIntegers | kFloats,
  kReals = kBools | kNumbers,
  kNoBools = kNumbers | kComplexes,
  kBits = kBools | kIntegers,
  kExactOrWide = kBools | kIntegers | kWide,  // exact ones count as the default float
};
}  // namespace takes

// A kernel of eager's CPU and the dtypes it takes. PyTorch's shape functions do not look: without
// this an unsupported dtype would fail at the sync, in the compiler's words, far from the line that
// asked for it.
struct Kernel {
  const char* name = "";  // as eager's message has it
  unsigned takes = 0;
  const char* decides = nullptr;  // the argument that is asked; by default all, promoted
  const char* choice = nullptr;   // only where this text argument ...
  const char* chosen = nullptr;   // ... is this
  const char* given = "";         // only where these arguments are given
  const char* lacks = "";         // only where none of these is
};
// Kernel::decides: these three, promoted.
inline constexpr const char* kBounded = "self min max";

// An op's kernels; of several, each has its condition.
class Kernels {
 public:
  static constexpr size_t kMost = 3;
  constexpr Kernels() = default;
  constexpr Kernels(std::initializer_list<Kernel> all) : count_(all.size()) {
    std::copy(all.begin(), all.end(), all_);  // a fourth is no constant expression
  }
  constexpr const Kernel* begin() const { return all_; }
  constexpr const Kernel* end() const { return all_ + count_; }

 private:
  Kernel all_[kMost];
  size_t count_ = 0;
};

// --- out= tensors --------------------------------------------------------------------------------

enum class OutDtype : uint8_t {
  kAsKernel,    // structured kernels want the result's own dtype, others and iterators cast into it
  kCast,        // a structured kernel that casts all the same
  kComputedIn,  // cast, and computed in the dtype of out= where dtype= is not given
};

struct Out {
  // Throws with eager's words where a dtype that is not the result's is refused.
  void (*check)(DType result, DType out) = nullptr;
  OutDtype dtype = OutDtype::kAsKernel;
  bool keeps_shape = false;  // where it has as many elements as the result: arange, linspace
  bool row_major = false;    // what was resized is so, whatever the functional form's strides
  bool may_alias = true;     // may it be an argument? Not where that is gathered from meanwhile
};

// Out::check: refuses every other dtype, in these words.
template <std::string (*words)(DType want, DType have)>
void out_wants(DType want, DType have) {
  fail(Code::kRuntime, words(want, have));
}
// Found dtype Double but expected Float
inline std::string found_words(DType want, DType have) { return found_dtype(have, want); }

// --- indices -------------------------------------------------------------------------------------

// An index that is out of range, of a dim of that size.
struct BadIndex {
  int64_t value, dim, size;
};

// Which values of an index argument eager's kernel refuses. Asked where the host has them
// (torch/index_check.h).
struct IndexRule {
  enum class Size : uint8_t { kDim, kFirstDim, kNumel, kClasses, kEachDim };
  using Words = std::string (*)(const BadIndex&);

  const char* argument;
  Size size;              // what the values are below
  bool negative = false;  // do negative ones count from the end?
  Code code = Code::kIndex;
  Words words;
  // Another kernel's words where `dim` is not the first one, or self has no elements; with
  // kRuntime. Null: the same.
  Words words_of_later_dims = nullptr;
  // Another kernel's words where self has one dim; with kIndex. Null: the same.
  Words words_of_vectors = nullptr;
  // Does the kernel loop over slices, and look at no index where they have no elements?
  bool by_slices = false;
  // Where the dim is empty no index is right: what is said then. Null: the same.
  void (*nothing)(const BadIndex& first) = nullptr;
};

// A mask among the indices picks by value. One mask can be written through; to read through masks,
// or to mix them with other indices, makes shapes follow from data: the CPU does that.
enum class Masks : uint8_t { kNone, kRead, kWritten };

// Does eager's kernel go through PyTorch's TensorIterator? Then an out= that overlaps itself is
// refused before it is resized, and operands of another dtype are cast before strides are chosen.
// kAsKernel: where the layout says so, or PyTorch's structured kernel is one.
enum class Iterates : uint8_t { kAsKernel, kYes, kNo };

}  // namespace tp::ops
