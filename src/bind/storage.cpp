#include "bind/storage.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>

#include "torch/storage.h"

namespace py = pybind11;
using namespace tp::torch_room;

namespace tp::bind {
namespace {

// PyTorch's own methods look at a storage's address without making it: it is made before them. They
// stay methods of C: torch.compile knows them by their names and would follow a function of Python.
constexpr std::array kNames = {"data_ptr", "const_data_ptr", "untyped_storage"};
PyObject* g_torchs[kNames.size()];

template <size_t kWhich>
PyObject* addressed(PyObject* self, PyObject*) {
  try {
    if (THPVariable_Check(self)) address_of(THPVariable_Unpack(self));
  } catch (const std::exception& e) {  // no addresses are left
    PyErr_SetString(PyExc_RuntimeError, e.what());
    return nullptr;
  }
  return PyObject_CallOneArg(g_torchs[kWhich], self);
}

void give_addresses(const py::object& tensor_class) {
  static PyMethodDef methods[] = {{kNames[0], &addressed<0>, METH_NOARGS, nullptr},
                                  {kNames[1], &addressed<1>, METH_NOARGS, nullptr},
                                  {kNames[2], &addressed<2>, METH_NOARGS, nullptr}};
  auto* type = reinterpret_cast<PyTypeObject*>(tensor_class.ptr());
  for (size_t i = 0; i < kNames.size(); ++i) {
    py::object own = py::getattr(tensor_class, kNames[i], py::none());
    if (own.is_none() || g_torchs[i]) continue;
    g_torchs[i] = own.release().ptr();
    tensor_class.attr(kNames[i]) =
        py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &methods[i]));
  }
}

std::optional<uintptr_t> address(const py::handle& t) {
  if (!THPVariable_Check(t.ptr())) return std::nullopt;
  return address_of(THPVariable_Unpack(t.ptr()));
}

}  // namespace

void add_storage(py::module_& m) {
  m.def("address_of", &address);
  m.def("give_addresses", &give_addresses);
  m.def("storage_allocator", [] { return reinterpret_cast<uintptr_t>(&storage_allocator()); });
}

}  // namespace tp::bind
