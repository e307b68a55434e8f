// Softmax and log-softmax, forward and backward. Computed in f32 for narrow floats; shifted by the
// row's largest value, so a row of -inf gives NaN as in eager.
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/host/choice.h"

namespace tp::ops {
namespace {

using Red = Builder::Red;

struct Rows {
  Builder& b;
  V x;
  int64_t dim;

  // A reduction along dim, spread over x's shape again.
  V all(V v, Red how) const {
    if (x.rank() == 0) return v;
    IntList dims(x.dims().begin(), x.dims().end());
    dims[static_cast<size_t>(dim)] = 1;
    return b.broadcast_to(b.reshape(b.reduce(v, IntList{dim}, how), dims), x.dims());
  }
};

// half_to_float and autocast: the operand is narrower than the result.
Rows rows(Lowering& l, std::string_view operand) {
  Builder& b = l.builder();
  V x = b.convert(l.in(operand), compute_type(l).dtype());
  return {b, x, l.dim("dim", x.rank())};
}

void softmax(Lowering& l, std::vector<V>& out) {
  Rows r = rows(l, "self");
  if (r.x.type.numel() == 0) return put(l, out, r.x);
  V e = r.b.exp(r.b.sub(r.x, r.all(r.x, Red::kMax)));
  put(l, out, r.b.div(e, r.all(e, Red::kSum)));
}

void log_softmax(Lowering& l, std::vector<V>& out) {
  Rows r = rows(l, "self");
  if (r.x.type.numel() == 0) return put(l, out, r.x);
  V shifted = r.b.sub(r.x, r.all(r.x, Red::kMax));
  put(l, out, r.b.sub(shifted, r.b.log(r.all(r.b.exp(shifted), Red::kSum))));
}

// The gradient arrives in the output's dtype, which may be wider than the input's.
DType backward_dtype(Lowering& l) { return ir::compute_dtype(l.type("grad_output").dtype()); }

void softmax_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V g = b.convert(l.in("grad_output"), backward_dtype(l)), y = b.convert(l.in("output"), g.dtype());
  Rows r{b, g, l.dim("dim", g.rank())};
  put(l, out, b.mul(y, b.sub(g, r.all(b.mul(g, y), Red::kSum))));
}

void log_softmax_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V g = b.convert(l.in("grad_output"), backward_dtype(l)), y = b.convert(l.in("output"), g.dtype());
  Rows r{b, g, l.dim("dim", g.rank())};
  put(l, out, b.sub(g, b.mul(b.exp(y), r.all(g, Red::kSum))));
}

const Row kRows[] = {
    {.name = "aten::_softmax",
     .lower = softmax,
     .kernels = {{"softmax_lastdim_kernel_impl", takes::kFloats | takes::kEmpty}},
     .faster_on_host = faster_on_host::along_a_row},
    {.name = "aten::_log_softmax",
     .lower = log_softmax,
     .kernels = {{"log_softmax_lastdim_kernel_impl", takes::kFloats | takes::kEmpty}},
     .faster_on_host = faster_on_host::along_a_row},
    {.name = "aten::_softmax_backward_data",
     .lower = softmax_backward,
     .kernels = {{"softmax_backward_lastdim_kernel_impl", takes::kFloats}},
     .faster_on_host = faster_on_host::gradient_along_a_row},
    {.name = "aten::_log_softmax_backward_data",
     .lower = log_softmax_backward,
     .kernels = {{"log_softmax_backward_lastdim_kernel_impl", takes::kFloats}},
     .faster_on_host = faster_on_host::gradient_along_a_row},
};

}  // namespace

Family softmax() { return kRows; }

}  // namespace tp::ops
