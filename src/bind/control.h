// Loops and branches as nodes, for Python (torch_pjrt/_control.py): names only, no logic.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_control(pybind11::module_& m);
}
