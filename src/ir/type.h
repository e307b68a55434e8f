// Type: element type and dimensions of one value, interned: equality is a pointer compare and the
// hash is made once. Prints as `f32[4,8]`. Immutable, any thread; interned types live for the
// process.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "base/hash.h"
#include "base/small_vector.h"
#include "ir/dtype.h"

namespace tp::ir {

class Type {
 public:
  Type() = default;  // the null type: an output that is not there (a gradient nobody asked for)
  explicit operator bool() const { return rep_ != nullptr; }
  friend bool operator==(Type a, Type b) { return a.rep_ == b.rep_; }

  DType dtype() const { return rep_->dtype; }
  std::span<const int64_t> dims() const { return rep_->dims; }
  int64_t dim(size_t i) const { return rep_->dims[i]; }
  int rank() const { return static_cast<int>(rep_->dims.size()); }
  int64_t numel() const { return rep_->numel; }
  int64_t bytes() const { return rep_->numel * dtype_size(rep_->dtype); }
  const Hash128& hash() const { return rep_->hash; }      // of text()
  const std::string& text() const { return rep_->text; }  // f32[4,8]
  const std::string& mlir() const { return rep_->mlir; }  // tensor<4x8xf32>

  Type with(DType t) const;
  Type with(std::span<const int64_t> dims) const;

  struct Rep {
    DType dtype;
    Dims dims;
    int64_t numel;
    Hash128 hash;
    std::string text, mlir;
  };
  const Rep* rep() const { return rep_; }

 private:
  friend Type make_type(DType, std::span<const int64_t>);
  explicit Type(const Rep* rep) : rep_(rep) {}
  const Rep* rep_ = nullptr;
};

Type make_type(DType dtype, std::span<const int64_t> dims);
inline Type scalar_type(DType dtype) { return make_type(dtype, {}); }

}  // namespace tp::ir
