// The fault script of the fake plugin. "compile:1=RESOURCE_EXHAUSTED no memory; execute:2=INTERNAL
// broken": the n-th call of a kind, counted from when the script is set, fails with a code and
// words. Thread-safe.
//
// Kinds: client, compile, execute, upload, download, serialize, deserialize, topology, ahead (a
// compile for a topology); event (the n-th execute succeeds, its outputs fail when awaited); event3
// (the same, of device 3 alone); late (the n-th execute fails and has consumed its donors all the
// same); slow:n=MS (the n-th execute's outputs are ready MS milliseconds later);
// slow_download:n=MS; and every entry of the C API by its own name (PJRT_Buffer_ReadyEvent). HANG
// MS instead of a code: the call goes well, but only after MS milliseconds or once another script
// is set. CRASH: the call aborts the process.
#pragma once
#include <pjrt_c_api.h>

#include <optional>
#include <string>
#include <string_view>

namespace fake {

struct Fault {
  PJRT_Error_Code code;
  std::string words;
};

// Replaces the script and starts counting anew. Gives false (and keeps the old script) where it
// cannot be read.
bool set_script(const std::string& text);
// Sets the script that TORCH_PJRT_FAKE_SCRIPT has; gives what is wrong with it, or nothing.
std::string read_script();
// Counts one call of `kind`; gives its fault where the script names this call. Hangs where it says
// so.
std::optional<Fault> next(std::string_view kind);
// Sleeps that long, or until another script is set.
void sleep_ms(const std::string& milliseconds);
long calls(const std::string& kind);  // since the script was set

}  // namespace fake
