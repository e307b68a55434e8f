// What a plugin answers, for Python (torch_pjrt/_conform.py): names only, no logic.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_conform(pybind11::module_& m);
}
