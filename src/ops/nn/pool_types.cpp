// Type rules of the poolings that PyTorch has no structured meta function for, with eager's checks
// and words. Pure functions; any thread.
#include <algorithm>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/nn/pool.h"

namespace tp::ops {
namespace {

int64_t entry(const IntList& v, size_t i) { return v.size() == 1 ? v[0] : v[i]; }

void check_size(const IntList& v, bool omittable, std::string_view message) {
  if (v.size() != 1 && v.size() != 3 && !(omittable && v.empty()))
    fail(Code::kRuntime, std::string(message));
}

// All dims but the first must not be empty.
void check_filled(Type t, std::string_view before, std::string_view after, bool sizes) {
  Ints dims = t.dims();
  for (size_t i = 1; i < dims.size(); ++i)
    if (dims[i] == 0)
      fail(Code::kRuntime,
           sizes ? cat(before, size_text(dims), after, i, " being empty")
                 : cat(before, size_text(dims), " with dimension ", i, " being empty."));
}

struct Pool3d {
  IntList kernel, stride, padding, dilation;
  bool ceil;
};

Pool3d pool3d_args(const Args& a) {
  Pool3d p{a.ints("kernel_size"), a.ints_or("stride", {}), a.ints_or("padding", {0}),
           a.ints_or("dilation", {1}), a.b_or("ceil_mode", false)};
  check_size(p.kernel, false,
             "max_pool3d: kernel_size must either be a single int, or a tuple of three ints");
  check_size(p.stride, true,
             "max_pool3d: stride must either be omitted, a single int, or a tuple of three ints");
  check_size(p.padding, false,
             "max_pool3d: padding must either be a single int, or a tuple of three ints");
  check_size(p.dilation, false,
             "max_pool3d: dilation must be either a single int, or a tuple of three ints");
  if (p.stride.empty()) p.stride = p.kernel;
  return p;
}

void check_positive(const IntList& v, std::string_view what, std::string_view letter) {
  for (size_t i = 0; i < 3; ++i)
    if (entry(v, i) <= 0)
      fail(Code::kRuntime,
           cat(what, " should be greater than zero, but got ", letter, "T: ", entry(v, 0), " ",
               letter, "H: ", entry(v, 1), " ", letter, "W: ", entry(v, 2)));
}

int64_t pooled_size(int64_t in, int64_t kernel, int64_t padding, int64_t stride, int64_t dilation,
                    bool ceil) {
  int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1 + (ceil ? stride - 1 : 0);
  int64_t out = (room >= 0 ? room / stride : -((stride - 1 - room) / stride)) + 1;
  if (ceil && (out - 1) * stride >= in + padding)
    --out;  // a window may not start in the far padding
  return out;
}

IntList pool3d_output(const Pool3d& p, Type x) {
  size_t lead = x.dims().size() - 3;
  IntList out(x.dims().begin(), x.dims().end());
  for (size_t i = 0; i < 3; ++i) {
    int64_t kernel = entry(p.kernel, i), padding = entry(p.padding, i),
            dilation = entry(p.dilation, i);
    if (padding < 0) fail(Code::kRuntime, cat("pad must be non-negative, but got pad: ", padding));
    if (padding > ((kernel - 1) * dilation + 1) / 2)
      fail(Code::kRuntime, cat("pad should be at most half of effective kernel size, but got pad=",
                               padding, ", kernel_size=", kernel, " and dilation=", dilation));
    out[lead + i] =
        pooled_size(x.dim(lead + i), kernel, padding, entry(p.stride, i), dilation, p.ceil);
  }
  if (std::ranges::any_of(Ints(out).last(3), [](int64_t n) { return n < 1; })) {
    Ints in = x.dims().last(4), to = Ints(out).last(4);
    fail(Code::kRuntime, cat("Given input size: (", join(in, "x"), "). Calculated output size: (",
                             join(to, "x"), "). Output size is too small"));
  }
  return out;
}

void check_dim_size(Type t, int rank, size_t dim, int64_t size) {
  if (t.rank() != rank || t.dim(dim) != size)
    fail(Code::kRuntime,
         cat("Expected a tensor of dimension ", rank, " and tensor.size[", dim, "] == ", size,
             " but got: dimension ", t.rank(), " and tensor.size[", dim, "] = ", t.dim(dim)));
}

IntList checked_pool3d(const Pool3d& p, Type x) {
  if (x.rank() != 4 && x.rank() != 5)
    fail(Code::kRuntime, "non-empty 4D or 5D (batch mode) tensor expected for input");
  check_positive(p.kernel, "kernel size", "k");
  for (size_t i = 0; i < 3; ++i)
    if (entry(p.stride, i) == 0) fail(Code::kRuntime, "stride should not be zero");
  check_positive(p.stride, "stride", "d");
  check_positive(p.dilation, "dilation", "dilation");
  return pool3d_output(p, x);
}

void check_floating(Type x, std::string_view kernel) {
  if (!ir::is_float(x.dtype())) fail(Code::kNotImplemented, not_implemented_for(kernel, x.dtype()));
}

void check_unpool(Type x, Type index, std::string_view name, size_t spatial) {
  if (index.dtype() != DType::kS64)
    fail(Code::kRuntime, spatial == 2 ? cat("elements in indices should be type int64 but got: ",
                                            eager_name(index.dtype()).scalar)
                                      : std::string("elements in indices should be type int64"));
  auto rank = static_cast<size_t>(x.rank());
  if (rank != spatial + 1 && rank != spatial + 2)
    fail(Code::kRuntime, cat("Input to ", name, " should be a ", spatial + 1, "d or ", spatial + 2,
                             "d Tensor, but got a tensor with ", rank, " dimensions."));
  if (!std::ranges::equal(x.dims(), index.dims()))
    fail(Code::kRuntime, cat("Expected shape of indices to be same as that of the input tensor (",
                             size_text(x.dims()),
                             ") but got indices tensor with shape: ", size_text(index.dims())));
  check_filled(
      x,
      cat(name,
          "_forward_out_cpu(): Expected input to have non-zero size for non-batch dimensions, "
          "but got "),
      "", false);
}

void put_unpooled(Type x, const IntList& size, std::vector<Type>& out) {
  check_floating(x, size.size() == 2 ? "max_unpool2d" : "max_unpool3d");
  IntList dims(x.dims().begin(), x.dims().end());
  std::ranges::copy(size, dims.end() - static_cast<std::ptrdiff_t>(size.size()));
  out.push_back(x.with(dims));
}

}  // namespace

void max_pool3d_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  IntList dims = checked_pool3d(pool3d_args(a), x);
  for (size_t i = x.rank() == 5 ? 1 : 0; i < x.dims().size(); ++i)
    if (x.dim(i) == 0)
      fail(Code::kRuntime,
           cat("max_pool3d_with_indices_out_cpu_template(): Expected input's non-batch "
               "dimensions to have positive length, but input has a shape of ",
               size_text(x.dims()), " and non-batch dimension 0 has length zero!"));
  if (x.dtype() == DType::kPred || ir::is_complex(x.dtype()))
    fail(Code::kNotImplemented, not_implemented_for("max_pool3d", x.dtype()));
  out.push_back(x.with(dims));
  out.push_back(ir::make_type(DType::kS64, dims));
}

void max_pool3d_backward_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self"), grad = a.type("grad_output"), index = a.type("indices");
  if (grad.dtype() != x.dtype())
    fail(Code::kRuntime, cat("expected dtype ", eager_name(x.dtype()).cpp,
                             " for `gradOutput` but got dtype ", eager_name(grad.dtype()).cpp));
  checked_pool3d(pool3d_args(a), x);
  size_t first = x.dims().size() - 4;
  check_dim_size(grad, x.rank(), first, x.dim(first));
  for (size_t i = first; i < x.dims().size(); ++i) check_dim_size(index, x.rank(), i, grad.dim(i));
  if (index.dtype() != DType::kS64)
    fail(Code::kRuntime, expected_scalar_type(DType::kS64, index.dtype()));
  out.push_back(x);
}

template <size_t n>
void adaptive_avg_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  IntList size = a.ints("output_size");
  std::string op = cat("adaptive_avg_pool", n, "d");
  if (size.size() != n) fail(Code::kRuntime, cat(op, ": output_size must be ", n));
  if (x.rank() != n + 1 && x.rank() != n + 2)
    fail(Code::kRuntime, cat(op, "(): Expected ", n + 1, "D or ", n + 2, "D tensor, but got ",
                             size_text(x.dims())));
  check_filled(x,
               cat(op,
                   "(): Expected input to have non-zero size for non-batch dimensions, but input "
                   "has sizes "),
               " with dimension ", true);
  if (std::ranges::any_of(size, [](int64_t s) { return s < 0; }))
    fail(Code::kRuntime,
         cat(op, ": elements of output_size must be greater than or equal to 0, but received ",
             size_text(size)));
  check_floating(x, n == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d_cpu");
  IntList dims(x.dims().begin(), x.dims().end());
  std::ranges::copy(size, dims.end() - static_cast<std::ptrdiff_t>(n));
  out.push_back(x.with(dims));
}

template <size_t n>
void adaptive_avg_backward_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self"), grad = a.type("grad_output");
  std::string op = cat("adaptive_avg_pool", n, "d_backward"), kernel = op + "_out_cpu_template";
  std::string_view arg = n == 2 ? "grad_output" : "gradOutput_";
  if (grad.rank() != x.rank())
    fail(Code::kRuntime, cat(kernel, ": Expected dimensions ", x.rank(), " for `", arg,
                             "` but got dimensions ", grad.rank()));
  check_filled(grad,
               cat(op,
                   "(): Expected grad_output to have non-zero size for non-batch dimensions, but "
                   "grad_output has sizes "),
               " with dimension ", true);
  if (grad.dtype() != x.dtype())
    fail(Code::kRuntime, cat(kernel, ": Expected dtype ", eager_name(x.dtype()).cpp, " for `", arg,
                             "` but got dtype ", eager_name(grad.dtype()).cpp));
  check_floating(x, n == 2 ? "adaptive_avg_pool2d_backward" : "adaptive_avg_pool3d_backward_cpu");
  out.push_back(x);
}

void unpool2d_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  IntList size = a.ints("output_size");
  if (size.size() != 2)
    fail(Code::kRuntime,
         cat("There should be exactly two elements (height, width) in output_size, but got ",
             size.size(), " elements."));
  check_unpool(x, a.type("indices"), "max_unpooling2d", 2);
  put_unpooled(x, size, out);
}

void unpool3d_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  IntList size = a.ints("output_size");
  if (size.size() != 3)
    fail(Code::kRuntime,
         cat("There should be exactly three elements (depth, height, width) in output_size, but "
             "got ",
             size.size(), " elements."));
  for (std::string_view name : {"stride", "padding"})
    if (size_t k = a.ints(name).size(); k != 3)
      fail(Code::kRuntime, cat("There should be exactly three elements (depth, height, width) in ",
                               name, ", but got: ", k, " elements."));
  IntList stride = a.ints("stride");
  check_unpool(x, a.type("indices"), "max_unpooling3d", 3);
  if (std::ranges::any_of(stride, [](int64_t s) { return s <= 0; }))
    fail(Code::kRuntime,
         cat("strides should be greater than zero, but got stride: ", size_text(stride)));
  put_unpooled(x, size, out);
}

void fractional3d_backward_type(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("self"));
}

template void adaptive_avg_type<2>(const Args&, std::vector<Type>&);
template void adaptive_avg_type<3>(const Args&, std::vector<Type>&);
template void adaptive_avg_backward_type<2>(const Args&, std::vector<Type>&);
template void adaptive_avg_backward_type<3>(const Args&, std::vector<Type>&);

}  // namespace tp::ops
