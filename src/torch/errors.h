// Where the core's Error becomes the exception that eager raises, with the op, its arguments and
// the user's line. Any thread; takes the GIL only on the way out with an error.
#pragma once
#include <c10/util/Exception.h>

#include <string>
#include <type_traits>

#include "base/error.h"
#include "torch/eager.h"

namespace tp::torch_room {

// The user's Python line of the calling thread ("train.py:41 in step"; for a backward op that of
// its forward op; of a library's line also who called it), empty where there is none.
std::string user_frame();

// Throws the c10 exception whose Python type matches e.code().
[[noreturn]] void rethrow(const Error& e, const std::string& context);

// Gives f()'s result; turns Error into its c10 exception with `context()`.
template <class F, class C>
decltype(auto) converting(F&& f, C&& context) {
  try {
    return f();
  } catch (const Error& e) {
    rethrow(e, context());
  }
}

// Runs f, an op (see OpScope); turns Error into its c10 exception and adds `context()` (op and
// operands) and the user's line to both.
template <class F, class C>
decltype(auto) guarded(F&& f, C&& context) {
  try {
    OpScope op;
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      op.end();
      return;
    } else {
      decltype(auto) result = f();
      op.end();
      return result;
    }
  } catch (const Error& e) {
    rethrow(e, context());
  } catch (c10::Error& e) {
    // Two contexts: c10 prints a single one inside the first line, which has to stand alone.
    std::string where = user_frame();
    e.add_context("in " + context());
    e.add_context(where.empty() ? "on device xla" : "called at " + where);
    throw;
  }
}

}  // namespace tp::torch_room
