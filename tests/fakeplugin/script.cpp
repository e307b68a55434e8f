#include "script.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

namespace fake {
namespace {

constexpr std::string_view kCodes[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

using Faults = std::map<std::pair<std::string, long>, Fault>;

struct State {
  std::mutex mu;
  Faults faults;
  std::map<std::string, long, std::less<>> calls;
  long scripts = 0;  // how many were set
  std::condition_variable changed;
};
State& state() {
  static State* s = new State;
  return *s;
}

std::string trim(std::string_view s) {
  size_t a = s.find_first_not_of(" \n\t"), b = s.find_last_not_of(" \n\t");
  return a == s.npos ? std::string() : std::string(s.substr(a, b - a + 1));
}

constexpr auto kHang = static_cast<PJRT_Error_Code>(-1);  // the words are milliseconds
constexpr auto kCrash = static_cast<PJRT_Error_Code>(-2);

// kind:number=CODE words   or   slow:number=milliseconds
bool parse_entry(const std::string& entry, Faults& out) {
  size_t colon = entry.find(':'), equals = entry.find('=');
  if (colon == entry.npos || equals == entry.npos || equals < colon) return false;
  std::string kind = trim(entry.substr(0, colon));
  long number = std::strtol(entry.c_str() + colon + 1, nullptr, 10);
  std::string value = trim(entry.substr(equals + 1));
  if (number < 1 || value.empty()) return false;
  if (kind == "slow" || kind == "slow_download") {
    out[{kind, number}] = {PJRT_Error_Code_OK, value};
    return true;
  }
  std::string code = value.substr(0, value.find(' '));
  if (code == "HANG") {
    out[{kind, number}] = {kHang, trim(value.substr(code.size()))};
    return true;
  }
  if (code == "CRASH") {
    out[{kind, number}] = {kCrash, ""};
    return true;
  }
  for (size_t i = 1; i < std::size(kCodes); ++i)
    if (code == kCodes[i]) {
      out[{kind, number}] = {static_cast<PJRT_Error_Code>(i), trim(value.substr(code.size()))};
      return true;
    }
  return false;
}

}  // namespace

bool set_script(const std::string& text) {
  Faults faults;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(';', at), text.size());
    std::string entry = trim(std::string_view(text).substr(at, end - at));
    if (!entry.empty() && !parse_entry(entry, faults)) return false;
    at = end + 1;
  }
  std::lock_guard lock(state().mu);
  state().faults = std::move(faults);
  state().calls.clear();
  ++state().scripts;
  state().changed.notify_all();
  return true;
}

std::string read_script() {
  const char* script = std::getenv("TORCH_PJRT_FAKE_SCRIPT");
  if (!script || set_script(script)) return {};
  return std::string("TORCH_PJRT_FAKE_SCRIPT cannot be read: ") + script;
}

std::optional<Fault> next(std::string_view kind) {
  State& s = state();
  std::unique_lock lock(s.mu);
  long number = ++s.calls[std::string(kind)];
  auto it = s.faults.find({std::string(kind), number});
  if (it == s.faults.end()) return std::nullopt;
  Fault fault = it->second;
  if (fault.code == kCrash) std::abort();
  if (fault.code != kHang) return fault;
  lock.unlock();
  sleep_ms(fault.words);
  return std::nullopt;
}

void sleep_ms(const std::string& milliseconds) {
  State& s = state();
  std::unique_lock lock(s.mu);
  auto limit = std::chrono::milliseconds(std::strtol(milliseconds.c_str(), nullptr, 10));
  s.changed.wait_for(lock, limit, [&, now = s.scripts] { return s.scripts != now; });
}

long calls(const std::string& kind) {
  std::lock_guard lock(state().mu);
  return state().calls[kind];
}

}  // namespace fake
