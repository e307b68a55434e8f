// What eager checks at the call, before anything is made: device indices, windows onto memory; and
// the core's errors in kernels that PyTorch calls directly. Any thread.
#pragma once
#include <torch/library.h>

#include <utility>

#include "base/error.h"
#include "torch/errors.h"
#include "torch/tensor.h"

namespace tp::torch_room {

// Throws where the client has no device of that index; may start it. Index 0 is always there.
void check_device_index(int index);
inline void check_device(int index) {
  if (index > 0) [[unlikely]]
    check_device_index(index);
}
// The device that is meant: the calling thread's current one where no index is given. Checked.
c10::Device checked_device(std::optional<c10::Device> d);

// Throws in eager's words where a window of `t`'s element size onto the alias's memory reaches
// outside of it, or its sizes are no numbers that memory may have.
void check_window(const Alias& memory, size_t itemsize, at::IntArrayRef size,
                  at::IntArrayRef stride, int64_t offset);

// The kernel f with errors of the core as PyTorch's: m.impl("empty", TP_FN(empty)).
template <auto f, class Signature = decltype(f)>
struct Converting;
template <auto f, class R, class... A>
struct Converting<f, R (*)(A...)> {
  static R call(A... args) {
    return converting([&]() -> R { return f(std::forward<A>(args)...); },
                      [] { return std::string(); });
  }
};
#define TP_FN(f) TORCH_FN((::tp::torch_room::Converting<&f>::call))

}  // namespace tp::torch_room
