// Client: a plugin's connection to its devices. Shared by everything made from it, which must not
// outlive it. Any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/compile_options.h"
#include "pjrt/device.h"
#include "pjrt/executable.h"
#include "pjrt/key_value_store.h"
#include "pjrt/plugin.h"

namespace tp::pjrt {

class Client {
 public:
  // Throws the plugin's words where the hardware is missing or an option is wrong.
  // `store`: null where this process is the only one; else it has to outlive the client.
  Client(const Plugin& plugin, std::span<const std::pair<std::string, OptionValue>> options,
         KeyValueStore* store = nullptr);
  ~Client();
  Client(const Client&) = delete;

  const Plugin& plugin() const { return plugin_; }
  const PJRT_Api* api() const { return plugin_.api(); }
  PJRT_Client* raw() const { return client_; }
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }
  std::span<const Device> devices() const { return devices_; }  // those of this process

  Executable compile(std::string_view module, const CompileOptions& options) const {
    return pjrt::compile(api(), client_, module, encode_compile_options(options));
  }
  Executable deserialize(std::string_view bytes) const {
    return pjrt::deserialize(api(), client_, bytes);
  }
  Buffer from_host(const HostBytes& from, const Device& device) const {
    return buffer_from_host(api(), client_, device.raw(), from);
  }

 private:
  void read_names_and_devices();
  const Plugin& plugin_;
  PJRT_Client* client_ = nullptr;
  std::string platform_name_, platform_version_;
  std::vector<Device> devices_;
};

}  // namespace tp::pjrt
