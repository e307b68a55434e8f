#include "torch/checks.h"

#include <ATen/EmptyTensor.h>

#include "base/text.h"
#include "client/registry.h"
#include "torch/kernels.h"
#include "torch/runtime.h"

namespace tp::torch_room {
namespace {

size_t count_devices() {
  if (client::client_exists()) return client::client().devices().size();
  GilRelease no_gil;  // starting it takes its time
  return client::client().devices().size();
}

void look_for_device(int index) {
  size_t count = count_devices();
  if (static_cast<size_t>(index) < count) return;
  client::ComputationClient& c = client::client();
  std::string fix = c.how_to_have(index + 1);
  fail(Code::kRuntime,
       cat("device xla:", index, " does not exist: the ", c.platform(), " client has ", count,
           count == 1 ? " device, xla:0" : cat(" devices, xla:0 to xla:", count - 1)),
       fix.empty() ? "use a device that exists (torch_pjrt.devices())"
                   : cat(fix, ", or use a device that exists"));
}

}  // namespace

void check_device_index(int index) {
  converting([&] { look_for_device(index); }, [] { return std::string(); });
}

c10::Device checked_device(std::optional<c10::Device> d) {
  int index = d && d->has_index() ? d->index() : current_device();
  check_device(index);
  return c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(index));
}

void check_window(const Alias& memory, size_t itemsize, at::IntArrayRef size,
                  at::IntArrayRef stride, int64_t offset) {
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  for (int64_t s : stride)
    TORCH_CHECK(
        s >= 0,
        "as_strided: Negative strides are not supported at the moment, got strides: ", stride);
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  size_t need = at::detail::computeStorageNbytes(size, stride, itemsize, offset);
  TORCH_CHECK(need <= static_cast<size_t>(memory.type.bytes()), "setStorage: sizes ", size,
              ", strides ", stride, ", storage offset ", offset, ", and itemsize ", itemsize,
              " requiring a storage size of ", need, " are out of bounds for storage of size ",
              memory.type.bytes());
}

}  // namespace tp::torch_room
