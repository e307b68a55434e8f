// torch_pjrt._C's part for shardings: names for torch_pjrt/spmd.py, no logic.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_spmd(pybind11::module_& m);
}
