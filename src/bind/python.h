// What the core and the torch room need from a running Python: the user's line, the GIL, the log
// sink, and exception types. Installed once, when the module loads.
#pragma once
#include <pybind11/pybind11.h>

#include <string>

namespace tp::bind {

// `package_directory`: where torch_pjrt lies, with a slash at the end.
void install_python_hooks(const std::string& package_directory);
void register_exceptions();
// What happened and why (explain.cpp).
void define_explain(pybind11::module_& m);
// Process groups of device xla (distributed.cpp).
void define_distributed(pybind11::module_& m);
// Python's `atexit`: waits up to five seconds for work in flight. From then on no thread of ours
// asks for the GIL, and what still runs neither keeps the process nor crashes it.
void prepare_exit();
// f(level, text), or None for stderr. Messages come from any thread; the GIL is taken for the call.
void set_log(pybind11::object f);

}  // namespace tp::bind
