#include "bind/python.h"

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "client/registry.h"
#include "probe/probe.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/runtime.h"

namespace py = pybind11;

namespace tp::bind {
namespace {

PyObject* g_log = nullptr;  // owned for the process

std::string directory_of(const char* module) {
  std::string file = py::str(py::module_::import(module).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

void* release_gil() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}
void acquire_gil(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

void log_to_python(int level, std::string_view text) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  if (!g_log) return;
  try {
    py::handle sink(g_log);
    sink(level, std::string(text));
  } catch (py::error_already_set& e) {
    e.discard_as_unraisable("torch_pjrt log");
  }
}

// An exception type of PyTorch's own; the module holds it.
PyObject* torch_type(const char* name) { return py::module_::import("torch._C").attr(name).ptr(); }

// PJRT_DEVICE was set after the import: look for its plugin now.
void discover_plugins() {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  try {
    py::module_ plugins = py::module_::import("torch_pjrt.plugins");
    plugins.attr("register")(plugins.attr("find")());
  } catch (py::error_already_set& e) {
    e.discard_as_unraisable("torch_pjrt.plugins");
  }
}

PyObject* python_type(Code c) {
  switch (c) {
    case Code::kIndex:
      return PyExc_IndexError;
    case Code::kType:
      return PyExc_TypeError;
    case Code::kValue:
      return PyExc_ValueError;
    case Code::kNotImplemented:
      return PyExc_NotImplementedError;
    case Code::kOutOfMemory:
      return torch_type("OutOfMemoryError");
    case Code::kLinAlg:
      return torch_type("_LinAlgError");
    case Code::kRuntime:
    case Code::kInternal:
      break;
  }
  return PyExc_RuntimeError;
}

void translate(std::exception_ptr p) {
  try {
    std::rethrow_exception(p);
  } catch (const Error& e) {
    PyErr_SetString(python_type(e.code()), e.what());
  } catch (const c10::IndexError& e) {
    PyErr_SetString(PyExc_IndexError, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    PyErr_SetString(PyExc_ValueError, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    PyErr_SetString(PyExc_TypeError, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    PyErr_SetString(PyExc_NotImplementedError, e.what_without_backtrace());
  } catch (const c10::LinAlgError& e) {
    PyErr_SetString(torch_type("_LinAlgError"), e.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& e) {
    PyErr_SetString(torch_type("OutOfMemoryError"), e.what_without_backtrace());
  } catch (const c10::Error& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  }
}

}  // namespace

void install_python_hooks(const std::string& package_directory) {
  torch_room::add_library_directory(directory_of("torch"));
  torch_room::add_library_directory(package_directory);
  client::set_discovery(&discover_plugins);
  torch_room::GilRelease::set_provider(&release_gil, &acquire_gil);
}

void register_exceptions() { py::register_exception_translator(&translate); }

void set_log(py::object f) {
  Py_XDECREF(g_log);
  g_log = f.is_none() ? nullptr : f.release().ptr();
  probe::set_sink(g_log ? &log_to_python : nullptr);
}

}  // namespace tp::bind
