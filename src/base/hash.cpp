#include "base/hash.h"

#include <charconv>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tp {

Hash128 hash_bytes(const void* data, size_t size) {
  XXH128_hash_t h = XXH3_128bits(data, size);
  return {h.low64, h.high64};
}

std::string Hash128::hex() const {
  static const char* digits = "0123456789abcdef";
  std::string s(32, '0');
  for (int i = 0; i < 16; ++i) {
    s[15 - i] = digits[(hi >> (4 * i)) & 15];
    s[31 - i] = digits[(lo >> (4 * i)) & 15];
  }
  return s;
}

Hash128 parse_hash(std::string_view hex) {
  Hash128 h;
  if (hex.size() != 32) return {};
  auto number = [&](size_t at, uint64_t& out) {
    auto r = std::from_chars(hex.data() + at, hex.data() + at + 16, out, 16);
    return r.ec == std::errc{} && r.ptr == hex.data() + at + 16;
  };
  return number(0, h.hi) && number(16, h.lo) ? h : Hash128{};
}

}  // namespace tp
