// Attrs: an op's arguments as data. One packed list of 64-bit words in schema order; an entry is a
// header word (name, kind, count) and its payload. Hash, ==, dump and lowering all read this one
// list.
//
//   header = symbol << 32 | kind << 24 | count      payload: count words (text: count bytes,
//   rounded up)
//
// Tensors stand in it as operand positions, so "which optional was given" is part of hash and
// equality. A Symbol is a 32-bit hash of the argument's name: stable across processes.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/small_vector.h"
#include "ir/dtype.h"

namespace tp::ir {

using Symbol = uint32_t;
// Registers the name for dumps; throws on a hash collision of two names. Any thread.
Symbol symbol(std::string_view name);
std::string_view symbol_name(Symbol s);

enum class AttrKind : uint8_t {
  kNone,
  kOperand,
  kOperands,
  kInt,
  kFloat,
  kBool,
  kInts,
  kFloats,
  kBools,
  kDType,
  kText
};

class AttrsBuilder {
 public:
  void none(Symbol n) { head(n, AttrKind::kNone, 0); }
  void operand(Symbol n, int64_t index) {
    one(n, AttrKind::kOperand, static_cast<uint64_t>(index));
  }
  void integer(Symbol n, int64_t v) { one(n, AttrKind::kInt, static_cast<uint64_t>(v)); }
  void real(Symbol n, double v) { one(n, AttrKind::kFloat, std::bit_cast<uint64_t>(v)); }
  void boolean(Symbol n, bool v) { one(n, AttrKind::kBool, v); }
  void dtype(Symbol n, DType t) { one(n, AttrKind::kDType, static_cast<uint64_t>(t)); }
  void ints(Symbol n, std::span<const int64_t> v) { many(n, AttrKind::kInts, v); }
  void bools(Symbol n, std::span<const int64_t> v) { many(n, AttrKind::kBools, v); }
  // Operand positions; -1 for an absent element of an optional list.
  void operands(Symbol n, std::span<const int64_t> v) { many(n, AttrKind::kOperands, v); }
  void floats(Symbol n, std::span<const double> v);
  void text(Symbol n, std::string_view v);
  std::span<const uint64_t> words() const { return words_; }

 private:
  void head(Symbol n, AttrKind k, size_t count) {
    words_.push_back(uint64_t{n} << 32 | static_cast<uint64_t>(k) << 24 | count);
  }
  void one(Symbol n, AttrKind k, uint64_t v) {
    head(n, k, 1);
    words_.push_back(v);
  }
  void many(Symbol n, AttrKind k, std::span<const int64_t> v) {
    head(n, k, v.size());
    words_.append({reinterpret_cast<const uint64_t*>(v.data()), v.size()});
  }
  SmallVec<uint64_t, 48> words_;
};

// One entry, as read back.
struct Attr {
  Symbol name;
  AttrKind kind;
  uint32_t count;
  const uint64_t* payload;
  int64_t integer() const { return static_cast<int64_t>(payload[0]); }
  double real() const { return std::bit_cast<double>(payload[0]); }
  bool boolean() const { return payload[0] != 0; }
  DType dtype() const { return static_cast<DType>(payload[0]); }
  std::span<const int64_t> ints() const {
    return {reinterpret_cast<const int64_t*>(payload), count};
  }
  std::span<const double> floats() const {
    return {reinterpret_cast<const double*>(payload), count};
  }
  std::string_view text() const { return {reinterpret_cast<const char*>(payload), count}; }
  size_t payload_words() const { return kind == AttrKind::kText ? (count + 7) / 8 : count; }
};

class AttrsView {
 public:
  AttrsView() = default;
  explicit AttrsView(std::span<const uint64_t> words) : words_(words) {}
  std::span<const uint64_t> words() const { return words_; }
  bool find(Symbol name, Attr* out) const;
  std::string text() const;  // dim=1, keepdim=true, self=%0

  class Iterator {
   public:
    explicit Iterator(const uint64_t* p) : p_(p) {}
    Attr operator*() const {
      return {static_cast<Symbol>(*p_ >> 32), static_cast<AttrKind>(*p_ >> 24 & 0xff),
              static_cast<uint32_t>(*p_ & 0xffffff), p_ + 1};
    }
    Iterator& operator++() {
      p_ += 1 + (**this).payload_words();
      return *this;
    }
    bool operator!=(const Iterator& o) const { return p_ != o.p_; }

   private:
    const uint64_t* p_;
  };
  Iterator begin() const { return Iterator(words_.data()); }
  Iterator end() const { return Iterator(words_.data() + words_.size()); }

 private:
  std::span<const uint64_t> words_;
};

}  // namespace tp::ir
