// Where tests find their plugins: the environment (TORCH_PJRT_TEST_PLUGIN, TORCH_PJRT_TEST_FAKE),
// else what the build says. Also small modules and buffers that several tests use.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/error.h"
#include "client/registry.h"

namespace tp::test {

inline std::string cpu_plugin_path() {
  const char* env = std::getenv("TORCH_PJRT_TEST_PLUGIN");
  return env ? env : TP_CPU_PLUGIN_PATH;
}

inline std::string fake_plugin_path() {
  const char* env = std::getenv("TORCH_PJRT_TEST_FAKE");
  return env ? env : TP_FAKEPLUGIN_PATH;
}

inline client::PluginSpec cpu_spec(int64_t devices = 1) {
  client::PluginSpec spec;
  spec.name = "CPU";
  spec.library_path = cpu_plugin_path();
  spec.options = {{"cpu_device_count", devices}};
  spec.compile_options = {{"xla_cpu_enable_fast_min_max", false},
                          {"xla_allow_excess_precision", false}};
  spec.how_to_install = "pip install --no-deps -r requirements/cpu-plugins.txt";
  return spec;
}

inline client::PluginSpec fake_spec(int64_t devices = 1) {
  client::PluginSpec spec;
  spec.name = "FAKE";
  spec.library_path = fake_plugin_path();
  spec.options = {{"device_count", devices}};
  return spec;
}

// The fake plugin's own switches, found in the library that the client loads.
struct FakePlugin {
  FakePlugin() {
    void* library = dlopen(fake_plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    if (!library) return;
    script_ = reinterpret_cast<int (*)(const char*)>(dlsym(library, "fake_plugin_script"));
    count_ = reinterpret_cast<long (*)(const char*)>(dlsym(library, "fake_plugin_count"));
    script("");
  }
  ~FakePlugin() { script(""); }
  void script(const char* text) const { EXPECT_EQ(script_(text), 1) << text; }
  bool reads(const char* text) const { return script_(text) == 1; }
  long count(const char* what) const { return count_(what); }

 private:
  int (*script_)(const char*) = nullptr;
  long (*count_)(const char*) = nullptr;
};

// What an Error says, or "" where `f` does not throw.
template <class F>
std::string words_of(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

// Host memory of a program's size, aligned as XLA wants it. The pointer owns it.
inline std::shared_ptr<void> aligned_bytes(size_t bytes) {
  return std::shared_ptr<void>(std::aligned_alloc(64, (bytes / 64 + 1) * 64), std::free);
}

}  // namespace tp::test
