// The distributed key-value store of PJRT_Client_Create: what the clients of several processes tell
// each other while they start. The plugin calls it on threads of its own.
#pragma once
#include <pjrt_c_api.h>

#include <chrono>
#include <optional>
#include <string>

namespace tp::pjrt {

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Blocks until some process has put the key; throws where that takes longer than `timeout`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  virtual std::optional<std::string> try_get(const std::string& key) = 0;  // does not block
  virtual void put(const std::string& key, const std::string& value) = 0;
};

// Puts the store's callbacks into `args`; it has to live as long as the client.
void offer(KeyValueStore& store, PJRT_Client_Create_Args& args);

}  // namespace tp::pjrt
