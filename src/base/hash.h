// Hash128: the one hash of the project. Stable across processes and machines (it names cache
// files), so it never takes an address. XXH3 for bytes; a two-lane multiply-mix to fold small words
// when a node is made.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tp {

struct Hash128 {
  uint64_t lo = 0, hi = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  std::string hex() const;  // 32 digits
};

Hash128 hash_bytes(const void* data, size_t size);
// What hex() gave; zero where `hex` is something else.
Hash128 parse_hash(std::string_view hex);
inline Hash128 hash_text(std::string_view s) { return hash_bytes(s.data(), s.size()); }

inline uint64_t mum(uint64_t a, uint64_t b) {
  auto p = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64);
}

// Folds one word or one hash into h; the order of folds matters.
inline Hash128 mix(Hash128 h, uint64_t v) {
  return {mum(h.lo ^ v ^ 0xa0761d6478bd642full, h.hi ^ 0xe7037ed1a0b428dbull),
          mum(h.hi + v + 0x8ebc6af09c88c6e3ull, h.lo ^ 0x589965cc75374cc3ull)};
}
inline Hash128 mix(Hash128 h, const Hash128& v) { return mix(mix(h, v.lo), v.hi); }

}  // namespace tp

template <>
struct std::hash<tp::Hash128> {
  size_t operator()(const tp::Hash128& h) const noexcept { return static_cast<size_t>(h.lo); }
};
