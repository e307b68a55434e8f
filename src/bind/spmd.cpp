#include "bind/spmd.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bind/tensors.h"
#include "shard/op_sharding.h"
#include "shard/spelling.h"
#include "torch/runtime.h"
#include "torch/spmd.h"

namespace py = pybind11;
using namespace tp::torch_room;

namespace tp::bind {
namespace {

using Axes = std::vector<std::pair<std::string, int64_t>>;

struct Handle {
  shard::Ref ref;
};

shard::Mesh mesh_of(std::vector<int> devices, const Axes& axes) {
  shard::Mesh mesh{std::move(devices), {}};
  for (const auto& [name, size] : axes) mesh.axes.push_back({name, size});
  return mesh;
}

std::vector<int64_t> to_list(std::span<const int64_t> v) { return {v.begin(), v.end()}; }

py::list boxes(const Handle& h, const std::vector<int64_t>& dims) {
  py::list out;
  for (size_t p = 0; p < h.ref->devices.size(); ++p) {
    shard::Box b = shard::box_of(*h.ref, dims, p);
    out.append(py::make_tuple(h.ref->devices[p], to_list(b.start), to_list(b.size)));
  }
  return out;
}

// The module's lines: the meshes, and the attribute of this sharding alone.
py::tuple spelled(const Handle& h, size_t rank, bool shardy) {
  shard::Spelling s(shardy ? shard::Form::kShardy : shard::Form::kGspmd, h.ref->devices,
                    std::span(&h.ref, 1));
  return py::make_tuple(s.top(), s.attribute(h.ref.get(), rank));
}

py::list shards(const py::handle& t, int only) {
  py::list out;
  for (Shard& s : local_shards(to_tensor(t), only))
    out.append(py::make_tuple(s.device, to_list(s.box.start), to_list(s.box.size), s.replica,
                              from_tensor(s.data)));
  return out;
}

py::tuple where(const py::handle& t) {
  Whereabouts w = sharding_of(to_tensor(t));
  return py::make_tuple(w.sharding ? py::cast(Handle{w.sharding}) : py::none(), w.real);
}

std::optional<Handle> same_over(const Handle& h, std::vector<int> devices, const Axes& axes,
                                size_t rank) {
  shard::Mesh mesh = mesh_of(std::move(devices), axes);
  shard::Spec spec;
  if (!shard::express(h.ref->tiles, mesh, rank, spec)) return std::nullopt;
  return Handle{shard::make_sharding(mesh, spec)};
}

}  // namespace

py::object sharding_object(const shard::Ref& s) { return py::cast(Handle{s}); }

shard::Ref sharding_ref(const py::handle& h) { return h.cast<Handle>().ref; }

namespace {

void add_sharding(py::module_& m) {
  py::class_<Handle>(m, "Sharding")
      .def_property_readonly("devices", [](const Handle& h) { return h.ref->devices; })
      .def_property_readonly("counts", [](const Handle& h) { return h.ref->tiles.counts; })
      .def_property_readonly("order", [](const Handle& h) { return h.ref->tiles.order; })
      .def_property_readonly("replicas", [](const Handle& h) { return h.ref->tiles.replicas; })
      .def_property_readonly("spec", [](const Handle& h) { return h.ref->spec; })
      .def_property_readonly("mesh_devices", [](const Handle& h) { return h.ref->mesh.devices; })
      .def_property_readonly("axes",
                             [](const Handle& h) {
                               Axes axes;
                               for (const shard::Axis& a : h.ref->mesh.axes)
                                 axes.emplace_back(a.name, a.size);
                               return axes;
                             })
      .def_property_readonly("gspmd", [](const Handle& h) { return h.ref->gspmd; })
      .def_property_readonly("text", [](const Handle& h) { return h.ref->text; })
      .def_property_readonly("replicated", [](const Handle& h) { return h.ref->replicated(); })
      .def("same", [](const Handle& a, const Handle& b) { return shard::same(*a.ref, *b.ref); })
      .def("shard_shape",
           [](const Handle& h, const std::vector<int64_t>& dims) {
             return to_list(shard::shard_dims(*h.ref, dims));
           })
      .def("boxes", &boxes)
      .def("spelled", &spelled)
      .def("over", &same_over);
  m.def("make_sharding", [](std::vector<int> devices, const Axes& axes, const shard::Spec& spec) {
    return Handle{shard::make_sharding(mesh_of(std::move(devices), axes), spec)};
  });
  m.def("make_open_sharding", [](std::vector<int> devices, const Axes& axes,
                                 const shard::Spec& spec, const std::vector<std::string>& whole) {
    return Handle{shard::make_open(mesh_of(std::move(devices), axes), spec, whole)};
  });
  m.def("check_mesh", [](std::vector<int> devices, const Axes& axes) {
    shard::check_mesh(mesh_of(std::move(devices), axes));
  });
  m.def("read_op_sharding", [](const py::bytes& bytes, size_t partitions) {
    shard::Tiles t = shard::read_op_sharding(std::string_view(bytes), partitions);
    return py::make_tuple(t.counts, t.order, t.replicas);
  });
}

py::list barrier(const std::vector<py::object>& given) {
  std::vector<at::Tensor> tensors;
  for (const py::object& t : given) tensors.push_back(to_tensor(t));
  py::list out;
  for (at::Tensor& t : optimization_barrier(tensors)) out.append(from_tensor(std::move(t)));
  return out;
}

}  // namespace

void add_spmd(py::module_& m) {
  add_sharding(m);
  m.def("mark_sharding",
        [](const py::handle& t, const Handle& h) { mark_sharding(to_tensor(t), h.ref); });
  m.def("constrained", [](const py::handle& t, const Handle& h) {
    return from_tensor(constrained(to_tensor(t), h.ref));
  });
  m.def("on_mesh", [](const py::handle& t, const Handle& h) {
    return from_tensor(on_mesh(to_tensor(t), h.ref));
  });
  m.def("optimization_barrier", &barrier);
  m.def(
      "manual_collective",
      [](const py::handle& t, std::string kind, std::vector<int64_t> shape,
         std::vector<int64_t> parameters, std::vector<int64_t> groups, int64_t group_size,
         bool replicas) {
        ManualCollective c{std::move(kind),   std::move(shape), std::move(parameters),
                           std::move(groups), group_size,       replicas};
        return from_tensor(manual_collective(to_tensor(t), c));
      },
      py::arg("t"), py::arg("kind"), py::arg("shape"), py::arg("parameters"), py::arg("groups"),
      py::arg("group_size"), py::arg("replicas") = false);
  m.def("sharding_of", &where);
  m.def("any_sharding", &shard::any);
  m.def("local_shards", &shards, py::arg("t"), py::arg("only") = -1);
  m.def("put_shards", [](const py::handle& t, const std::vector<at::Tensor>& parts) {
    put_shards(to_tensor(t), parts);
  });
}

}  // namespace tp::bind
