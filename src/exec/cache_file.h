// A stored program as one file: a line that says what it is, a checksum of all that follows, header
// lines, and the client's bytes. The header holds every ingredient of the key, so that a file is
// believed only where each of them is the asker's. Pure functions; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/key.h"

namespace tp::exec {

struct CacheFile {
  Hash128 key;
  std::vector<std::pair<std::string, Hash128>> ingredients;  // name, digest: in the key's order
  // Some ingredients in words ("torch revision", "2.13.0"), for explanations only.
  std::vector<std::pair<std::string, std::string>> words;
  Hash128 structure;    // digest of the graph's signature: a key may collide, this may not
  std::string outputs;  // "f32[2,3] s64[]"
  int64_t nodes = 0, compile_ms = 0;
  std::string where;    // the user's line that first wanted it, for `cache ls`
  std::string program;  // ComputationClient::serialize()
};

std::vector<std::pair<std::string, Hash128>> ingredients_of(const Key& key);
// All of the file but `program`, which follows it.
std::string encode_head(const CacheFile& f, std::string_view program);
// Throws kRuntime saying what is wrong: not such a file, cut off, or its checksum does not fit.
CacheFile decode(std::string_view bytes);
// The header alone, from the beginning of a file, unchecked: good for an explanation, never to run.
CacheFile decode_head(std::string_view beginning);
// The first thing in which the file is not what is asked for; empty where all agrees.
std::string difference(const CacheFile& f, const Key& key, Hash128 structure,
                       std::string_view outputs);

}  // namespace tp::exec
