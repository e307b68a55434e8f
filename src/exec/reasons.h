// Why one graph is not another one, in words, and what to do about it. Pure functions; any thread.
#pragma once
#include <string_view>
#include <vector>

#include "exec/sketch.h"

namespace tp::exec {

// Why `now` is not `known`. `fresh`: they share too little for differences to explain anything.
struct Comparison {
  bool fresh = false;
  std::vector<Reason> reasons;
};
Comparison compare(const Sketch& known, const Sketch& now);

// What helps against the first of these reasons; empty where nothing is known to.
std::string_view cure(const std::vector<Reason>& reasons);

}  // namespace tp::exec
