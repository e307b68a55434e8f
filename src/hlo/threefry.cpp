// Random bits: Threefry-2x32 with 20 rounds (Salmon et al., 2011) in counter mode, exactly as XLA's
// rng_bit_generator counts. Written out it is elementwise over an iota, so that compilers fuse it
// with what uses the bits, and partitioners cut it: each device computes its own part.
#include <algorithm>
#include <array>

#include "base/capabilities.h"
#include "hlo/builder.h"

namespace tp::hlo {
namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 32;  // what 32 bits can count

struct Pair {
  V low, high;  // u32
};

V number(Builder& b, uint32_t v, Type t) { return b.constant_int(v, t); }

V rotated(Builder& b, V x, uint32_t by) {
  return b.or_(b.binary("stablehlo.shift_left", x, number(b, by, x.type)),
               b.binary("stablehlo.shift_right_logical", x, number(b, 32 - by, x.type)));
}

Pair halves(Builder& b, V wide) {
  V high = b.binary("stablehlo.shift_right_logical", wide, b.constant_int(32, wide.type));
  return {b.convert(wide, DType::kU32), b.convert(high, DType::kU32)};
}

V spread(Builder& b, V scalar, Type t) { return b.broadcast(scalar, t, {}); }

// `key` and `x` are of one shape.
Pair enciphered(Builder& b, Pair key, Pair x) {
  constexpr uint32_t kParity = 0x1bd11bda;
  constexpr std::array<std::array<uint32_t, 4>, 2> kRotations{{{13, 15, 26, 6}, {17, 29, 16, 24}}};
  std::array<V, 3> keys{key.low, key.high,
                        b.xor_(b.xor_(key.low, key.high), number(b, kParity, key.low.type))};
  x.low = b.add(x.low, keys[0]);
  x.high = b.add(x.high, keys[1]);
  for (uint32_t group = 0; group < 5; ++group) {
    for (uint32_t by : kRotations[group % 2]) {
      x.low = b.add(x.low, x.high);
      x.high = b.xor_(x.low, rotated(b, x.high, by));
    }
    x.low = b.add(x.low, keys[(group + 1) % 3]);
    V next = b.add(keys[(group + 2) % 3], number(b, group + 1, x.low.type));
    x.high = b.add(x.high, next);
  }
  return x;
}

// A block of the cipher gives two u32: of neighbours along the first dim of even size, else along
// the largest. -1: of the one element there is.
int paired_dim(Ints dims) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] % 2 == 0) return static_cast<int>(i);
  return dims.empty() ? -1
                      : static_cast<int>(std::max_element(dims.begin(), dims.end()) - dims.begin());
}

// Which block each element is from, counted row-major over dims where `paired` is halved.
V block_numbers(Builder& b, Type t, int paired) {
  Type u32 = t.with(DType::kU32);
  V sum;
  int64_t stride = 1;
  for (int d = static_cast<int>(t.rank()) - 1; d >= 0; --d) {
    int64_t size = t.dim(static_cast<size_t>(d));
    int64_t blocks = d == paired ? (size + 1) / 2 : size;
    if (blocks > 1) {
      V at = b.iota(u32, d);
      if (d == paired) at = b.binary("stablehlo.shift_right_logical", at, number(b, 1, u32));
      if (stride > 1) at = b.mul(at, number(b, static_cast<uint32_t>(stride), u32));
      sum = sum ? b.add(sum, at) : at;
    }
    stride *= blocks;
  }
  return sum ? sum : b.zeros(u32);
}

int64_t block_count(Type t, int paired) {
  int64_t n = t.numel();
  if (paired < 0) return n;
  int64_t size = t.dim(static_cast<size_t>(paired));
  return n / size * ((size + 1) / 2);
}

}  // namespace

std::vector<V> Builder::rng_bits(V state, Type out) {
  bool wide = out.dtype() == DType::kU64;
  int paired = wide ? -1 : paired_dim(out.dims());
  int64_t blocks = block_count(out, paired);
  if (target_.has(Fact::kRngOp) || blocks >= kMostBlocks) {
    std::array<Type, 2> types{state.type, out};
    return ops("stablehlo.rng_bit_generator", {&state, 1}, types,
               "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>");
  }
  V key = slice_dim(state, 0, 0, 1), counter = slice_dim(state, 0, 1, 2);
  V first = reshape(counter, {});
  Type u32 = out.with(DType::kU32);
  Pair keys = halves(*this, reshape(key, {})), start = halves(*this, first);
  Pair x;
  x.low = add(block_numbers(*this, out, paired), spread(*this, start.low, u32));
  V carry = compare(x.low, spread(*this, start.low, u32), Cmp::kLt);
  x.high = add(spread(*this, start.high, u32), convert(carry, DType::kU32));
  x = enciphered(*this, {spread(*this, keys.low, u32), spread(*this, keys.high, u32)}, x);
  V next = add(counter, constant_int(blocks, counter.type));
  std::array<V, 2> left{key, next};
  return {concat(left, 0),
          wide ? joined_bits(x.low, x.high, out) : chosen_bits(x.low, x.high, paired)};
}

// u32 halves as u64.
V Builder::joined_bits(V low, V high, Type out) {
  V top = binary("stablehlo.shift_left", convert(high, DType::kU64), constant_int(32, out));
  return or_(convert(low, DType::kU64), top);
}

// Of a block's two words the one that is this element's.
V Builder::chosen_bits(V low, V high, int paired) {
  if (paired < 0) return low;
  V odd = and_(iota(low.type, paired), ones(low.type));
  return select(compare(odd, zeros(low.type), Cmp::kEq), low, high);
}

}  // namespace tp::hlo
