// A root's memory as elements of another type, and back: view.dtype, view_as_real, view_as_complex.
// Any thread, one Builder each.
#include <numeric>

#include "base/error.h"
#include "ops/view/strided_view.h"

namespace tp::ops {
namespace {

// Complex elements are pairs of reals and bool a byte, so that every reinterpretation is one of
// real widths.

DType byte_type(DType t) { return t == DType::kPred ? DType::kU8 : ir::real_dtype(t); }

// v's last-dim elements as reals or bytes of memory: complex [.., n] -> [.., 2n].
V expose(Builder& b, V v) {
  if (v.dtype() == DType::kPred) return b.convert(v, DType::kU8);
  if (!ir::is_complex(v.dtype())) return v;
  Type part = v.type.with(ir::real_dtype(v.dtype()));
  IntList pair(v.dims().begin(), v.dims().end());
  pair.push_back(1);
  V parts[] = {b.reshape(b.op("stablehlo.real", {v}, part), pair),
               b.reshape(b.op("stablehlo.imag", {v}, part), pair)};
  return b.concat(parts, static_cast<int64_t>(pair.size()) - 1);
}

// The flat elements of v, whose type is byte_type(t), as elements of t.
V conceal(Builder& b, V v, DType t) {
  if (!ir::is_complex(t)) return b.convert(v, t);
  int64_t last = v.rank() - 1;
  IntList dims(v.dims().begin(), v.dims().end() - 1);
  V re = b.reshape(b.slice_dim(v, last, 0, 1), dims),
    im = b.reshape(b.slice_dim(v, last, 1, 2), dims);
  return b.op("stablehlo.complex", {re, im}, re.type.with(t));
}

// Splits the last dim into elements of `factor` units: [.., n] -> [.., n / factor, factor].
V split_last(Builder& b, V v, int64_t factor) {
  IntList dims(v.dims().begin(), v.dims().end());
  check(!dims.empty() && dims.back() % factor == 0,
        "memory is cut to whole elements of the view's type");
  if (dims.back() != factor) {
    dims.back() /= factor;
    dims.push_back(factor);
  }
  return b.reshape(v, dims);
}

// Row-major memory of v seen as elements of t. The last dim takes the change of width; the memory's
// size is a multiple of t's.
V reinterpret(Builder& b, V v, DType t) {
  if (v.dtype() == t) return v;
  v = expose(b, v);
  DType unit = byte_type(t);
  int from = ir::dtype_size(v.dtype()), to = ir::dtype_size(unit);
  IntList dims(v.dims().begin(), v.dims().end());
  if (from > to) {
    dims.push_back(from / to);
  } else if (from < to) {
    v = split_last(b, v, to / from);
    dims.assign(v.dims().begin(), v.dims().end() - 1);
  }
  v = b.bitcast(v, ir::make_type(unit, dims));
  if (ir::is_complex(t)) v = split_last(b, v, 2);
  return conceal(b, v, t);
}

// Whether reinterpret can work on the last of `dims`, or needs the memory flat.
bool last_fits(Ints dims, DType from, DType to) {
  int64_t bytes = (dims.empty() ? 1 : dims.back()) * ir::dtype_size(from);
  return !dims.empty() && bytes % ir::dtype_size(to) == 0;
}

}  // namespace

V as_memory(Builder& b, V root, const IntList& order, DType t) {
  V v = b.transpose(root, order);
  if (v.dtype() == t) return v;
  if (!last_fits(v.dims(), v.dtype(), t)) {
    int64_t n = v.type.numel(), wide = ir::dtype_size(t), narrow = ir::dtype_size(v.dtype());
    v = b.reshape(v, IntList{n});
    if (narrow < wide) v = b.slice_dim(v, 0, 0, n * narrow / wide * wide / narrow);
  }
  return reinterpret(b, v, t);
}

V from_memory(Builder& b, V v, V root, const IntList& order) {
  DType t = root.dtype();
  IntList dims;
  for (int64_t d : order) dims.push_back(root.dim(static_cast<size_t>(d)));
  if (v.dtype() != t) {
    if (!last_fits(v.dims(), v.dtype(), t)) v = b.reshape(v, IntList{v.type.numel()});
    v = reinterpret(b, v, t);
    int64_t n = v.type.numel(), all = root.type.numel();
    if (n < all) {
      V old = b.reshape(b.transpose(root, order), IntList{all});
      V parts[] = {b.reshape(v, IntList{n}), b.slice_dim(old, 0, n, all)};
      v = b.concat(parts, 0);
    }
  }
  IntList back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return b.transpose(b.reshape(v, dims), back);
}

}  // namespace tp::ops
