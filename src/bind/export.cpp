#include "bind/export.h"

#include <pybind11/stl.h>

#include "bind/tensors.h"
#include "torch/export.h"

namespace py = pybind11;
using namespace tp::torch_room;

namespace tp::bind {

void add_export(py::module_& m) {
  py::class_<Export::Program>(m, "ExportedProgram")
      .def_readonly("text", &Export::Program::text)
      .def_readonly("parameters", &Export::Program::parameters)
      .def_readonly("updated", &Export::Program::updated)
      .def_property_readonly("constants",
                             [](const Export::Program& p) { return to_list(p.constants); });
  py::class_<Export>(m, "Export")
      .def(py::init([](const py::list& arguments, size_t inputs, std::string name) {
        return std::make_unique<Export>(tensors_of(arguments), inputs, std::move(name));
      }))
      .def("stand_ins", [](const Export& e) { return to_list(e.stand_ins()); })
      .def("finish",
           [](Export& e, const py::list& outputs, bool portable) {
             using lower::Dialects;
             return e.finish(tensors_of(outputs),
                             portable ? Dialects::kStableHlo : Dialects::kStableHloAndChlo);
           })
      .def("end", &Export::end)
      .def_property_readonly("refused", [](const Export& e) { return e.refused(); });
  py::class_<Loaded>(m, "Loaded")
      .def(py::init(
          [](const std::string& text, const py::list& outputs, std::string name, int device) {
            return std::make_unique<Loaded>(text, tensors_of(outputs), std::move(name), device);
          }))
      .def(py::init([](const std::string& text, const py::bytes& program, std::string name) {
        return std::make_unique<Loaded>(text, std::string_view(program), std::move(name));
      }))
      .def("call", [](const Loaded& l, const py::list& arguments) {
        return to_list(l.call(tensors_of(arguments)));
      });
}

}  // namespace tp::bind
