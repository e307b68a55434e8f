// Options of plugins and compiles: a dict of Python's as the core takes it. TypeErrors are
// pybind11's.
#pragma once
#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

#include "pjrt/compile_options.h"

namespace tp::bind {

// A bool is a bool here, though Python's is an int.
inline pjrt::OptionValue to_option(const pybind11::handle& h) {
  if (pybind11::isinstance<pybind11::bool_>(h)) return h.cast<bool>();
  if (pybind11::isinstance<pybind11::int_>(h)) return h.cast<int64_t>();
  if (pybind11::isinstance<pybind11::float_>(h)) return h.cast<double>();
  return h.cast<std::string>();
}

inline std::vector<std::pair<std::string, pjrt::OptionValue>> to_options(const pybind11::dict& d) {
  std::vector<std::pair<std::string, pjrt::OptionValue>> out;
  for (auto [k, v] : d) out.emplace_back(k.cast<std::string>(), to_option(v));
  return out;
}

}  // namespace tp::bind
