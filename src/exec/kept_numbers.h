// KeptNumbers: a program's packed numbers, kept on their devices once they come a second time in a
// row. Most steps come with the same numbers again, and an upload costs more than the launch of a
// small program: a copy a device of a mesh. Numbers that change each step are not kept.
//
// Such arguments are never given away. Thread-safe; uploads happen outside of the lock.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/hash.h"
#include "base/lru.h"
#include "client/computation_client.h"
#include "exec/plan.h"

namespace tp::exec {

class KeptNumbers {
 public:
  // Appends the arguments for the numbers of `plan`: s64, then f64, each where there are some. On
  // its device, or on all devices of its mesh.
  void put(client::ComputationClient& client, const Plan& plan, std::vector<client::DataPtr>& to);
  void clear();

 private:
  static constexpr size_t kMostNumbers = 16;  // longer vectors are uploaded each time
  struct Entry {
    std::vector<uint64_t> words;  // the bits of the last ones
    client::DataPtr data;         // null: they came once
  };
  template <class T>
  client::DataPtr get(client::ComputationClient& client, const Plan& plan, std::vector<T> v);

  std::mutex mu_;
  LruMap<Hash128, Entry> entries_{256};  // by program and type; under mu_
};

}  // namespace tp::exec
