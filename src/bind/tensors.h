// Lists of tensors between Python and C++.
#pragma once
#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <vector>

namespace tp::bind {
// None gives an undefined tensor, and comes of one.
std::vector<at::Tensor> tensors_of(const pybind11::list& list);
pybind11::list to_list(const std::vector<at::Tensor>& tensors);
}  // namespace tp::bind
