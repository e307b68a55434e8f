// The writing half of the index family. Of equal indices the last one stays, as in eager's loop on
// the CPU; indices out of range are dropped (they cannot raise inside a program). Any thread.
#include "ops/index/scatter.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"

namespace tp::ops {
namespace {

// What the scatter ops have in common: self and index of rank >= 1, index wrapped.
struct Target {
  V self, index;
  int64_t dim;
};

Target target(Lowering& l) {
  Builder& b = l.builder();
  Target t{at_least_1d(b, l.in("self")), at_least_1d(b, l.in("index")), 0};
  t.dim = l.dim("dim", t.self.rank());
  t.index = wrap_index(b, t.index, t.self.dim(static_cast<size_t>(t.dim)));
  return t;
}

// src's leading part of the index's shape.
V source(Lowering& l, const Target& t, std::string_view name = "src") {
  Builder& b = l.builder();
  V src = at_least_1d(b, l.in(name));
  IntList start(src.dims().size(), 0), step(src.dims().size(), 1);
  return t.index.type.numel() == 0 ? src : b.slice(src, start, t.index.dims(), step);
}

V value_of(Lowering& l, const Target& t) {
  return l.number("value", t.self.type.with(t.index.dims()));
}

void finish(Lowering& l, V v, std::vector<V>& out) {
  out.push_back(l.builder().reshape(v, l.out().dims()));
}

Combine combine_of(std::string_view reduce) {
  if (reduce == "add" || reduce == "sum" || reduce == "mean") return Combine::kAdd;
  if (reduce == "multiply" || reduce == "prod") return Combine::kMul;
  if (reduce == "amax") return Combine::kMax;
  if (reduce == "amin") return Combine::kMin;
  fail(Code::kRuntime,
       "reduce argument must be either sum, prod, mean, amax or amin, got " + std::string(reduce));
}

V identity_of(Builder& b, Combine how, Type t) {
  switch (how) {
    case Combine::kMul:
      return b.ones(t);
    case Combine::kMax:
      return b.min_value(t);
    case Combine::kMin:
      return b.max_value(t);
    default:
      return b.zeros(t);
  }
}

// sum / count, as eager's mean does it: integers round down.
V divide_mean(Builder& b, V sum, V count) {
  count = b.max(count, b.ones(count.type));
  if (!ir::is_int(sum.dtype())) return b.div(sum, count);
  V quotient = b.div(sum, count);
  V inexact = b.compare(b.mul(quotient, count), sum, hlo::Cmp::kNe);
  V negative = b.compare(sum, b.zeros(sum.type), hlo::Cmp::kLt);
  return b.sub(quotient, b.convert(b.and_(inexact, negative), sum.dtype()));
}

using Write = std::function<V(V onto, V src, Combine how)>;

// The reducing scatters. Without self, the places written start from the identity.
V reduce_into(Builder& b, V self, V src, std::string_view reduce, bool include_self,
              const Write& write) {
  Combine how = combine_of(reduce);
  DType t = self.dtype();
  if (ir::is_small_float(t)) {  // one rounding at the end, as eager's opmath
    self = b.convert(self, DType::kF32);
    src = b.convert(src, DType::kF32);
  }
  V base = include_self ? self : write(self, identity_of(b, how, src.type), Combine::kSet);
  V result = write(base, src, how);
  if (reduce == "mean") {
    V start = include_self ? b.ones(self.type) : b.zeros(self.type);
    result = divide_mean(b, result, write(start, b.ones(src.type), Combine::kAdd));
  }
  return b.convert(result, t);
}

}  // namespace

void scatter_src_lower(Lowering& l, std::vector<V>& out) {
  Target t = target(l);
  finish(l, scatter_along(l.builder(), t.self, t.index, source(l, t), t.dim, Combine::kSet), out);
}
void scatter_value_lower(Lowering& l, std::vector<V>& out) {
  Target t = target(l);
  finish(l, scatter_along(l.builder(), t.self, t.index, value_of(l, t), t.dim, Combine::kSet), out);
}
void scatter_reduce_lower(Lowering& l, std::vector<V>& out) {
  Target t = target(l);
  Combine how = combine_of(l.text_or("reduce", "add"));
  finish(l, scatter_along(l.builder(), t.self, t.index, source(l, t), t.dim, how), out);
}
void scatter_value_reduce_lower(Lowering& l, std::vector<V>& out) {
  Target t = target(l);
  Combine how = combine_of(l.text_or("reduce", "add"));
  finish(l, scatter_along(l.builder(), t.self, t.index, value_of(l, t), t.dim, how), out);
}
void scatter_add_lower(Lowering& l, std::vector<V>& out) {
  Target t = target(l);
  finish(l, scatter_along(l.builder(), t.self, t.index, source(l, t), t.dim, Combine::kAdd), out);
}

void scatter_reduce_two_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Target t = target(l);
  if (t.index.type.numel() == 0) return out.push_back(l.in("self"));
  Write write = [&](V onto, V src, Combine how) {
    return scatter_along(b, onto, t.index, src, t.dim, how);
  };
  finish(l,
         reduce_into(b, t.self, source(l, t), l.text_or("reduce", "sum"),
                     l.b_or("include_self", true), write),
         out);
}

// --- a list of positions along one dim

void index_add_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Target t = target(l);
  V src = at_least_1d(b, l.in("source"));
  if (l.has("alpha")) src = b.mul(src, l.number("alpha", src.type));
  finish(l, scatter_list(b, t.self, t.index, src, t.dim, Combine::kAdd), out);
}
void index_copy_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Target t = target(l);
  V src = l.in("source");
  if (src.rank() == 0) src = b.reshape(src, IntList(static_cast<size_t>(t.self.rank()), 1));
  finish(l, scatter_list(b, t.self, t.index, src, t.dim, Combine::kSet), out);
}
void index_reduce_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Target t = target(l);
  V src = at_least_1d(b, l.in("source"));
  if (src.type.numel() == 0) return out.push_back(l.in("self"));
  Write write = [&](V onto, V from, Combine how) {
    return scatter_list(b, onto, t.index, from, t.dim, how);
  };
  finish(
      l,
      reduce_into(b, t.self, src, l.text_or("reduce", "prod"), l.b_or("include_self", true), write),
      out);
}

void index_fill_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self"), index = a.type("index");
  a.dim("dim", self.rank());
  if (index.dtype() != DType::kS64)
    fail(Code::kIndex, "index_fill_(): Expected dtype int64 for index.");
  if (index.rank() > 1) fail(Code::kRuntime, "Index has to be a vector/scalar");
  if (auto value = a.opt_type("value")) {
    if (value->rank() != 0)
      fail(Code::kRuntime,
           cat("index_fill_ only supports a 0-dimensional value tensor, but got tensor "
               "with ",
               value->rank(), " dimension(s)."));
    if (ir::is_complex(value->dtype()) && !ir::is_complex(self.dtype()))
      fail(Code::kRuntime,
           "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  }
  out.push_back(self);
}
// A mask of the filled positions instead of a scatter: it fuses, and equal indices do not matter.
void index_fill_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Target t = target(l);
  int64_t n = t.self.dim(static_cast<size_t>(t.dim));
  V hit = b.zeros(ir::make_type(DType::kPred, IntList{n}));
  V yes = b.ones(ir::make_type(DType::kPred, t.index.dims()));
  hit = scatter_list(b, hit, t.index, yes, 0, Combine::kSet);
  V mask = along(b, hit, t.self.dims(), t.dim);
  finish(l, b.select(mask, l.number("value", t.self.type), t.self), out);
}

// --- flat positions

void put_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self"), index = a.type("index"), source = a.type("source");
  if (index.dtype() != DType::kS64)
    fail(Code::kRuntime, cat("put_(): Expected a long tensor for index, but got ",
                             eager_name(index.dtype()).scalar));
  if (self.dtype() != source.dtype())
    fail(Code::kRuntime,
         cat("put_(): self and source expected to have the same dtype, but got self.dtype "
             "= ",
             eager_name(self.dtype()).scalar,
             " and source.dtype = ", eager_name(source.dtype()).scalar));
  if (source.numel() != index.numel())
    fail(Code::kIndex,
         cat("put_(): Expected source and index to have the same number of elements, but got "
             "source.numel() = ",
             source.numel(), ", index.numel() = ", index.numel()));
  if (self.numel() == 0 && index.numel() != 0)
    fail(Code::kIndex, "put_(): Tried to put elements into an empty tensor");
  out.push_back(self);
}
void put_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = as_1d(b, l.in("self"));
  V index = wrap_index(b, as_1d(b, l.in("index")), self.dim(0));
  Combine how = l.b_or("accumulate", false) ? Combine::kAdd : Combine::kSet;
  finish(l, scatter_list(b, self, index, as_1d(b, l.in("source")), 0, how), out);
}

// --- masks

void masked_scatter_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self"), mask = a.type("mask"), source = a.type("source");
  if (mask.dtype() != DType::kPred)
    fail(Code::kRuntime,
         cat("masked_scatter_ only supports boolean masks, but got mask with dtype ",
             eager_name(mask.dtype()).scalar));
  if (self.dtype() != source.dtype())
    fail(Code::kRuntime,
         cat("masked_scatter: expected self and source to have same dtypes but got",
             eager_name(self.dtype()).scalar, " and ", eager_name(source.dtype()).scalar));
  out.push_back(self.with(broadcast_dims(mask.dims(), self.dims())));
}
void masked_scatter_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Ints dims = l.out().dims();
  V self = b.broadcast_to(l.in("self"), dims), mask = b.broadcast_to(l.in("mask"), dims);
  V source = as_1d(b, l.in("source"));
  if (l.out().numel() == 0 || source.dim(0) == 0) return out.push_back(self);
  V got = take_along_list(b, source, mask_ranks(b, mask), 0);
  out.push_back(b.select(mask, b.reshape(got, dims), self));
}

void masked_scatter_backward_type(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("grad_output").with(a.ints("sizes")));
}
void masked_scatter_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = l.in("grad_output");
  V mask = as_1d(b, b.broadcast_to(l.in("mask"), grad.dims()));
  int64_t n = l.out().numel();
  V zeros = b.zeros(grad.type.with(IntList{n}));
  if (n == 0 || grad.type.numel() == 0) return finish(l, zeros, out);
  V rank = mask_ranks(b, mask);
  rank = b.select(mask, rank, b.constant_int(n, rank.type));
  finish(l, scatter_list(b, zeros, rank, as_1d(b, grad), 0, Combine::kSet), out);
}

}  // namespace tp::ops
