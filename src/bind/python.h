// What the core and the torch room need from a running Python: the user's line, the GIL, the log sink, and
// exception types. Installed once, when the module loads.
#pragma once
#include <pybind11/pybind11.h>

namespace tp::bind {

void install_python_hooks();
void register_exceptions();
// f(level, text), or None for stderr. Messages come from any thread; the GIL is taken for the call.
void set_log(pybind11::object f);

}  // namespace tp::bind
