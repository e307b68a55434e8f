// What happened and why, as plain data for torch_pjrt/_explain.py: no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bind/python.h"
#include "bind/spmd.h"
#include "client/registry.h"
#include "exec/dump.h"
#include "exec/graph_limit.h"
#include "probe/events.h"
#include "probe/probe.h"
#include "torch/census.h"
#include "torch/cuts.h"
#include "torch/frames.h"
#include "torch/runtime.h"
#include "torch/spmd.h"

namespace py = pybind11;

namespace tp::bind {
namespace {

using namespace tp::torch_room;

py::dict place(ir::LocationId id) {
  const ir::Location& l = ir::location_of(id);
  return py::dict(py::arg("file") = l.file, py::arg("line") = l.line,
                  py::arg("function") = l.function, py::arg("scope") = l.scope,
                  py::arg("backward") = ir::is_backward(id), py::arg("text") = ir::line_text(id));
}

// With the user's own line behind it, where that is another one: as seen now, or first seen.
py::dict place(const ir::Site& l) {
  py::dict d = place(l.at);
  if (l.own) d["own"] = place(l.own);
  return d;
}
py::dict place_and_caller(ir::LocationId id) { return place(ir::Site{id, ir::caller_of(id)}); }

py::list compile_events() {
  py::list out;
  for (const exec::CompileEvent& e : executor().explainer().events()) {
    py::list reasons;
    for (const exec::Reason& r : e.reasons)
      reasons.append(py::make_tuple(r.kind, r.text, place_and_caller(r.where)));
    out.append(py::dict(
        py::arg("number") = e.number, py::arg("at") = e.at, py::arg("seconds") = e.seconds,
        py::arg("nodes") = e.nodes, py::arg("arguments") = e.arguments,
        py::arg("outputs") = e.outputs, py::arg("key") = e.key, py::arg("nearest") = e.nearest,
        py::arg("site") = e.site, py::arg("unexpected") = e.unexpected, py::arg("fresh") = e.fresh,
        py::arg("interpreted") = e.interpreted, py::arg("rounds") = e.rounds.count,
        py::arg("rounds_at") = place_and_caller(e.rounds.where), py::arg("reasons") = reasons));
  }
  return out;
}

py::list reads() {
  py::list out;
  for (const ReadLine& l : read_lines())
    out.append(py::make_tuple(std::string(l.kind), place(l.where), l.cuts, l.reads,
                              static_cast<double>(l.wait_ns) * 1e-9, l.advice ? l.advice : ""));
  return out;
}

py::list interpreted() {
  py::list out;
  for (const exec::InterpretedLine& l : executor().interpreted())
    out.append(py::make_tuple(l.site, l.nodes, l.graphs, l.times, l.peeled));
  return out;
}

py::object set_read_kind(const py::object& name) {
  const char* before =
      exchange_read_kind(name.is_none() ? nullptr : permanent(name.cast<std::string>()));
  return before ? py::object(py::str(before)) : py::none();
}

py::list timeline() {
  py::list out;
  for (const probe::Event& e : probe::events())
    out.append(py::make_tuple(std::string(probe::phase_name(e.phase)),
                              static_cast<double>(e.start_ns) * 1e-9,
                              static_cast<double>(e.end_ns) * 1e-9, e.step,
                              e.program ? Hash128{0, e.program}.hex().substr(0, 16) : ""));
  return out;
}

py::list op_lines(const std::string& op) {
  py::list out;
  for (ir::LocationId id : executor().explainer().lines_of(op)) out.append(place_and_caller(id));
  return out;
}

py::dict to_dict(const client::ProgramInfo& i) {
  py::dict d;
  if (i.memory.known)
    d["memory"] = py::dict(
        py::arg("arguments") = i.memory.arguments, py::arg("outputs") = i.memory.outputs,
        py::arg("temporaries") = i.memory.temporaries, py::arg("donated") = i.memory.donated,
        py::arg("code") = i.memory.code, py::arg("peak") = i.memory.peak);
  py::dict costs;
  for (const auto& [name, value] : i.costs) costs[py::str(name)] = value;
  d["costs"] = costs;
  return d;
}

client::ProgramInfo inspect(const exec::Program& p, bool optimized) {
  GilRelease no_gil;
  return client::client().inspect(*p.executable, optimized);
}

py::list programs() {
  py::list out;
  auto runs = executor().explainer().runs();
  for (const exec::ProgramPtr& p : executor().cache().all()) {
    py::dict d = to_dict(inspect(*p, false));
    d["key"] = p->key.total.hex();
    d["nodes"] = p->nodes;
    d["seconds"] = p->compile_seconds;
    d["runs"] = runs[p->key.total];
    d["devices"] = p->placement.devices;  // none: one device, not a mesh
    out.append(d);
  }
  return out;
}

py::object optimized_program(const std::string& key) {
  for (const exec::ProgramPtr& p : executor().cache().all()) {
    if (!p->key.total.hex().starts_with(key)) continue;
    client::ProgramInfo i = inspect(*p, true);
    return py::make_tuple(i.optimized_format, py::bytes(i.optimized), to_dict(i));
  }
  return py::none();
}

py::object graph_record(const std::string& key) {
  exec::GraphRecord r = executor().record(key);
  if (!r.nodes) return py::none();
  return py::make_tuple(r.nodes, r.text, r.module, r.dot, r.key.hex());
}

py::list live_list(const std::vector<LiveLine>& lines) {
  py::list out;
  for (const LiveLine& l : lines)
    out.append(py::make_tuple(place_and_caller(l.where), l.count, l.bytes));
  return out;
}

py::list samples() {
  py::list out;
  for (const Sample& s : census_samples()) out.append(py::make_tuple(s.sync, live_list(s.lines)));
  return out;
}

py::list sharded_list() {
  py::list out;
  for (const ShardedLine& l : sharded_lines()) {
    auto dims = l.type.dims();
    out.append(py::make_tuple(place_and_caller(l.where), ir::dtype_name(l.type.dtype()),
                              std::vector<int64_t>(dims.begin(), dims.end()),
                              ir::dtype_size(l.type.dtype()), l.count,
                              sharding_object(l.sharding)));
  }
  return out;
}

py::dict amounts(const std::vector<probe::TimerValue>& values) {
  py::dict d;
  for (const probe::TimerValue& v : values) {
    py::dict shares;
    for (size_t i = 0; i < v.percentiles.size(); ++i)
      shares[py::float_(probe::kPercentiles[i])] = v.percentiles[i];
    d[py::str(v.name)] = py::make_tuple(v.count, v.seconds, shares);
  }
  return d;
}

void clear() {
  executor().explainer().clear();
  clear_read_lines();
  probe::clear_events();
}

}  // namespace

void define_explain(py::module_& m) {
  m.def("compile_events", &compile_events);
  m.def("reads", &reads);
  m.def("interpreted", &interpreted);
  m.def("set_read_kind", &set_read_kind);
  m.def("exchange_no_cuts", &exchange_no_cuts);
  py::class_<exec::GraphLimit, exec::GraphLimitPtr>(m, "GraphLimit")
      .def(py::init<std::string, size_t>())
      .def("set_most", &exec::GraphLimit::set_most);
  m.def("exchange_graph_limit", &exec::exchange_graph_limit);
  m.def("exchange_thread_tier", &exec::exchange_thread_tier);
  m.def("timeline", &timeline);
  m.def("op_lines", &op_lines);
  m.def("programs", &programs);
  m.def("optimized_program", &optimized_program);
  m.def("graph_record", &graph_record);
  m.def("sharded_lines", &sharded_list);
  m.def("live_lines", [] { return live_list(live_lines()); });
  m.def("census_samples", &samples);
  m.def("timer_values", [] { return amounts(probe::timers()); });
  m.def("accumulators", [] { return amounts(probe::accumulators()); });
  m.def("clear_explain", &clear);
  m.def("set_dump_directory", &exec::set_dump_directory);
  m.def("set_versions", [](std::string torch, std::string ours) {
    executor().explainer().set_versions(std::move(torch), std::move(ours));
  });
  m.def("dial", &probe::dial);
  m.def("now", [] { return static_cast<double>(probe::now_ns()) * 1e-9; });
  m.def("step", &probe::step);
}

}  // namespace tp::bind
