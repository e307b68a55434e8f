// Matrix products. Narrow floats multiply as they are and add up in f32; alpha and beta are
// run-time numbers, and a beta of 0 ignores `self`, NaN included.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

struct Contract {
  IntList batch_a, batch_b, a, b;
};
const Contract kMatMat{{}, {}, {1}, {0}};
const Contract kBatched{{0}, {0}, {2}, {1}};
const Contract kSummedBatch{{}, {}, {0, 2}, {0, 1}};
const Contract kVecVec{{}, {}, {0}, {0}};

// Ops that only move elements of their first operand.
bool moves(const ir::Node& n) {
  return has_word("torch_pjrt::view torch_pjrt::expand aten::clone aten::index_select",
                  n.kind().name);
}

// The half type that a float32 value was lifted from, moved elements or not; else its own.
DType exact_type(ir::Value v) {
  while (moves(*v.node)) v = v.node->operands()[0];
  DType t = v.type().dtype();
  if (std::string_view(v.node->kind().name) != "torch_pjrt::cast" || t != DType::kF32) return t;
  DType from = v.node->operands()[0].type().dtype();
  return from == DType::kF16 || from == DType::kBF16 ? from : t;
}

// Products of halves that were lifted to float32 (attention) are the halves' own, exact in float32.
V product(Lowering& l, std::string_view x, std::string_view y, const Contract& c) {
  Builder& b = l.builder();
  V v = l.in(x), w = l.in(y);
  DType t = exact_type(l.node().operands()[static_cast<size_t>(l.operand(x))]),
        out = compute_type(l).dtype();
  if (t != v.dtype() && t == exact_type(l.node().operands()[static_cast<size_t>(l.operand(y))])) {
    b.set_precision(Builder::Precision::kDefault);
    v = b.convert(v, t);
    w = b.convert(w, t);
  }
  return b.dot(v, w, c.batch_a, c.batch_b, c.a, c.b, out);
}

template <Text x, Text y, const Contract& c>
void multiply(Lowering& l, std::vector<V>& out) {
  put(l, out, product(l, x.text, y.text, c));
}

// Does eager leave the product to BLAS, which does not look at it where alpha is 0? PyTorch's own
// kernels (of other dtypes, of small batches) multiply, and an infinity becomes NaN.
using UsesBlas = bool (*)(const Lowering& l);
bool matrices_use_blas(const Lowering& l) {
  DType t = l.out().dtype();
  return t == DType::kF32 || t == DType::kF64 || ir::is_complex(t);
}
bool vectors_use_blas(const Lowering& l) {
  return matrices_use_blas(l) && !ir::is_complex(l.out().dtype());
}
bool batches_use_blas(const Lowering& l) {
  Type x = l.type("batch1"), y = l.type("batch2");
  return matrices_use_blas(l) && x.dim(1) * x.dim(2) * y.dim(2) >= 400;
}

// beta * self + alpha * p
V accumulate(Lowering& l, V p, bool blas) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V self = l.number("self", t), zero = b.zeros(t);
  if (l.has("beta")) {
    V beta = l.number("beta", t);
    self = b.select(b.compare(beta, zero, Cmp::kEq), zero, b.mul(self, beta));
  }
  if (!l.has("alpha")) return b.add(self, p);
  V alpha = l.number("alpha", t), sum = b.add(self, b.mul(p, alpha));
  return blas ? b.select(b.compare(alpha, zero, Cmp::kEq), self, sum) : sum;
}

template <Text x, Text y, const Contract& c, UsesBlas blas>
void add_multiply(Lowering& l, std::vector<V>& out) {
  put(l, out, accumulate(l, product(l, x.text, y.text, c), blas(l)));
}

void add_multiply_activation(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = accumulate(l, product(l, "mat1", "mat2", kMatMat), matrices_use_blas(l));
  if (!l.b_or("use_gelu", false)) return put(l, out, b.max(x, 0.0));
  V cdf = b.mul(b.add(b.unary("chlo.erf", b.mul(x, 0.70710678118654752440)), 1.0), 0.5);
  put(l, out, b.mul(x, cdf));
}

void vdot(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self"), y = l.in("other");
  if (ir::is_complex(x.dtype())) x = make_complex(b, real_part(b, x), b.neg(imag_part(b, x)));
  put(l, out, b.dot(x, y, {}, {}, IntList{0}, IntList{0}, compute_type(l).dtype()));
}

// --- trilinear: the sum over some dims of three tensors' product ---------------------------------

constexpr const char* kInputs[3][2] = {{"i1", "expand1"}, {"i2", "expand2"}, {"i3", "expand3"}};

IntList expanded_dims(const Args& a, int i) {
  Type t = a.type(kInputs[i][0]);
  IntList dims(t.dims().begin(), t.dims().end());
  for (int64_t d : a.ints(kInputs[i][1])) dims.insert(dims.begin() + d, 1);
  return dims;
}
IntList joint_dims(const Args& a) {
  return broadcast_dims(broadcast_dims(expanded_dims(a, 0), expanded_dims(a, 1)),
                        expanded_dims(a, 2));
}
IntList sorted_sum_dims(const Args& a) {
  IntList d = a.ints("sumdim");
  std::sort(d.begin(), d.end());
  return d;
}

void trilinear(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  IntList dims = joint_dims(l);
  V p;
  for (int i = 0; i < 3; ++i) {
    V x = b.convert(l.in(kInputs[i][0]), compute_type(l).dtype());
    x = b.broadcast_to(b.reshape(x, expanded_dims(l, i)), dims);
    p = p ? b.mul(p, x) : x;
  }
  put(l, out, b.reduce(p, sorted_sum_dims(l), Builder::Red::kSum));
}

// --- types and checks ----------------------------------------------------------------------------

void type_trilinear(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("i1").with(reduced_dims(joint_dims(a), sorted_sum_dims(a), false)));
}

template <Text x, Text y>
void check_batches(const Args& a) {
  DType s = a.type(x.text).dtype(), t = a.type(y.text).dtype();
  if (a.type(x.text).numel() == 0 || a.type(y.text).numel() == 0) return;
  if (s != t && s == DType::kPred) fail(Code::kNotImplemented, not_implemented_for("bmm", s));
  if (s != t) fail(Code::kRuntime, expected_scalar_type(s, t));
}

void check_as_mat2(DType t, DType mat2) {
  if (t != mat2)
    fail(Code::kRuntime, cat("self and mat2 must have the same dtype, but got ",
                             eager_name(t).scalar, " and ", eager_name(mat2).scalar));
}

void type_addbmm(const Args& a, std::vector<Type>& out) {
  Type x = a.type("batch1"), y = a.type("batch2"), self = a.type("self");
  if (x.rank() != 3) fail(Code::kRuntime, "batch1 must be a 3D tensor");
  if (y.rank() != 3) fail(Code::kRuntime, "batch2 must be a 3D tensor");
  if (x.dim(0) != y.dim(0))
    fail(Code::kRuntime, cat("batch1 and batch2 must have same number of batches, got ", x.dim(0),
                             " and ", y.dim(0)));
  if (x.dim(2) != y.dim(1))
    fail(Code::kRuntime, cat("Incompatible matrix sizes for bmm (", x.dim(1), "x", x.dim(2),
                             " and ", y.dim(1), "x", y.dim(2), ")"));
  IntList dims{x.dim(1), y.dim(2)};
  for (int i = 0; i < self.rank() && self.rank() <= 2; ++i) {
    int64_t n = self.dim(static_cast<size_t>(i)), at = 2 - self.rank() + i,
            want = dims[static_cast<size_t>(at)];
    if (n != 1 && n != want)
      fail(Code::kRuntime,
           cat("The expanded size of the tensor (", want, ") must match the existing size (", n,
               ") at non-singleton dimension ", at, ".  Target sizes: ", size_text(dims),
               ".  Tensor sizes: ", size_text(self.dims())));
  }
  check_as_mat2(self.dtype(), y.dtype());
  check_as_mat2(x.dtype(), y.dtype());
  out.push_back(self.with(dims));
}

template <Text second>
void type_dot(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self"), y = a.type(second.text);
  if (x.rank() != 1 || y.rank() != 1)
    fail(Code::kRuntime,
         cat("1D tensors expected, but got ", x.rank(), "D and ", y.rank(), "D tensors"));
  if (x.dtype() != y.dtype())
    fail(Code::kRuntime, cat("dot : expected both vectors to have same dtype, but found ",
                             eager_name(x.dtype()).scalar, " and ", eager_name(y.dtype()).scalar));
  if (x.numel() != y.numel())
    fail(Code::kRuntime,
         cat("inconsistent tensor size, expected tensor ", size_text(x.dims()), " and src ",
             size_text(y.dims()), " to have the same number of elements, but got ", x.numel(),
             " and ", y.numel(), " elements respectively"));
  out.push_back(ir::scalar_type(x.dtype()));
}

void check_matrices(const Args& a, std::string_view x, std::string_view y) {
  DType s = a.type(x).dtype(), t = a.type(y).dtype();
  if (s != t)
    fail(Code::kRuntime, cat("expected m1 and m2 to have the same dtype, but got: ",
                             eager_name(s).cpp, " != ", eager_name(t).cpp));
}
void check_mm(const Args& a) { check_matrices(a, "self", "mat2"); }

// addmm's bias spreads over the product; eager's `expand` says so in these words.
void check_expands(Type self, IntList to) {
  for (int i = 1; i <= self.rank(); ++i) {
    int64_t have = self.dim(self.rank() - i);
    size_t at = to.size() - static_cast<size_t>(i);
    if (have != 1 && have != to[at])
      fail(Code::kRuntime,
           cat("The expanded size of the tensor (", to[at], ") must match the existing size (",
               have, ") at non-singleton dimension ", at, ".  Target sizes: ", size_text(to),
               ".  Tensor sizes: ", size_text(self.dims())));
  }
}

void check_addmm(const Args& a) {
  check_as_mat2(a.type("self").dtype(), a.type("mat2").dtype());
  check_matrices(a, "mat1", "mat2");
  check_expands(a.type("self"), {a.type("mat1").dim(0), a.type("mat2").dim(1)});
}

std::string dot_words(DType want, DType have) {
  return cat("result dtype ", eager_name(have).scalar, " does not match input dtype ",
             eager_name(want).scalar);
}

constexpr Row product(Row r) {
  r.special = Special::kProducts;
  return r;
}

const Row kRows[] = {
    product({.name = "aten::mm",
             .lower = multiply<"self", "mat2", kMatMat>,
             .check = check_mm,
             .kernels = {{"addmm_impl_cpu_", takes::kNoBools | takes::kEmpty}}}),
    product({.name = "aten::bmm",
             .lower = multiply<"self", "mat2", kBatched>,
             .check = check_batches<"self", "mat2">,
             .kernels = {{"bmm", takes::kNoBools | takes::kEmpty}}}),
    product({.name = "aten::dot",
             .type = type_dot<"tensor">,
             .lower = multiply<"self", "tensor", kVecVec>,
             .kernels = {{"dot", takes::kNoBools}},
             .out = {.check = out_wants<dot_words>}}),
    product({.name = "aten::vdot",
             .type = type_dot<"other">,
             .lower = vdot,
             .kernels = {{"dot", takes::kNoBools}},
             .out = {.check = out_wants<dot_words>}}),
    product({.name = "aten::addmm",
             .lower = add_multiply<"mat1", "mat2", kMatMat, matrices_use_blas>,
             .check = check_addmm,
             .kernels = {{"addmm_impl_cpu_", takes::kNoBools | takes::kEmpty}}}),
    product({.name = "aten::addmv",
             .lower = add_multiply<"mat", "vec", kMatMat, vectors_use_blas>,
             .kernels = {{"addmv_impl_cpu", takes::kNoBools | takes::kEmpty}}}),
    product({.name = "aten::addbmm",
             .type = type_addbmm,
             .lower = add_multiply<"batch1", "batch2", kSummedBatch, matrices_use_blas>,
             .kernels = {{"addmm_impl_cpu_", takes::kNoBools | takes::kEmpty}}}),
    product({.name = "aten::baddbmm",
             .lower = add_multiply<"batch1", "batch2", kBatched, batches_use_blas>,
             .check = check_batches<"batch1", "batch2">,
             .kernels = {{"baddbmm", takes::kNoBools | takes::kEmpty}}}),
    product({.name = "aten::_addmm_activation",
             .lower = add_multiply_activation,
             .check = check_addmm,
             .kernels = {{"addmm_impl_cpu_", takes::kNoBools | takes::kEmpty}}}),
    product({.name = "aten::_trilinear",
             .type = type_trilinear,
             .lower = trilinear,
             .kernels = {{"bmm", takes::kNoBools}}}),
};

}  // namespace

Family matmul() { return kRows; }

}  // namespace tp::ops
