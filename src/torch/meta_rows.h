// One entry of the generated table of PyTorch's structured meta functions (tools/gen_meta.py).
#pragma once
#include <torch/library.h>

#include "torch/recorder.h"

namespace tp::torch_room {

// Calls F with arguments popped from the stack and pushes its results.
template <class Schema, Schema* F>
void call_boxed(Stack* stack) {
  using Pointer = c10::CompileTimeFunctionPointer<Schema, F>;
  using Functor = typename c10::impl::WrapFunctionIntoFunctor<Pointer>::type;
  // The wrapper never looks at the operator: PyTorch's own kernels get it from the dispatcher.
  static Functor functor;
  alignas(c10::OperatorHandle) static char nothing[sizeof(c10::OperatorHandle)];
  c10::impl::make_boxed_from_unboxed_functor<Functor, false>::call(
      &functor, *reinterpret_cast<const c10::OperatorHandle*>(nothing), c10::DispatchKeySet(),
      stack);
}

}  // namespace tp::torch_room

#define META_ROW(name, schema, function, kernel) \
  {name, &call_boxed<schema, &function>, Structured::kernel},
