// Who the memory of a device tensor is, for Python (torch_pjrt/_storage.py).
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {
void add_storage(pybind11::module_& m);
}
