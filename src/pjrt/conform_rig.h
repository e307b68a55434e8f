// What the probes of conform.h stand on: a plugin, its client, small programs and buffers. Private
// to src/pjrt/conform*. One thread, but where a probe says otherwise.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/client.h"
#include "pjrt/conform.h"
#include "pjrt/topology.h"

namespace tp::pjrt::conform {

// An answer that is not what the API says, and a probe that cannot be made with this plugin.
struct Unmet {
  std::string words;
};
struct NotTried {
  std::string words;
};

inline void expect(bool ok, std::string words) {
  if (!ok) throw Unmet{std::move(words)};
}

using Floats = std::vector<float>;

class Rig {
 public:
  explicit Rig(const Setting& setting)
      : setting_(setting), plugin_(Plugin::load(setting.library)) {}

  const PJRT_Api* api() const { return plugin_.api(); }
  const Plugin& plugin() const { return plugin_; }
  const Setting& setting() const { return setting_; }
  const Client& client();  // made at the first call
  const Device& device(size_t i = 0) { return client().devices()[i]; }
  PJRT_DeviceDescription* description(size_t i = 0);

  Buffer upload(const Floats& values, std::vector<int64_t> dims, size_t device = 0);
  Buffer upload();  // input() as f32[2,3]
  static const Floats& input();
  static Floats doubled();

  CompileOptions options(std::vector<int64_t> devices = {}) const;
  Executable compile(std::string_view text) { return client().compile(text, options()); }
  Executable doubling();  // kDouble
  // One result, of a program on one device.
  Buffer run(const Executable& program, std::vector<PJRT_Buffer*> arguments,
             std::vector<int64_t> keep = {}, size_t results = 1);
  // Row-major; waits.
  static Floats download(const Buffer& buffer, size_t n);

  // The plugin's error for a module that is none. Never null; the caller frees it.
  PJRT_Error* error();

 private:
  const Setting& setting_;
  const Plugin& plugin_;
  std::unique_ptr<Client> client_;
};

// f32[2,3] -> f32[2,3]: twice the argument; the second may take its place.
extern const char* const kDouble;
extern const char* const kDoubleInPlace;

void expect_floats(std::string_view what, const Floats& found, const Floats& wanted);

}  // namespace tp::pjrt::conform
