// Type: element type and dimensions of one value, interned: equality is a pointer compare and the
// hash is made once. Prints as `f32[4,8]`. Immutable, any thread.
//
// The first kForever types of a process live as long as it does, and copying one costs nothing. A
// program whose shapes never repeat makes more: those are counted, and go with their last Type.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/small_vector.h"
#include "ir/dtype.h"

namespace tp::ir {

class Type {
 public:
  static constexpr size_t kForever = 4096;
  struct Rep {
    DType dtype;
    Dims dims;
    int64_t numel;
    Hash128 hash;
    std::string text, mlir;
    bool forever;
    std::atomic<uint32_t> references{0};  // where it does not live for ever
  };

  Type() = default;  // the null type: an output that is not there (a gradient nobody asked for)
  Type(const Type& o) noexcept : bits_(o.bits_) {
    if (counted()) [[unlikely]]
      rep()->references.fetch_add(1, std::memory_order_relaxed);
  }
  Type(Type&& o) noexcept : bits_(std::exchange(o.bits_, 0)) {}
  Type& operator=(Type o) noexcept {
    std::swap(bits_, o.bits_);
    return *this;
  }
  ~Type() {
    if (counted()) [[unlikely]]
      drop(rep());
  }
  explicit operator bool() const { return bits_ != 0; }
  friend bool operator==(const Type& a, const Type& b) { return a.bits_ == b.bits_; }

  DType dtype() const { return rep()->dtype; }
  std::span<const int64_t> dims() const { return rep()->dims; }
  int64_t dim(size_t i) const { return rep()->dims[i]; }
  int rank() const { return static_cast<int>(rep()->dims.size()); }
  int64_t numel() const { return rep()->numel; }
  int64_t bytes() const { return numel() * dtype_size(dtype()); }
  const Hash128& hash() const { return rep()->hash; }      // of text()
  const std::string& text() const { return rep()->text; }  // f32[4,8]
  const std::string& mlir() const { return rep()->mlir; }  // tensor<4x8xf32>

  Type with(DType t) const;
  Type with(std::span<const int64_t> dims) const;

  // For keys that are kept without the type: no other type ever gives the same.
  friend Hash128 mix(const Hash128& h, const Type& t) {
    return t.counted() ? tp::mix(tp::mix(h, t.hash().lo), t.hash().hi) : tp::mix(h, t.bits_);
  }

 private:
  friend Type make_type(DType, std::span<const int64_t>);
  static constexpr uintptr_t kCounted = 1;  // beside the address of a counted one
  explicit Type(uintptr_t bits) : bits_(bits) {}
  bool counted() const { return bits_ & kCounted; }
  Rep* rep() const { return reinterpret_cast<Rep*>(bits_ & ~kCounted); }
  static void drop(Rep* rep) noexcept;
  uintptr_t bits_ = 0;
};

Type make_type(DType dtype, std::span<const int64_t> dims);
inline Type scalar_type(DType dtype) { return make_type(dtype, {}); }
size_t live_types();  // how many there are

}  // namespace tp::ir
