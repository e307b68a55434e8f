// Views and what a tensor's storage needs: reading and writing a strided view of a root value,
// casts, expand and resize_. Not PyTorch's own view ops: the torch side keeps (size, stride,
// offset) as eager does and records these rows. Any thread.
#include "base/error.h"
#include "base/text.h"
#include "ops/core/families.h"
#include "ops/view/manual_collective.h"
#include "ops/view/strided_view.h"
#include "ops/view/window.h"

namespace tp::ops {
namespace {

ViewSpec spec_of(const Args& a, Type root) {
  return {.base_stride = a.ints("base_stride"),
          .size = a.ints("size"),
          .stride = a.ints("stride"),
          .offset = a.i_or("storage_offset", 0),
          .dtype = a.dtype_or("dtype", root.dtype())};
}

void view_type(const Args& a, std::vector<Type>& out) {
  Type root = a.type("self");
  ViewSpec spec = spec_of(a, root);
  check_view(spec, root);
  out.push_back(ir::make_type(spec.dtype, spec.size));
}
void view_lower(Lowering& l, std::vector<V>& out) {
  V root = l.in("self");
  out.push_back(read_view(l.builder(), root, spec_of(l, root.type), l.inputs()));
}
template <ViewUse use>
void view_split(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values) {
  Type root = a.type("self");
  for (int64_t start : view_starts(spec_of(a, root), root, use, structure))
    values.push_back({false, start});
}

void view_scatter_type(const Args& a, std::vector<Type>& out) {
  Type root = a.type("self");
  ViewSpec spec = spec_of(a, root);
  check_view(spec, root);
  check(a.type("src") == ir::make_type(spec.dtype, spec.size),
        "what is written through a view has the view's type");
  out.push_back(root);
}
void view_scatter_lower(Lowering& l, std::vector<V>& out) {
  V root = l.in("self");
  out.push_back(write_view(l.builder(), root, l.in("src"), spec_of(l, root.type), l.inputs()));
}

void cast_type(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  out.push_back(t.with(a.dtype_or("dtype", t.dtype())));
}

// Eager goes to two-byte floats by way of float32, which rounds twice.
void cast_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V v = l.in("self");
  DType t = l.out().dtype();
  if (v.dtype() != t && ir::is_small_float(t)) v = b.convert(v, DType::kF32);
  out.push_back(b.convert(v, t));
}

void expand_type(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  out.push_back(t.with(expanded(t.dims(), a.ints("size"), t.text())));
}
void expand_lower(Lowering& l, std::vector<V>& out) {
  out.push_back(l.builder().broadcast_to(l.in("self"), l.out().dims()));
}

// The value itself: the node's sharding says where it is to be (ir/node.h).
void same_type(const Args& a, std::vector<Type>& out) { out.push_back(a.type("self")); }
void same_lower(Lowering& l, std::vector<V>& out) { out.push_back(l.in("self")); }

// The values themselves, none before all: what is computed of one waits for the others.
void barrier_type(const Args& a, std::vector<Type>& out) { out = a.types("tensors"); }
void barrier_lower(Lowering& l, std::vector<V>& out) {
  out = l.builder().ops("stablehlo.optimization_barrier", l.list("tensors"), l.node().types());
}

void resize_type(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("self").with(IntList{a.i("numel")}));
}
// Memory keeps its order; what is new reads as zero (eager: uninitialised).
void resize_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V v = flat_memory(b, l.in("self"), l.ints("base_stride"));
  int64_t have = v.dim(0), want = l.out().dim(0);
  if (want < have) {
    out.push_back(b.slice_dim(v, 0, 0, want));
    return;
  }
  V zero = want > have ? b.zeros(ir::scalar_type(v.dtype())) : V{};
  out.push_back(want > have ? b.pad(v, zero, IntList{0}, IntList{want - have}, IntList{0}) : v);
}

}  // namespace

Family view() {
  static const Row kRows[] = {
      {.name = "torch_pjrt::view",
       .type = view_type,
       .lower = view_lower,
       .general = "storage_offset",
       .split = view_split<ViewUse::kRead>,
       .recomputed = true},
      {.name = "torch_pjrt::view_scatter",
       .type = view_scatter_type,
       .lower = view_scatter_lower,
       .general = "storage_offset",
       .split = view_split<ViewUse::kWrite>},
      {.name = "torch_pjrt::cast",
       .type = cast_type,
       .lower = cast_lower,
       .layout = Layout::kCopyOfFirst,
       .recomputed = true},
      {.name = "torch_pjrt::expand",
       .type = expand_type,
       .lower = expand_lower,
       .recomputed = true},
      {.name = "torch_pjrt::sharding",
       .type = same_type,
       .lower = same_lower,
       .layout = Layout::kCopyOfFirst},
      {.name = "torch_pjrt::optimization_barrier", .type = barrier_type, .lower = barrier_lower},
      {.name = "torch_pjrt::manual_collective",
       .type = manual_collective_type,
       .lower = manual_collective_lower},
      {.name = "torch_pjrt::resize", .type = resize_type, .lower = resize_lower},
  };
  return kRows;
}

}  // namespace tp::ops
