// torch_pjrt._C's part for shardings: names for torch_pjrt/spmd.py, no logic.
#pragma once
#include <pybind11/pybind11.h>

#include "shard/sharding.h"

namespace tp::bind {
// A sharding as Python has it.
pybind11::object sharding_object(const shard::Ref& s);
shard::Ref sharding_ref(const pybind11::handle& h);
void add_spmd(pybind11::module_& m);
}  // namespace tp::bind
