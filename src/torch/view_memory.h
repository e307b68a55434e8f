// Windows onto a root value's memory as CPU tensors: what the nodes torch_pjrt::view, view_scatter
// and resize say (docs/design/0001-strided-views.md). Pure; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>

namespace tp::torch_room {

struct Window {
  std::span<const int64_t> base_stride, size, stride;  // base_stride: of the root's own elements
  int64_t offset;
  at::ScalarType dtype;  // sizes, strides and offset count elements of it
};

// The root's elements in memory order, one dimension; the root's own memory where it is laid out
// so.
at::Tensor memory_of(const at::Tensor& root, std::span<const int64_t> base_stride);
// Memory, counted in other elements; what is left over at its end belongs to none of them.
at::Tensor in_elements_of(const at::Tensor& memory, at::ScalarType type);
// Shares the root's memory where that is laid out by base_stride.
at::Tensor read_window(const at::Tensor& root, const Window& w);
// The root with `src` written through the window; `in_place`: the root itself.
at::Tensor write_window(const at::Tensor& root, const at::Tensor& src, const Window& w,
                        bool in_place);
// The memory with `numel` elements: cut, or with zeros behind it.
at::Tensor resized_memory(const at::Tensor& root, std::span<const int64_t> base_stride,
                          int64_t numel);

}  // namespace tp::torch_room
