#include "bind/python.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pythoncapi_compat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "client/registry.h"
#include "probe/probe.h"
#include "torch/autograd_threads.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/runtime.h"

namespace py = pybind11;

namespace tp::bind {
namespace {

PyObject* g_log = nullptr;  // owned for the process
unsigned long g_main_thread = 0;

std::string directory_of(const char* module) {
  std::string file = py::str(py::module_::import(module).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

// Python ends threads that ask for the GIL while it shuts down by unwinding them, which C++ frames
// do not survive. Ours wait for the process's end instead, as Python itself has it from 3.14 on.
bool is_finalizing() { return !Py_IsInitialized() || Py_IsFinalizing(); }
[[noreturn]] void rest() {
  for (;;) pause();
}

void* release_gil() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}
void acquire_gil(void* state) {
  if (is_finalizing() && PyThread_get_thread_ident() != g_main_thread) rest();
  try {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state));
  } catch (abi::__forced_unwind&) {  // the shutdown began while this thread waited
    rest();
  }
}

// Signals are handled in Python's main thread, which must look for them while it waits for us.
bool hears_signals() { return PyThread_get_thread_ident() == g_main_thread && !is_finalizing(); }
void look_for_signals() {
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  python_error e;  // KeyboardInterrupt, or what the user's handler raised
  e.persist();
  throw e;
}

// Work in flight would run into what exit() destroys.
void leave_quickly(int status, void*) {
  if (!torch_room::busy()) return;
  std::fflush(nullptr);
  _exit(status);
}

void log_with_gil(int level, std::string_view text) {
  py::gil_scoped_acquire gil;
  if (!g_log) return;
  try {
    py::handle sink(g_log);
    sink(level, std::string(text));
  } catch (py::error_already_set& e) {
    e.discard_as_unraisable("torch_pjrt log");
  }
}
void log_to_python(int level, std::string_view text) {
  if (is_finalizing()) return;
  try {
    log_with_gil(level, text);
  } catch (abi::__forced_unwind&) {
    rest();
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
  } catch (python_error& e) {
    e.restore();
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
  py::object paths = py::module_::import("sysconfig").attr("get_paths")();
  for (const char* name : {"stdlib", "platstdlib", "purelib", "platlib"})
    torch_room::add_others_directory(paths[name].cast<std::string>() + "/");
  client::set_discovery(&discover_plugins);
  torch_room::GilRelease::set_provider(&release_gil, &acquire_gil);
  torch_room::hold_locks_over_forks();
  auto main_thread = py::module_::import("threading").attr("main_thread")();
  g_main_thread = main_thread.attr("ident").cast<unsigned long>();
  set_interrupt_hooks(&hears_signals, &look_for_signals);
}

void register_exceptions() { py::register_local_exception_translator(&translate); }

void set_log(py::object f) {
  Py_XDECREF(g_log);
  g_log = f.is_none() ? nullptr : f.release().ptr();
  probe::set_sink(g_log ? &log_to_python : nullptr);
}

void prepare_exit() {
  if (!client::forked()) {  // a child has none of the threads
    // Plugins register destructors of what they make at first use, also while we shut down: work
    // that is going to end soon gets the time for it, and so do autograd's threads. Ctrl-C cuts it
    // short.
    torch_room::GilRelease no_gil;
    constexpr useconds_t kTick = 5000;
    constexpr int kTicks = 1000;
    auto settled = [rest = torch_room::AutogradRest()] {
      return rest.reached() && !torch_room::busy();
    };
    try {
      for (int i = 0; i < kTicks && !settled(); ++i, usleep(kTick)) look_for_interrupt();
    } catch (const python_error&) {
    }
  }
  probe::set_sink(nullptr);
  set_interrupt_hooks(nullptr, nullptr);
  // Registered last, so run first: before the plugin's own destructors pull its tables away from
  // threads that still compile or compute.
  on_exit(&leave_quickly, nullptr);
}

}  // namespace tp::bind
