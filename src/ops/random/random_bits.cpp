// Threefry bits and the basic distributions made of them (random_bits.h).
#include "ops/random/random_bits.h"

#include <cmath>
#include <numbers>

#include "ops/index/indexing.h"

namespace tp::ops {
namespace {

// SplitMix64's finaliser: every bit of z reaches every bit of the result.
V mix(Builder& b, V z) {
  auto num = [&](uint64_t v) { return b.constant_int(static_cast<int64_t>(v), z.type); };
  auto fold = [&](V v, uint64_t shift) {
    return b.xor_(v, b.binary("stablehlo.shift_right_logical", v, num(shift)));
  };
  z = b.mul(fold(z, 30), num(0xbf58476d1ce4e5b9));
  z = b.mul(fold(z, 27), num(0x94d049bb133111eb));
  return fold(z, 31);
}

}  // namespace

// The counter starts at 0 in every stream; the key alone separates them.
V random_state(Lowering& l) {
  Builder& b = l.builder();
  Type u64 = ir::scalar_type(DType::kU64);
  V seed = b.bitcast(l.in("seed"), u64), offset = b.bitcast(l.in("offset"), u64);
  V golden = b.constant_int(static_cast<int64_t>(0x9e3779b97f4a7c15), u64);
  V key = mix(b, b.add(mix(b, b.add(seed, golden)), b.mul(offset, golden)));
  V parts[] = {b.reshape(key, IntList{1}), b.zeros(ir::make_type(DType::kU64, IntList{1}))};
  return b.concat(parts, 0);
}

V Random::bits(Type t) {
  if (t.numel() == 0) return b_.zeros(t);
  auto r = b_.rng_bits(state_, t);
  state_ = r[0];
  return r[1];
}

// The highest `digits` bits as a float: exact.
V Random::scaled_bits(Type t, int digits) {
  bool wide = t.dtype() == DType::kF64;
  V v = bits(t.with(wide ? DType::kU64 : DType::kU32));
  V shift = b_.constant_int((wide ? 64 : 32) - digits, v.type);
  return b_.convert(b_.binary("stablehlo.shift_right_logical", v, shift), t.dtype());
}

V Random::uniform(Type t, int digits) {
  return b_.mul(scaled_bits(t, digits), std::ldexp(1.0, -digits));
}

V Random::open_uniform(Type t) {
  int digits = t.dtype() == DType::kF64 ? 52 : 23;
  return b_.mul(b_.add(scaled_bits(t, digits), 0.5), std::ldexp(1.0, -digits));
}

// Box and Muller: a pair of numbers from a radius and an angle.
V Random::normal(Type t) {
  int64_t n = t.numel();
  if (n == 0) return b_.zeros(t);
  Type half = t.with(IntList{(n + 1) / 2});
  bool wide = t.dtype() == DType::kF64;
  V low = b_.convert(bits(half.with(wide ? DType::kU64 : DType::kU32)), t.dtype());
  V u = b_.mul(b_.add(low, 0.5), std::ldexp(1.0, wide ? -64 : -32));
  // Kept: both numbers of a pair need both, and a fusion would compute the bits for each again.
  auto kept = [&](V v) { return b_.op("stablehlo.optimization_barrier", {v}, v.type); };
  V radius = kept(b_.sqrt(b_.mul(b_.log(u), -2.0)));
  V angle = kept(b_.mul(uniform(half), 2 * std::numbers::pi));
  V parts[] = {b_.mul(radius, b_.unary("stablehlo.cosine", angle)),
               b_.mul(radius, b_.unary("stablehlo.sine", angle))};
  V both = b_.concat(parts, 0);
  return b_.reshape(b_.slice_dim(both, 0, 0, n), t.dims());
}

// A remainder, as eager takes it; 64 bits where 32 would favour the low numbers visibly.
V Random::below(Ints dims, uint64_t count, V given) {
  V v = bits(ir::make_type(width(count) == Width::k32 ? DType::kU32 : DType::kU64, dims));
  if (count != 0) {
    V most = given ? b_.broadcast_to(b_.convert(given, v.dtype()), v.dims())
                   : b_.constant_int(static_cast<int64_t>(count), v.type);
    v = b_.binary("stablehlo.remainder", v, most);
  }
  return b_.convert(v, DType::kS64);
}

}  // namespace tp::ops
