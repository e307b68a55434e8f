// Entry points of this room's registrations; each adds kernels to the given library. Called once,
// at load.
#pragma once
#include <torch/library.h>

namespace tp::torch_room {

void register_rows(torch::Library& m);       // every row of the op table, in all its forms
void register_factories(torch::Library& m);  // empty, fill, copy, item, resize_
void register_storages(torch::Library& m);   // set_
void register_views(torch::Library& m);
void register_composites(torch::Library& m);  // for XLA and for AutogradXLA
void register_all();

// Adds the typed kernel of a hot overload (functional or in-place); null where it has none.
struct OpInfo;
using TypedAdd = void (*)(torch::Library& m, const char* name, const OpInfo* info);
TypedAdd typed_kernel(std::string_view overload);
// Rows that could not be registered, with the reason: a mistake in the table. Empty in a sound
// build.
const std::vector<std::string>& table_errors();
// The overloads that rows registered, in all their forms: "aten::add_.Tensor".
const std::vector<std::string>& recorded_overloads();
// Is a number among the arguments of some row called so?
bool is_number_argument(std::string_view name);

// A copy of self that lies in memory as self does, what lies around it included, with src written
// through a view of it: elements that share memory change together.
at::Tensor scatter_in_place(const at::Tensor& self, const at::Tensor& src,
                            c10::function_ref<at::Tensor(const at::Tensor&)> view);

// The calling thread's current device index; exchange gives the old one.
int current_device();
int exchange_device(int index);

// Spans for torch.profiler (profile.cpp).
void install_profiler_spans();

void cpu_fallback(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);

}  // namespace tp::torch_room
