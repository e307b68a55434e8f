// Storages of device xla: who they are, never what is in them. An address that is unique to the
// memory lets savers tell views and tied weights; nothing can be read from it or written to it.
// Bytes travel by copies between storages. All tensors of one memory have the same storage: their
// Alias.
// Any thread; no lock of ours may be held.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "torch/tensor.h"

namespace tp::torch_room {

// What at::Tensor::data_ptr() would be on a device with addresses; null for empty tensors. No value
// where t is no tensor of ours.
std::optional<uintptr_t> address_of(const at::Tensor& t);

// Of a storage: makes its address. What c10::StorageImpl calls a materializer.
void give_address(c10::StorageImpl* storage);

// The alias has another type: another size, and so another address where it had one.
void resize_storage(Alias& alias);

// A tensor over all of t's memory, of the alias's own type and layout.
at::Tensor all_of(const Impl& t);

// Where dst and src see all of their memories as bytes: dst and src as all_of() sees them, alike in
// type and layout, so that a copy of bytes is one of values. Memory made as bytes takes src's type.
std::optional<std::pair<at::Tensor, at::Tensor>> as_memory(const at::Tensor& dst,
                                                           const at::Tensor& src);
// The same for bytes from the CPU: written as values of t's alias. False where t is no such window.
bool write_memory(Impl& t, const at::Tensor& host);

// Makes storages of zeros on the current device; for torch.UntypedStorage.
c10::Allocator& storage_allocator();

}  // namespace tp::torch_room
