// Shape functions that PyTorch has in Python or inside its kernels only, written like its
// structured ones: Meta tensors in, Meta tensors out, strides included. Fourier transforms lay
// their result out as MKL's plan does, dims sorted by the input's strides. Pure; any thread.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/fractional_max_pool2d_meta_dispatch.h>
#include <ATen/ops/fractional_max_pool2d_ops.h>
#include <ATen/ops/fractional_max_pool3d_meta_dispatch.h>
#include <ATen/ops/fractional_max_pool3d_ops.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "torch/compat.h"
#include "torch/meta_rows.h"
#include "torch/recorder.h"

namespace tp::torch_room {
namespace {

using DimList = c10::DimVector;

void by_stride(const at::Tensor& t, DimList& dims, size_t count) {
  std::stable_sort(dims.begin(), dims.begin() + static_cast<int64_t>(count),
                   [&](int64_t a, int64_t b) { return t.stride(a) > t.stride(b); });
}

DimList dims_of(const at::Tensor& t, const c10::IValue& v) {
  DimList dims = v.toDimVector();
  for (int64_t& d : dims) d += d < 0 ? t.dim() : 0;
  return dims;
}

// Batch dims first, in the order of the input's strides, then the transformed ones as given.
at::Tensor transformed(const at::Tensor& x, at::IntArrayRef sizes, const DimList& dims,
                       at::ScalarType type) {
  if (!at::globalContext().hasMKL()) return at::detail::empty_meta(sizes, type);
  DimList order;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  by_stride(x, order, order.size());
  order.append(dims.begin(), dims.end());
  DimList strides(sizes.size());
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    auto d = static_cast<size_t>(order[i]);
    strides[d] = next;
    next *= std::max<int64_t>(sizes[d], 1);
  }
  return at::detail::empty_strided_meta(sizes, strides, type);
}

at::Tensor c2c_type(const at::Tensor& x, DimList dims) {
  if (dims.empty()) return at::detail::empty_strided_meta(x.sizes(), x.strides(), x.scalar_type());
  by_stride(x, dims, dims.size());
  return transformed(x, x.sizes(), dims, x.scalar_type());
}

void fft_c2c(Stack* s) {
  const at::Tensor& x = (*s)[0].toTensor();
  TORCH_CHECK(x.is_complex(), "Expected a complex tensor");
  at::Tensor y = c2c_type(x, dims_of(x, (*s)[1]));
  s->assign({c10::IValue(std::move(y))});
}

void fft_r2c(Stack* s) {
  const at::Tensor& x = (*s)[0].toTensor();
  TORCH_CHECK(x.is_floating_point(),
              "Only supports floating-point dtypes, but found: ", x.scalar_type());
  DimList dims = dims_of(x, (*s)[1]), sizes(x.sizes());
  int64_t& last = sizes[static_cast<size_t>(dims.back())];
  if ((*s)[3].toBool()) last = last / 2 + 1;
  by_stride(x, dims, dims.size() - 1);
  at::Tensor y = transformed(x, sizes, dims, c10::toComplexType(x.scalar_type()));
  s->assign({c10::IValue(std::move(y))});
}

void fft_c2r(Stack* s) {
  at::Tensor x = (*s)[0].toTensor();
  TORCH_CHECK(x.is_complex(), "Expected a complex tensor");
  DimList dims = dims_of(x, (*s)[1]), sizes(x.sizes());
  int64_t last = dims.back();
  dims.pop_back();
  if (!dims.empty()) x = c2c_type(x, dims);
  sizes[static_cast<size_t>(last)] = (*s)[3].toInt();
  at::Tensor y = transformed(x, sizes, {last}, c10::toRealValueType(x.scalar_type()));
  s->assign({c10::IValue(std::move(y))});
}

// --- triangular systems: solutions are column-major ----------------------------------------------

at::Tensor column_major(at::IntArrayRef sizes, at::ScalarType type) {
  DimList strides(sizes.size());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    size_t n = sizes.size();
    size_t d = i == n - 1 ? n - 2 : i == n - 2 ? n - 1 : i;
    strides[d] = next;
    next *= std::max<int64_t>(sizes[d], 1);
  }
  return at::detail::empty_strided_meta(sizes, strides, type);
}

void solve_triangular(Stack* s) {
  const at::Tensor &a = (*s)[0].toTensor(), &b = (*s)[1].toTensor();
  bool left = (*s)[3].toBool();
  for (const auto& [t, name] : {std::pair(&a, "A"), std::pair(&b, "B")})
    TORCH_CHECK(t->dim() >= 2, "linalg.solve_triangular: The input tensor ", name,
                " must have at least 2 dimensions.");
  TORCH_CHECK(a.size(-1) == a.size(-2),
              "linalg.solve_triangular: A must be batches of square matrices, but they are ",
              a.size(-2), " by ", a.size(-1), " matrices");
  TORCH_CHECK(a.size(-2) == b.size(left ? -2 : -1),
              "linalg.solve_triangular: Incompatible shapes of A and B for the equation ",
              left ? "AX = B" : "XA = B", " (", a.size(-2), "x", a.size(-1), " and ", b.size(-2),
              "x", b.size(-1), ")");
  at::DimVector sizes =
      at::infer_size_dimvector(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  sizes.append({b.size(-2), b.size(-1)});
  at::Tensor x = column_major(sizes, a.scalar_type());
  s->assign({c10::IValue(std::move(x))});
}

void cholesky_solve(Stack* s) {
  const at::Tensor& b = (*s)[0].toTensor();
  at::Tensor x = column_major(b.sizes(), b.scalar_type());
  s->assign({c10::IValue(std::move(x))});
}

MetaFunction generated(std::string_view overload) {
  for (auto rows : {meta_rows_0(), meta_rows_1(), meta_rows_2()})
    for (const MetaRow& r : rows)
      if (overload == r.overload) return r.function;
  return nullptr;
}

// PyTorch's own looks at the first slice of the source, which need not be there.
template <int kind>
void index_func(Stack* s) {
  static const MetaFunction usual = generated(kind == 0 ? "aten::index_add" : "aten::index_reduce");
  const at::Tensor &self = (*s)[0].toTensor(), &index = (*s)[2].toTensor(),
                   &source = (*s)[3].toTensor();
  bool nothing = index.dim() == 1 && index.numel() == 0 && source.numel() == 0;
  if (!nothing || self.dim() == 0 || source.dim() != self.dim()) return usual(s);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), kind == 0 ? "index_add" : "index_reduce",
              "(): self (", self.scalar_type(), ") and source (", source.scalar_type(),
              ") must have the same scalar type");
  s->assign({c10::IValue(at::detail::empty_meta(self.sizes(), self.scalar_type()))});
}

// Eager joins two slices by cat, which keeps channels_last.
at::Tensor roll_dim(const at::Tensor& t, int64_t shift, int64_t dim) {
  if (t.numel() == 0) return t.clone();
  int64_t size = t.size(dim), start = ((size - shift) % size + size) % size;
  return at::cat({t.narrow(dim, start, size - start), t.narrow(dim, 0, start)}, dim);
}

void roll(Stack* s) {
  at::Tensor t = (*s)[0].toTensor();
  auto shifts = (*s)[1].toDimVector(), dims = (*s)[2].toDimVector();
  if (dims.empty())
    t = at::detail::empty_meta(t.sizes(), t.scalar_type());
  else
    for (size_t i = 0; i < dims.size(); ++i) t = roll_dim(t, shifts[i], dims[i]);
  s->assign({c10::IValue(std::move(t))});
}

// Eager joins along a dim that it then splits.
void stack(Stack* s) {
  std::vector<at::Tensor> all = (*s)[0].toTensorVector();
  int64_t rank = all.at(0).dim(), dim = at::maybe_wrap_dim((*s)[1].toInt(), rank + 1);
  DimList sizes(all[0].sizes());
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(all.size()));
  at::Tensor t;
  if (dim < rank) {
    t = at::cat(all, dim).view(sizes);
  } else {
    for (at::Tensor& one : all) one = one.unsqueeze(dim);
    t = at::cat(all, dim);
  }
  s->assign({c10::IValue(std::move(t))});
}

// PyTorch's meta function, and what its CPU kernel asks besides.
template <size_t n, class Schema, Schema* meta>
void fractional_pool(Stack* s) {
  auto kernel = (*s)[1].toDimVector();
  bool empty = std::any_of(kernel.begin(), kernel.end(), [](int64_t k) { return k <= 0; });
  TORCH_CHECK(!compat::kRefusesEmptyWindows || kernel.size() != n || !empty, "fractional_max_pool",
              n, "d(): kernel size should be greater than zero, but got ", join(kernel, "x"));
  call_boxed<Schema, meta>(s);
}

constexpr MetaRow kRows[] = {
    {"aten::fractional_max_pool2d",
     fractional_pool<2, at::_ops::fractional_max_pool2d::schema, at::meta::fractional_max_pool2d>,
     Structured::kExact},
    {"aten::fractional_max_pool3d",
     fractional_pool<3, at::_ops::fractional_max_pool3d::schema, at::meta::fractional_max_pool3d>,
     Structured::kExact},
    {"aten::stack", stack, Structured::kNo},
    {"aten::roll", roll, Structured::kNo},
    {"aten::index_add", index_func<0>, Structured::kExact},
    {"aten::index_reduce", index_func<1>, Structured::kExact},
    {"aten::linalg_solve_triangular", solve_triangular, Structured::kNo},
    {"aten::_cholesky_solve_helper", cholesky_solve, Structured::kNo},
    {"aten::_fft_c2c", fft_c2c, Structured::kNo},
    {"aten::_fft_r2c", fft_r2c, Structured::kNo},
    {"aten::_fft_c2r", fft_c2r, Structured::kNo},
};

}  // namespace

std::span<const MetaRow> meta_rows_own() { return kRows; }

}  // namespace tp::torch_room
