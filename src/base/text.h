// cat(): builds text out of pieces without streams. Thread-safe: no state.
#pragma once
#include <algorithm>
#include <charconv>
#include <concepts>
#include <span>
#include <string>
#include <string_view>

namespace tp {

inline void append(std::string& s, std::string_view v) { s.append(v); }
inline void append(std::string& s, const std::string& v) { s.append(v); }
inline void append(std::string& s, const char* v) { s.append(v); }
inline void append(std::string& s, char v) { s.push_back(v); }
inline void append(std::string& s, bool v) { s.append(v ? "true" : "false"); }
template <std::integral T>
void append(std::string& s, T v) {
  char buf[24];
  auto r = std::to_chars(buf, buf + sizeof buf, v);
  s.append(buf, r.ptr);
}
template <std::floating_point T>
void append(std::string& s, T v) {
  char buf[40];
  auto r = std::to_chars(buf, buf + sizeof buf, v);
  s.append(buf, r.ptr);
}

// cat("dim ", 3, " of ", name): one string of all pieces.
template <class... A>
std::string cat(const A&... a) {
  std::string s;
  (append(s, a), ...);
  return s;
}

// join({1,2,3}, ", ") -> "1, 2, 3".
template <class R>
std::string join(const R& items, std::string_view sep) {
  std::string s;
  bool first = true;
  for (const auto& x : items) {
    if (!first) s.append(sep);
    first = false;
    append(s, x);
  }
  return s;
}

// Calls is(word) for each word between spaces until it is true; whether it was.
template <class F>
bool any_word(std::string_view list, F&& is) {
  while (!list.empty()) {
    size_t n = std::min(list.find(' '), list.size());
    if (n && is(list.substr(0, n))) return true;
    list.remove_prefix(std::min(n + 1, list.size()));
  }
  return false;
}

// Does the word stand in the list?
inline bool has_word(std::string_view list, std::string_view word) {
  return any_word(list, [word](std::string_view w) { return w == word; });
}

}  // namespace tp
