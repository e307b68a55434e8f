#include "bind/control.h"

#include <pybind11/stl.h>

#include "bind/spmd.h"
#include "bind/tensors.h"
#include "torch/body.h"

namespace py = pybind11;
using namespace tp::torch_room;

namespace tp::bind {
namespace {

std::vector<at::Tensor> tensors_of(const py::sequence& list) {
  std::vector<at::Tensor> out;
  for (const py::handle& h : list) out.push_back(to_tensor(h));
  return out;
}

std::vector<shard::Ref> shardings_of(const py::sequence& list) {
  std::vector<shard::Ref> out;
  for (const py::handle& h : list) out.push_back(sharding_ref(h));
  return out;
}

py::tuple source(const Body& b, const py::handle& t) {
  Body::Source s = b.source(to_tensor(t));
  return py::make_tuple(s.stand_in, s.value, from_tensor(s.base), s.window);
}

py::list loop(const Body* condition, const Body& body, const py::sequence& carried,
              const py::sequence& scanned, const py::sequence& invariants, int64_t length,
              bool reverse) {
  return to_list(record_loop(
      condition, body,
      {tensors_of(carried), tensors_of(scanned), tensors_of(invariants), length, reverse}));
}

}  // namespace

void add_control(py::module_& m) {
  py::class_<Body>(m, "Body")
      .def(py::init([](const py::sequence& like, std::string name) {
        return std::make_unique<Body>(tensors_of(like), std::move(name));
      }))
      .def("stand_ins", [](const Body& b) { return to_list(b.stand_ins()); })
      .def("end", &Body::end)
      .def("written", &Body::written)
      .def("source", &source)
      .def("outside",
           [](const Body& b, const py::handle& t) { return from_tensor(b.outside(to_tensor(t))); })
      .def("uses", &Body::uses)
      .def_property_readonly("draws", &Body::draws)
      .def("finish", [](Body& b, const py::sequence& results) { b.finish(tensors_of(results)); });
  m.def("record_manual", [](const Body& body, const py::sequence& operands, const py::sequence& in,
                            const py::sequence& out) {
    return to_list(record_manual(body, tensors_of(operands), shardings_of(in), shardings_of(out)));
  });
  m.def("run_replicas", [](const Body& body, const py::sequence& operands, const py::sequence& in,
                           const py::sequence& out) {
    return to_list(run_replicas(body, tensors_of(operands), shardings_of(in), shardings_of(out)));
  });
  m.def("record_loop", &loop);
  m.def("record_branch", [](const py::handle& predicate, const Body& on_true, const Body& on_false,
                            const py::sequence& operands) {
    return to_list(record_branch(to_tensor(predicate), on_true, on_false, tensors_of(operands)));
  });
}

}  // namespace tp::bind
