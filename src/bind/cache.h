// The folder of stored programs for Python (torch_pjrt/cache.py): names only, no logic.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_cache(pybind11::module_& m);
}
