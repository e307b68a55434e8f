// What view operators make of a window onto memory: its sizes, strides and offset, with eager's
// checks in its words (aten/src/ATen/native/TensorShape.cpp). The tensors of device xla
// (torch/views.cpp) and the ops that copy a view (view_copy.cpp) share it. What PyTorch exports as
// a function of its own (the strides of view, expand and reshape) the former takes from there.
//
// W is whatever has `size` and `stride`, vectors of int64_t that insert and erase, and `offset`.
// Pure; any thread.
#pragma once
#include <algorithm>
#include <concepts>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/helpers.h"

namespace tp::ops {

template <class W>
concept Window = requires(W w) {
  { w.size[0] } -> std::convertible_to<int64_t>;
  { w.stride[0] } -> std::convertible_to<int64_t>;
  { w.offset } -> std::convertible_to<int64_t>;
};

inline int64_t rank_of(const Window auto& w) { return static_cast<int64_t>(w.size.size()); }
inline std::string size_text(const Window auto& w) {
  return size_text(std::span<const int64_t>(w.size.data(), w.size.size()));
}
inline size_t dim_of(const Window auto& w, int64_t dim) {
  return static_cast<size_t>(wrap_dim(dim, rank_of(w)));
}
void drop_dim(Window auto& w, size_t d) {
  w.size.erase(w.size.begin() + static_cast<std::ptrdiff_t>(d));
  w.stride.erase(w.stride.begin() + static_cast<std::ptrdiff_t>(d));
}
void append_dim(Window auto& w, int64_t size, int64_t stride) {
  w.size.push_back(size);
  w.stride.push_back(stride);
}

// --- dims that change places, come and go --------------------------------------------------------

void permute(Window auto& w, std::span<const int64_t> dims) {
  if (static_cast<int64_t>(dims.size()) != rank_of(w))
    fail(Code::kRuntime,
         cat("permute(sparse_coo): number of dimensions in the tensor input does not match "
             "the length of the desired ordering of dimensions i.e. input.dim() = ",
             rank_of(w), " is not equal to len(dims) = ", dims.size()));
  auto from = w;
  std::vector<bool> seen(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    size_t d = dim_of(w, dims[i]);
    if (seen[d]) fail(Code::kRuntime, "permute(): duplicate dims are not allowed.");
    seen[d] = true;
    w.size[i] = from.size[d];
    w.stride[i] = from.stride[d];
  }
}

void transpose(Window auto& w, int64_t dim0, int64_t dim1) {
  size_t a = dim_of(w, dim0), b = dim_of(w, dim1);
  if (a == b) return;
  std::swap(w.size[a], w.size[b]);
  std::swap(w.stride[a], w.stride[b]);
}

void transpose_matrix(Window auto& w) {
  if (rank_of(w) > 2)
    fail(Code::kRuntime,
         cat("t() expects a tensor with <= 2 dimensions, but self is ", rank_of(w), "D"));
  if (rank_of(w) == 2) transpose(w, 0, 1);
}

template <Window W, class Chosen>
void squeeze_if(W& w, Chosen&& chosen) {
  for (size_t d = w.size.size(); d-- > 0;)
    if (w.size[d] == 1 && chosen(d)) drop_dim(w, d);
}
void squeeze(Window auto& w) {
  squeeze_if(w, [](size_t) { return true; });
}
void squeeze(Window auto& w, std::span<const int64_t> dims) {
  std::vector<bool> chosen(std::max<size_t>(w.size.size(), 1));
  for (int64_t dim : dims) {
    size_t d = dim_of(w, dim);
    if (chosen[d])
      fail(Code::kRuntime, cat("dim ", d, " appears multiple times in the list of dims"));
    chosen[d] = true;
  }
  squeeze_if(w, [&](size_t d) { return chosen[d]; });
}

void unsqueeze(Window auto& w, int64_t dim) {
  auto d = static_cast<size_t>(wrap_dim(dim, rank_of(w) + 1));
  int64_t stride = d == w.size.size() ? 1 : w.size[d] * w.stride[d];
  w.size.insert(w.size.begin() + static_cast<std::ptrdiff_t>(d), 1);
  w.stride.insert(w.stride.begin() + static_cast<std::ptrdiff_t>(d), stride);
}

// Sizes of a tensor of `dims` expanded to `target`; -1 keeps what is there. `tensor`: its type, as
// messages have it.
inline std::vector<int64_t> expanded(std::span<const int64_t> dims, std::vector<int64_t> target,
                                     std::string_view tensor) {
  std::string asked = size_text(target);
  if (target.size() < dims.size())
    fail(
        Code::kRuntime,
        cat("expand(", tensor, ", size=", asked, "): the number of sizes provided (", target.size(),
            ") must be greater or equal to the number of dimensions in the tensor (", dims.size(),
            ")"));
  size_t fresh = target.size() - dims.size();
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == -1 && i < fresh)
      fail(Code::kRuntime,
           cat("expand(", tensor, ", size=", asked,
               "): The expanded size of the tensor (-1) isn't allowed in a leading, "
               "non-existing dimension ",
               i));
    int64_t have = i < fresh ? 1 : dims[i - fresh];
    if (target[i] == -1) target[i] = have;
    if (have != 1 && target[i] != have)
      fail(Code::kRuntime,
           cat("The expanded size of the tensor (", target[i], ") must match the existing size (",
               have, ") at non-singleton dimension ", i, ".  Target sizes: ", asked,
               ".  Tensor sizes: ", size_text(dims)));
  }
  return target;
}
void expand(Window auto& w, std::vector<int64_t> target, std::string_view tensor) {
  std::span<const int64_t> have(w.size.data(), w.size.size());
  auto size = expanded(have, std::move(target), tensor);
  size_t fresh = size.size() - have.size();
  w.size.insert(w.size.begin(), fresh, 1);
  w.stride.insert(w.stride.begin(), fresh, 0);
  for (size_t i = 0; i < size.size(); ++i) {
    if (w.size[i] != size[i]) w.stride[i] = 0;
    w.size[i] = size[i];
  }
}

// --- parts of a dim ------------------------------------------------------------------------------

void narrow_dim(Window auto& w, size_t d, int64_t start, int64_t length, int64_t step = 1) {
  w.offset += start * w.stride[d];
  w.size[d] = length;
  w.stride[d] *= step;
}

void select(Window auto& w, int64_t dim, int64_t index) {
  if (w.size.empty()) fail(Code::kIndex, "select() cannot be applied to a 0-dim tensor.");
  size_t d = dim_of(w, dim);
  int64_t n = w.size[d];
  if (index < -n || index >= n)
    fail(Code::kIndex, cat("select(): index ", index, " out of range for tensor of size ",
                           size_text(w), " at dimension ", d));
  w.offset += (index < 0 ? index + n : index) * w.stride[d];
  drop_dim(w, d);
}

void slice(Window auto& w, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
           int64_t step) {
  if (w.size.empty()) fail(Code::kIndex, "slice() cannot be applied to a 0-dim tensor.");
  size_t d = dim_of(w, dim);
  if (step <= 0) fail(Code::kRuntime, "slice step must be positive");
  int64_t n = w.size[d];
  auto inside = [n](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n); };
  int64_t from = inside(start.value_or(0)), to = std::max(end ? inside(*end) : n, from);
  narrow_dim(w, d, from, (to - from + step - 1) / step, step);
}

void narrow(Window auto& w, int64_t dim, int64_t start, int64_t length) {
  if (w.size.empty()) fail(Code::kRuntime, "narrow() cannot be applied to a 0-dim tensor.");
  size_t d = dim_of(w, dim);
  int64_t n = w.size[d];
  if (length < 0) fail(Code::kRuntime, "narrow(): length must be non-negative.");
  if (start < -n || start > n)
    fail(Code::kIndex, cat("start out of range (expected to be in range of [", -n, ", ", n,
                           "], but got ", start, ")"));
  if (start < 0) start += n;
  if (start > n - length)
    fail(Code::kRuntime,
         cat("start (", start, ") + length (", length, ") exceeds dimension size (", n, ")."));
  narrow_dim(w, d, start, length);
}

void unfold(Window auto& w, int64_t dim, int64_t size, int64_t step) {
  size_t d = dim_of(w, dim);
  int64_t n = w.size.empty() ? 1 : w.size[d], stride = w.size.empty() ? 1 : w.stride[d];
  if (size > n)
    fail(Code::kRuntime,
         cat("maximum size for tensor at dimension ", d, " is ", n, " but size is ", size));
  if (step <= 0) fail(Code::kRuntime, cat("step is ", step, " but must be > 0"));
  if (size < 0) fail(Code::kRuntime, cat("size is ", size, " but must be >= 0"));
  if (!w.size.empty()) narrow_dim(w, d, 0, (n - size) / step + 1, step);
  append_dim(w, size, stride);
}

void diagonal(Window auto& w, int64_t offset, int64_t dim1, int64_t dim2) {
  size_t a = dim_of(w, dim1), b = dim_of(w, dim2);
  if (a == b)
    fail(Code::kRuntime, cat("diagonal dimensions cannot be identical ", dim1, ", ", dim2));
  int64_t n = offset >= 0 ? std::min(w.size[a], w.size[b] - offset)
                          : std::min(w.size[a] + offset, w.size[b]);
  n = std::max<int64_t>(n, 0);
  if (n > 0) w.offset += offset >= 0 ? offset * w.stride[b] : -offset * w.stride[a];
  int64_t stride = w.stride[a] + w.stride[b];
  drop_dim(w, std::max(a, b));
  drop_dim(w, std::min(a, b));
  append_dim(w, n, stride);
}

// --- element types -------------------------------------------------------------------------------

// The same memory as elements of another dtype.
void view_dtype(Window auto& w, ir::DType from, ir::DType to) {
  int64_t have = ir::dtype_size(from), want = ir::dtype_size(to);
  if (have == want) return;
  auto words = [&] {
    return cat(" to view ", eager_name(from).scalar, " as ", eager_name(to).scalar,
               " (different element sizes)");
  };
  if (w.size.empty()) fail(Code::kRuntime, cat("self.dim() cannot be 0", words()));
  if (w.stride.back() != 1)
    fail(Code::kRuntime, cat("self.stride(-1) must be 1", words(), ", but got ", w.stride.back()));
  auto scale = [&](int64_t v, std::string_view what) {
    if (v * have % want != 0)
      fail(Code::kRuntime,
           cat("self.", what, " must be divisible by ", want / have, words(), ", but got ", v));
    return v * have / want;
  };
  w.size.back() = scale(w.size.back(), "size(-1)");
  w.offset = scale(w.offset, "storage_offset()");
  for (size_t i = 0; i + 1 < w.stride.size(); ++i)
    w.stride[i] = scale(w.stride[i], cat("stride(", i, ")"));
}

void view_as_real(Window auto& w, ir::DType from) {
  if (!ir::is_complex(from))
    fail(Code::kRuntime, "view_as_real is only supported for complex tensors");
  for (auto& s : w.stride) s *= 2;
  w.offset *= 2;
  append_dim(w, 2, 1);
}

void view_as_complex(Window auto& w, ir::DType from) {
  if (from != ir::DType::kF32 && from != ir::DType::kF64 && from != ir::DType::kF16)
    fail(Code::kRuntime, cat("view_as_complex is only supported for half, float and double "
                             "tensors, but got a tensor of scalar type: ",
                             eager_name(from).scalar));
  if (w.size.empty()) fail(Code::kRuntime, "Input tensor must have one or more dimensions");
  if (w.size.back() != 2) fail(Code::kRuntime, "Tensor must have a last dimension of size 2");
  if (w.stride.back() != 1) fail(Code::kRuntime, "Tensor must have a last dimension with stride 1");
  drop_dim(w, w.size.size() - 1);
  for (size_t i = 0; i < w.stride.size(); ++i) {
    if (w.stride[i] % 2 != 0 && w.size[i] != 1)
      fail(Code::kRuntime, "Tensor must have a stride divisible by 2 for all but last dimension");
    w.stride[i] /= 2;
  }
  if (w.offset % 2 != 0) fail(Code::kRuntime, "Tensor must have a storage_offset divisible by 2");
  w.offset /= 2;
}

}  // namespace tp::ops
