// Compiling for hardware that is not there, for Python (torch_pjrt/aot.py): names only, no logic.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_topology(pybind11::module_& m);
}
