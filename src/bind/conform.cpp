#include "bind/conform.h"

#include <pybind11/stl.h>

#include "bind/options.h"
#include "pjrt/conform.h"
#include "torch/runtime.h"

namespace py = pybind11;
using tp::torch_room::GilRelease;
namespace conform = tp::pjrt::conform;

namespace tp::bind {
namespace {

py::list rows(std::span<const conform::Row> table) {
  py::list out;
  for (const conform::Row& r : table)
    out.append(py::make_tuple(std::string(r.name), r.required, std::string(r.missed)));
  return out;
}

py::tuple ask(const std::string& name, std::string library, const py::dict& options,
              const py::dict& compile_options, std::string topology,
              const py::dict& topology_options, const py::dict& topology_compile_options) {
  static const char* kVerdicts[] = {"works", "missing", "wrong", "not tried"};
  conform::Setting setting{std::move(library),           to_options(options),
                           to_options(compile_options),  std::move(topology),
                           to_options(topology_options), to_options(topology_compile_options)};
  conform::Answer answer;
  {
    GilRelease no_gil;
    answer = conform::ask(setting, name);
  }
  return py::make_tuple(kVerdicts[static_cast<int>(answer.verdict)], answer.words);
}

}  // namespace

void add_conform(py::module_& m) {
  m.def("conform_calls", [] { return rows(conform::calls()); });
  m.def("conform_behaviours", [] { return rows(conform::behaviours()); });
  m.def("conform_ask", &ask);
}

}  // namespace tp::bind
