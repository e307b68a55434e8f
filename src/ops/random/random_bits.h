// Random numbers from (seed, offset): a threefry stream for each pair, the same on every device and
// in every mode. Any thread, the Builder's owner.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// The generator's state: two u64. Offsets of one seed give unrelated streams.
V random_state(Lowering& l);

class Random {
 public:
  explicit Random(Lowering& l) : b_(l.builder()), state_(random_state(l)) {}
  // Goes on from a state: in the body of a loop, which has a builder of its own.
  Random(Builder& b, V state) : b_(b), state_(state) {}
  V state() const { return state_; }
  void resume(V state) { state_ = state; }  // what the loop left
  V bits(Type t);                           // t: u32 or u64
  // Evenly spread over [0, 1) in steps of 2^-digits; t: f32 or f64.
  V uniform(Type t, int digits);
  V uniform(Type t) { return uniform(t, t.dtype() == DType::kF64 ? 53 : 24); }
  V open_uniform(Type t);  // (0, 1): half a step away from both ends
  V normal(Type t);        // mean 0, deviation 1
  // Integers 0..count-1 as s64; count 0: all of 64 bits. `given`: a count of the same width (s64)
  // that is known when the program runs.
  V below(Ints dims, uint64_t count, V given = {});
  enum class Width : unsigned char { k32, k64, kAll };  // of the bits behind one of them
  static Width width(uint64_t count) {
    return count == 0 ? Width::kAll : count >= uint64_t{1} << 28 ? Width::k64 : Width::k32;
  }

 private:
  V scaled_bits(Type t, int digits);
  Builder& b_;
  V state_;
};

}  // namespace tp::ops
