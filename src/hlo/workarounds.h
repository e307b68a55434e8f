// What programs do about mistakes of the compilers that they meet (base/capabilities.h: Mistake):
// all of it is in workarounds.cpp, but for kNarrowMasks, which is an option of the compile
// (client/pjrt_client.cpp). Each has a program that comes out wrong in
// tests/python/test_cpu_plugins.py, run on each plugin with a row there: the test fails once a
// plugin is right. docs/design/0006-cpu-plugins.md says which plugin makes which, and at what cost.
//
// Nothing else in the project asks for a mistake. Private to hlo/; pure.
#pragma once
#include "base/capabilities.h"

namespace tp::hlo {

// kBoolProducts: a nan times a bool made a float is 0, unless that went by way of bytes.
inline bool makes_bools_through_bytes(const Capabilities& target) {
  return target.makes(Mistake::kBoolProducts);
}

}  // namespace tp::hlo
