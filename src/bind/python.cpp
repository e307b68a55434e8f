#include "bind/python.h"

#include <c10/util/Exception.h>
#include <frameobject.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "probe/probe.h"
#include "torch/errors.h"
#include "torch/runtime.h"

namespace py = pybind11;

namespace tp::bind {
namespace {

PyObject* g_log = nullptr;  // owned for the process

// Frames of PyTorch's and our own Python are not the user's: files below the two packages'
// directories.
std::string g_packages[2];

bool is_library(const std::string& file) {
  for (const std::string& dir : g_packages)
    if (!dir.empty() && file.starts_with(dir)) return true;
  return file.starts_with("<frozen");
}

std::string directory_of(const char* module) {
  std::string file = py::str(py::module_::import(module).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

std::string frame_text(PyFrameObject* f) {
  auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
  std::string file = py::str(code.attr("co_filename"));
  if (is_library(file)) return {};
  std::string name = py::str(code.attr("co_name"));
  std::string base = file.substr(file.rfind('/') + 1);
  return cat(base, ":", PyFrame_GetLineNumber(f), name == "<module>" ? "" : cat(" in ", name));
}

// The innermost frame of the calling thread that is the user's.
std::string user_frame() {
  if (!Py_IsInitialized()) return {};
  py::gil_scoped_acquire gil;
  PyFrameObject* f = PyThreadState_GetFrame(PyThreadState_Get());
  std::string text;
  while (f && text.empty()) {
    text = frame_text(f);
    PyFrameObject* back = PyFrame_GetBack(f);
    Py_DECREF(f);
    f = back;
  }
  Py_XDECREF(f);
  return text;
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
  } catch (const c10::Error& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  }
}

}  // namespace

void install_python_hooks(const std::string& package_directory) {
  g_packages[0] = directory_of("torch");
  g_packages[1] = package_directory;
  torch_room::set_user_frame_provider(&user_frame);
  torch_room::GilRelease::set_provider(&release_gil, &acquire_gil);
}

void register_exceptions() { py::register_exception_translator(&translate); }

void set_log(py::object f) {
  Py_XDECREF(g_log);
  g_log = f.is_none() ? nullptr : f.release().ptr();
  probe::set_sink(g_log ? &log_to_python : nullptr);
}

}  // namespace tp::bind
