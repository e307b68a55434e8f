#include "bind/trace.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bind/export.h"
#include "bind/tensors.h"
#include "torch/capture.h"
#include "torch/trace.h"

namespace py = pybind11;
using namespace tp::torch_room;

namespace tp::bind {

at::Tensor to_tensor(const py::handle& h) {
  if (!THPVariable_Check(h.ptr()))
    throw py::type_error("expected a torch.Tensor, found " +
                         std::string(py::str(py::type::handle_of(h))));
  return THPVariable_Unpack(h.ptr());
}

py::object from_tensor(const at::Tensor& t) {
  return t.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(t)) : py::none();
}

std::vector<at::Tensor> tensors_of(const py::list& list) {
  std::vector<at::Tensor> out;
  out.reserve(list.size());
  for (const py::handle& h : list) {
    if (h.is_none()) {
      out.emplace_back();
      continue;
    }
    if (!THPVariable_Check(h.ptr()))
      throw py::type_error("expected a torch.Tensor or None, found " +
                           std::string(py::str(py::type::handle_of(h))));
    out.push_back(THPVariable_Unpack(h.ptr()));
  }
  return out;
}

py::list to_list(const std::vector<at::Tensor>& tensors) {
  py::list out(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) out[i] = from_tensor(tensors[i]);
  return out;
}

namespace {

// None where the arguments are not those that were traced.
py::object call(const Compiled& c, const py::list& arguments) {
  std::vector<at::Tensor> tensors = tensors_of(arguments);
  if (!c.fits(tensors)) return py::none();
  return to_list(c.call(std::move(tensors)));
}

}  // namespace

void add_trace(py::module_& m) {
  py::class_<Compiled, std::shared_ptr<Compiled>>(m, "Compiled")
      .def("call", &call)
      .def_property_readonly("draws", &Compiled::draws)
      .def_property_readonly("key", &Compiled::key);
  py::class_<Trace>(m, "Trace")
      .def(py::init([](const py::list& arguments, std::string name) {
        return std::make_unique<Trace>(tensors_of(arguments), std::move(name));
      }))
      .def("stand_ins", [](const Trace& t) { return to_list(t.stand_ins()); })
      .def("finish",
           [](Trace& t, const py::list& outputs) { return t.finish(tensors_of(outputs)); })
      .def("end", &Trace::end)
      .def_property_readonly("refused", [](const Trace& t) { return t.refused(); });
  py::class_<Captured, std::shared_ptr<Captured>>(m, "Captured")
      .def("call", [](const Captured& c,
                      const py::list& arguments) { return to_list(c.call(tensors_of(arguments))); })
      .def("difference", &Captured::difference)
      .def_property_readonly("draws", &Captured::draws);
  py::class_<Capture>(m, "Capture")
      .def(py::init([](const py::list& arguments) {
        return std::make_unique<Capture>(tensors_of(arguments));
      }))
      .def("finish",
           [](Capture& c, const py::list& outputs) { return c.finish(tensors_of(outputs)); })
      .def("end", &Capture::end);
  m.def("tracing", [] { return tracing(); });
  m.def("refuse_trace", [](std::string why) {
    if (tracing()) t_trace->refuse(std::move(why));
  });
  add_export(m);
}

}  // namespace tp::bind
