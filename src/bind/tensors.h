// Tensors, and lists of them, between Python and C++.
#pragma once
#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <vector>

namespace tp::bind {
at::Tensor to_tensor(const pybind11::handle& h);    // TypeError where it is none
pybind11::object from_tensor(const at::Tensor& t);  // None for an undefined one
// None gives an undefined tensor, and comes of one.
std::vector<at::Tensor> tensors_of(const pybind11::list& list);
pybind11::list to_list(const std::vector<at::Tensor>& tensors);
}  // namespace tp::bind
