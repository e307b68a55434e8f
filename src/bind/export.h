// Exporting functions as StableHLO, for Python (torch_pjrt/export.py): names only, no logic.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_export(pybind11::module_& m);
}
