// torch.distributed's backend "xla" for Python (torch_pjrt/distributed.py).
#include <torch/csrc/utils/pybind.h>

#include "bind/python.h"
#include "torch/process_group.h"

namespace py = pybind11;
using namespace tp::torch_room;

namespace tp::bind {

void define_distributed(py::module_& m) {
  m.def(
      "make_process_group",
      [](std::string name, int rank, int size, c10::intrusive_ptr<c10d::Backend> engine,
         c10::intrusive_ptr<c10d::Store> store, double timeout_s) {
        auto timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
        return make_process_group(
            {std::move(name), rank, size, std::move(engine), std::move(store), timeout});
      },
      py::arg("name"), py::arg("rank"), py::arg("size"), py::arg("engine"), py::arg("store"),
      py::arg("timeout_s"));
  m.def("set_processes", &set_processes, py::arg("rank"), py::arg("size"), py::arg("store"));
  m.def("collective_token", &collective_token, py::arg("device"));
  m.def("set_traced_token",
        [](std::optional<at::Tensor> t) { set_traced_token(t ? std::move(*t) : at::Tensor()); });
}

}  // namespace tp::bind
