#include "bind/topology.h"

#include <pybind11/stl.h>

#include "base/flags.h"
#include "bind/options.h"
#include "pjrt/topology.h"
#include "torch/runtime.h"

namespace py = pybind11;
using tp::torch_room::GilRelease;

namespace tp::bind {
namespace {

std::unique_ptr<pjrt::Topology> make_topology(const std::string& library, const std::string& name,
                                              const py::dict& options) {
  auto given = to_options(options);
  GilRelease no_gil;  // plugins take seconds to load
  return std::make_unique<pjrt::Topology>(pjrt::Plugin::load(library), name, given);
}

pjrt::Unloaded compile(const pjrt::Topology& topology, const std::string& module, int partitions,
                       bool shardy, const py::dict& overrides) {
  pjrt::CompileOptions options;
  options.num_partitions = partitions;
  options.use_spmd_partitioning = partitions > 1;
  options.use_shardy_partitioner = shardy;
  options.overrides = to_options(overrides);
  options.optimization_level = pjrt::level_number(flag_text(Flag::kOptimizationLevel));
  GilRelease no_gil;
  return topology.compile(module, options);
}

py::object memory_of(const pjrt::Inspection& i) {
  if (!i.memory) return py::none();
  const pjrt::CompiledMemory& m = *i.memory;
  return py::dict(py::arg("arguments") = m.arguments, py::arg("outputs") = m.outputs,
                  py::arg("temporaries") = m.temporaries, py::arg("aliased") = m.aliased,
                  py::arg("code") = m.code, py::arg("peak") = m.peak);
}

// memory, costs, format and bytes of the optimized form
py::tuple inspect(const pjrt::Unloaded& program) {
  pjrt::Inspection i;
  {
    GilRelease no_gil;
    i = program.inspect(true);
  }
  py::dict costs;
  for (const auto& [name, value] : i.costs) costs[py::str(name)] = value;
  return py::make_tuple(memory_of(i), costs, i.optimized_format, py::bytes(i.optimized));
}

py::bytes serialize(const pjrt::Unloaded& program) {
  std::string bytes;
  {
    GilRelease no_gil;
    bytes = program.serialize();
  }
  return bytes;
}

}  // namespace

void add_topology(py::module_& m) {
  py::class_<pjrt::Unloaded>(m, "Unloaded").def("inspect", &inspect).def("serialize", &serialize);
  py::class_<pjrt::Topology>(m, "Topology")
      .def(py::init(&make_topology))
      .def_property_readonly("platform", &pjrt::Topology::platform)
      .def_property_readonly("kinds", &pjrt::Topology::kinds)
      .def_property_readonly("api",
                             [](const pjrt::Topology& t) {
                               return py::make_tuple(t.plugin().api_major(),
                                                     t.plugin().api_minor());
                             })
      // A program lives no longer than its topology, whose plugin made it.
      .def("compile", &compile, py::keep_alive<0, 1>());
}

}  // namespace tp::bind
