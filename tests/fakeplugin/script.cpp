#include "script.h"

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
  std::map<std::string, long> calls;
};
State& state() {
  static State* s = new State;
  return *s;
}

std::string trim(std::string_view s) {
  size_t a = s.find_first_not_of(" \n\t"), b = s.find_last_not_of(" \n\t");
  return a == s.npos ? std::string() : std::string(s.substr(a, b - a + 1));
}

// kind:number=CODE words   or   slow:number=milliseconds
bool parse_entry(const std::string& entry, Faults& out) {
  size_t colon = entry.find(':'), equals = entry.find('=');
  if (colon == entry.npos || equals == entry.npos || equals < colon) return false;
  std::string kind = trim(entry.substr(0, colon));
  long number = std::strtol(entry.c_str() + colon + 1, nullptr, 10);
  std::string value = trim(entry.substr(equals + 1));
  if (number < 1 || value.empty()) return false;
  if (kind == "slow") {
    out[{kind, number}] = {PJRT_Error_Code_OK, value};
    return true;
  }
  std::string code = value.substr(0, value.find(' '));
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
  return true;
}

std::optional<Fault> next(const char* kind) {
  std::lock_guard lock(state().mu);
  long number = ++state().calls[kind];
  auto it = state().faults.find({kind, number});
  return it == state().faults.end() ? std::nullopt : std::optional(it->second);
}

long calls(const std::string& kind) {
  std::lock_guard lock(state().mu);
  return state().calls[kind];
}

}  // namespace fake
