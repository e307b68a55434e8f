// Recording functions once and calling their programs, for Python (torch_pjrt/_compile.py): names
// only, no logic.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_trace(pybind11::module_& m);
}
