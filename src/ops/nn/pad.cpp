// Padding and image patches: constant, reflecting and replicating pads with their gradients, im2col
// and col2im, unfold's gradient. All are slices, reversals and pads; nothing gathers. Any thread.
#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"
#include "ops/reduce/axis.h"
#include "ops/view/shape_rows.h"

namespace tp::ops {
namespace {

// Padding before and after dim `rank - 1 - i` is pad[2 i], pad[2 i + 1].
IntList padded_dims(Ints dims, Ints pad) {
  IntList out(dims.begin(), dims.end());
  for (size_t i = 0; i < pad.size() / 2; ++i)
    for (int64_t side : {pad[2 * i], pad[2 * i + 1]}) {
      int64_t& size = out[out.size() - 1 - i];
      size = checked_add(size, side);
    }
  return out;
}

// --- constant

void constant_pad_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  IntList pad = a.ints("pad");
  if (pad.size() % 2 != 0)
    fail(Code::kRuntime, cat("Length of pad must be even but instead it equals ", pad.size()));
  if (static_cast<int>(pad.size() / 2) > self.rank())
    fail(Code::kRuntime,
         cat("Length of pad should be no more than twice the number of dimensions of the "
             "input. Pad length is ",
             pad.size(), "while the input has ", self.rank(), "dimensions."));
  // Eager crops by narrow() first, so a crop of more than there is fails in narrow's words.
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t size = self.dims()[self.dims().size() - 1 - i];
    if (size + std::min<int64_t>(pad[2 * i], 0) + std::min<int64_t>(pad[2 * i + 1], 0) < 0)
      fail(Code::kRuntime, "narrow(): length must be non-negative.");
  }
  IntList dims = padded_dims(self.dims(), pad);
  out.push_back(self.with(dims));
}
// A window that moves in its frame: how much each dim grows is structure, where it stands a number.
void split_pad(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values) {
  IntList pad = a.ints("pad");
  bool grows = std::ranges::all_of(pad, [](int64_t n) { return n >= 0; });
  for (size_t i = 0; i < pad.size(); ++i) {
    if (grows && i % 2 == 0) values.push_back({false, pad[i]});
    structure.push_back(static_cast<uint64_t>(!grows ? pad[i] : i % 2 ? pad[i] + pad[i - 1] : 0));
  }
  structure.push_back(grows);
}
V place_window(Lowering& l, V self, V value, Ints low) {
  Builder& b = l.builder();
  std::vector<V> starts;
  for (int64_t n : low) starts.push_back(b.constant_int(n, ir::scalar_type(DType::kS64)));
  for (size_t i = 0; i < l.inputs().size(); ++i)
    if (l.inputs()[i]) starts[starts.size() - 1 - i] = l.inputs()[i];
  return b.dynamic_update_slice(b.broadcast_to(value, l.out().dims()), self, starts);
}
void constant_pad_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  IntList pad = l.ints("pad"), none(self.dims().size(), 0), low = none, high = none;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    low[low.size() - 1 - i] = pad[2 * i];
    high[high.size() - 1 - i] = pad[2 * i + 1];
  }
  V value = number_or(l, "value", ir::scalar_type(self.dtype()), 0);
  bool moves = std::ranges::any_of(l.inputs(), [](const V& v) { return static_cast<bool>(v); });
  if (moves) return out.push_back(place_window(l, self, value, low));
  out.push_back(b.pad(self, value, low, high, none));
}

// --- reflection and replication

enum class Edge { kReflect, kReplicate };

// What stands beside the core on one dim: `count` positions on the low or the high side.
template <Edge edge>
V edge_of(Builder& b, V x, int64_t d, int64_t count, bool low) {
  int64_t n = x.dim(static_cast<size_t>(d));
  if constexpr (edge == Edge::kReflect) {
    V part = low ? b.slice_dim(x, d, 1, count + 1) : b.slice_dim(x, d, n - 1 - count, n - 1);
    return b.reverse(part, IntList{d});
  } else {
    V part = low ? b.slice_dim(x, d, 0, 1) : b.slice_dim(x, d, n - 1, n);
    return b.broadcast(part, x.type.with(with_dim(x.dims(), d, count)), iota_dims(x.rank()));
  }
}

template <Edge edge>
V pad_dim(Builder& b, V x, int64_t d, int64_t low, int64_t high) {
  int64_t n = x.dim(static_cast<size_t>(d));
  std::vector<V> parts;
  if (low > 0) parts.push_back(edge_of<edge>(b, x, d, low, true));
  parts.push_back(b.slice_dim(x, d, std::max<int64_t>(0, -low), n - std::max<int64_t>(0, -high)));
  if (high > 0) parts.push_back(edge_of<edge>(b, x, d, high, false));
  return b.concat(parts, d);
}

// g's positions [start, end) of dim d, put back at `at` of n positions.
V placed(Builder& b, V g, int64_t d, int64_t at, int64_t n) {
  IntList none(g.dims().size(), 0);
  V zero = b.zeros(ir::scalar_type(g.dtype()));
  return b.pad(g, zero, with_dim(none, d, at),
               with_dim(none, d, n - at - g.dim(static_cast<size_t>(d))), none);
}

// An edge's gradient, where it came from.
template <Edge edge>
V edge_grad(Builder& b, V g, int64_t d, int64_t n, bool low) {
  int64_t count = g.dim(static_cast<size_t>(d));
  if constexpr (edge == Edge::kReflect) {
    return placed(b, b.reverse(g, IntList{d}), d, low ? 1 : n - 1 - count, n);
  } else {
    V sum = b.reshape(b.reduce(g, IntList{d}, Builder::Red::kSum), with_dim(g.dims(), d, 1));
    return placed(b, sum, d, low ? 0 : n - 1, n);
  }
}

template <Edge edge>
V unpad_dim(Builder& b, V g, int64_t d, int64_t n, int64_t low, int64_t high) {
  int64_t before = std::max<int64_t>(low, 0), start = std::max<int64_t>(-low, 0);
  int64_t core = n - start - std::max<int64_t>(-high, 0), all = g.dim(static_cast<size_t>(d));
  V sum = placed(b, b.slice_dim(g, d, before, before + core), d, start, n);
  if (low > 0) sum = b.add(sum, edge_grad<edge>(b, b.slice_dim(g, d, 0, before), d, n, true));
  if (high > 0)
    sum = b.add(sum, edge_grad<edge>(b, b.slice_dim(g, d, before + core, all), d, n, false));
  return sum;
}

template <Edge edge>
void edge_pad_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  IntList pad = l.ints("padding");
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  for (size_t i = 0; i < pad.size() / 2; ++i)
    x = pad_dim<edge>(b, x, x.rank() - 1 - static_cast<int64_t>(i), pad[2 * i], pad[2 * i + 1]);
  out.push_back(x);
}
template <Edge edge>
void edge_pad_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V g = b.convert(l.in("grad_output"), ir::compute_dtype(l.out().dtype()));
  IntList pad = l.ints("padding");
  if (g.type.numel() == 0 || l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t d = g.rank() - 1 - static_cast<int64_t>(i);
    g = unpad_dim<edge>(b, g, d, l.out().dim(static_cast<size_t>(d)), pad[2 * i], pad[2 * i + 1]);
  }
  put(l, out, g);
}

void reflection_pad2d_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  IntList pad = a.ints("padding");
  if (pad.size() != 4)
    fail(Code::kRuntime, cat("padding size is expected to be 4, but got: ", pad.size()));
  bool ok = self.rank() == 3 || self.rank() == 4;
  for (int d = self.rank() == 4 ? 1 : 0; ok && d < self.rank(); ++d)
    ok = self.dim(static_cast<size_t>(d)) != 0;
  if (!ok)
    fail(Code::kRuntime,
         cat("Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
             "non-zero dimensions for input, but got: ",
             size_text(self.dims())));
  for (size_t i = 0; i < 2; ++i) {
    size_t d = self.dims().size() - 1 - i;
    if (pad[2 * i] >= self.dim(d) || pad[2 * i + 1] >= self.dim(d))
      fail(Code::kRuntime, cat("Argument #", i == 0 ? 4 : 6,
                               ": Padding size should be less than the "
                               "corresponding input dimension, but got: padding (",
                               pad[2 * i], ", ", pad[2 * i + 1], ") at dimension ", d, " of input ",
                               size_text(self.dims())));
  }
  IntList dims = padded_dims(self.dims(), pad);
  if (dims.back() < 1 && dims[dims.size() - 2] < 1)
    fail(Code::kRuntime,
         cat("input (H: ", self.dims()[dims.size() - 2], ", W: ", self.dims().back(),
             ") is too small. Calculated output H: ", dims[dims.size() - 2], " W: ", dims.back()));
  out.push_back(self.with(dims));
}

// The gradient has the padded input's sizes.
void edge_pad_backward_type(const Args& a, std::vector<Type>& out) {
  static constexpr const char* kNames[] = {"width", "height", "depth"};
  Type self = a.type("self"), grad = a.type("grad_output");
  IntList pad = a.ints("padding"), dims = padded_dims(self.dims(), pad);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    size_t d = dims.size() - 1 - i;
    if (grad.rank() == self.rank() && grad.dim(d) == dims[d]) continue;
    fail(Code::kRuntime, cat("gradOutput ", kNames[i], " unexpected. Expected: ", dims[d],
                             ", Got: ", d < grad.dims().size() ? grad.dim(d) : 0));
  }
  out.push_back(self);
}

// --- patches

struct Patches {
  IntList kernel, dilation, padding, stride;  // height, width
};
Patches patches_of(const Args& a) {
  auto two = [&](const char* name) {
    IntList v = a.ints(name);
    if (v.size() == 1) v.push_back(v[0]);
    return v;
  };
  Patches p{two("kernel_size"), two("dilation"), two("padding"), two("stride")};
  auto positive = [](const IntList& v, const char* what, const char* side) {
    if (v[0] <= 0 || v[1] <= 0)
      fail(Code::kRuntime, cat(what, " should be greater than zero, but got ", side,
                               "_height: ", v[0], " ", side, "_width: ", v[1]));
  };
  positive(p.kernel, "kernel size", "kernel");
  positive(p.dilation, "dilation", "dilation");
  positive(p.stride, "stride", "stride");
  if (p.padding[0] < 0 || p.padding[1] < 0)
    fail(Code::kRuntime, cat("padding should be non-negative, but got pad_height: ", p.padding[0],
                             " pad_width: ", p.padding[1]));
  return p;
}
// Windows along one image dim of n positions.
int64_t windows(const Patches& p, size_t i, int64_t n) {
  int64_t room = checked_add(n, checked_mul(2, p.padding[i])) -
                 checked_mul(p.dilation[i], p.kernel[i] - 1) - 1;
  return room < 0 ? 0 : room / p.stride[i] + 1;
}

void im2col_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  Patches p = patches_of(a);
  bool batched = self.rank() == 4;
  bool ok = (self.rank() == 3 && self.dim(0) != 0 && self.dim(1) != 0 && self.dim(2) != 0) ||
            (batched && self.dim(1) != 0 && self.dim(2) != 0 && self.dim(3) != 0);
  if (!ok)
    fail(Code::kRuntime,
         cat("Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
             "non-zero dimensions for input, but got: ",
             size_text(self.dims())));
  size_t c = batched ? 1 : 0;
  int64_t h = windows(p, 0, self.dim(c + 1)), w = windows(p, 1, self.dim(c + 2));
  if (h < 1 || w < 1)
    fail(Code::kRuntime,
         cat("Given input with spatial size (", self.dim(c + 1), ", ", self.dim(c + 2),
             "), kernel_size=(", p.kernel[0], ", ", p.kernel[1], "), dilation=(", p.dilation[0],
             ", ", p.dilation[1], "), padding=(", p.padding[0], ", ", p.padding[1],
             "), calculated shape of the array of sliding blocks as (", h, ", ", w,
             "), but its components must be at least one."));
  IntList dims{checked_mul(self.dim(c), checked_mul(p.kernel[0], p.kernel[1])), checked_mul(h, w)};
  if (batched) dims.insert(dims.begin(), self.dim(0));
  out.push_back(self.with(dims));
}

// [.., n, ..] -> [.., kernel, windows, ..] at dim d.
V windows_of(Builder& b, V x, int64_t d, const Patches& p, size_t i, int64_t count) {
  std::vector<V> parts;
  for (int64_t k = 0; k < p.kernel[i]; ++k) {
    int64_t start = k * p.dilation[i];
    V part = b.slice_dim(x, d, start, start + (count - 1) * p.stride[i] + 1, p.stride[i]);
    IntList dims = dims_of(part.type);
    dims.insert(dims.begin() + d, 1);
    parts.push_back(b.reshape(part, dims));
  }
  return b.concat(parts, d);
}
void im2col_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  Patches p = patches_of(l);
  if (x.rank() == 3) x = b.reshape(x, IntList{1, x.dim(0), x.dim(1), x.dim(2)});
  int64_t h = windows(p, 0, x.dim(2)), w = windows(p, 1, x.dim(3));
  IntList edge{0, 0, p.padding[0], p.padding[1]}, none(4, 0);
  x = b.pad(x, b.zeros(ir::scalar_type(x.dtype())), edge, edge, none);
  x = windows_of(b, x, 2, p, 0, h);               // N C kh h W
  x = windows_of(b, x, 4, p, 1, w);               // N C kh h kw w
  x = b.transpose(x, IntList{0, 1, 2, 4, 3, 5});  // N C kh kw h w
  out.push_back(b.reshape(x, l.out().dims()));
}

void col2im_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  Patches p = patches_of(a);
  IntList image = a.ints("output_size");
  bool batched = self.rank() == 3;
  bool ok = (self.rank() == 2 && self.dim(0) != 0 && self.dim(1) != 0) ||
            (batched && self.dim(1) != 0 && self.dim(2) != 0);
  if (!ok)
    fail(Code::kRuntime,
         cat("Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size "
             "and non-zero dimensions for input, but got: ",
             size_text(self.dims())));
  int64_t planes = self.dim(batched ? 1 : 0), block = checked_mul(p.kernel[0], p.kernel[1]);
  if (planes % block != 0)
    fail(Code::kRuntime,
         cat("Expected size of input's dimension 1 to be divisible by the product of "
             "kernel_size, but got input.size(1)=",
             planes, " and kernel_size=(", p.kernel[0], ", ", p.kernel[1], ")."));
  int64_t h = windows(p, 0, image[0]), w = windows(p, 1, image[1]), have = self.dims().back();
  if (have != checked_mul(h, w))
    fail(Code::kRuntime,
         cat("Given output_size=(", image[0], ", ", image[1], "), kernel_size=(", p.kernel[0], ", ",
             p.kernel[1], "), dilation=(", p.dilation[0], ", ", p.dilation[1], "), padding=(",
             p.padding[0], ", ", p.padding[1], "), stride=(", p.stride[0], ", ", p.stride[1],
             "), expected size of input's dimension 2 to match the calculated number of "
             "sliding blocks ",
             h, " * ", w, " = ", h * w, ", but got input.size(2)=", have, "."));
  IntList dims{planes / block, image[0], image[1]};
  if (batched) dims.insert(dims.begin(), self.dim(0));
  out.push_back(self.with(dims));
}

// [.., kernel, windows, ..] at dim d -> [.., n, ..], overlaps summed.
V overlap_add(Builder& b, V x, int64_t d, const Patches& p, size_t i, int64_t n) {
  std::vector<V> terms;
  IntList offsets;
  for (int64_t k = 0; k < p.kernel[i]; ++k) {
    V part = b.slice_dim(x, d, k, k + 1);
    IntList dims = dims_of(part.type);
    dims.erase(dims.begin() + d);
    terms.push_back(b.reshape(part, dims));
    offsets.push_back(k * p.dilation[i] - p.padding[i]);
  }
  return spread(b, terms, offsets, d, p.stride[i], n);
}
void col2im_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = l.out();
  if (t.numel() == 0) return out.push_back(b.zeros(t));
  V x = b.convert(l.in("self"), ir::compute_dtype(t.dtype()));
  Patches p = patches_of(l);
  IntList image = l.ints("output_size");
  int64_t n = t.rank() == 4 ? t.dim(0) : 1, c = t.dim(t.rank() == 4 ? 1 : 0);
  int64_t h = windows(p, 0, image[0]), w = windows(p, 1, image[1]);
  x = b.reshape(x, IntList{n, c, p.kernel[0], p.kernel[1], h, w});
  x = b.transpose(x, IntList{0, 1, 2, 4, 3, 5});  // N C kh h kw w
  x = overlap_add(b, x, 4, p, 1, image[1]);       // N C kh h W
  x = overlap_add(b, x, 2, p, 0, image[0]);
  put(l, out, b.reshape(x, t.dims()));
}

// --- unfold's gradient

void unfold_backward_type(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type("grad_in").with(a.ints("input_sizes")));
}
void unfold_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  constexpr int64_t kUnrolled = 16;
  Type t = l.out();
  V g = b.convert(l.in("grad_in"), ir::compute_dtype(t.dtype()));
  int64_t size = l.i("size"), step = l.i("step");
  if (g.type.numel() == 0 || t.numel() == 0) return out.push_back(b.zeros(t));
  if (t.rank() == 0) return put(l, out, b.reduce(g, IntList{0}, Builder::Red::kSum));
  int64_t d = l.dim("dim", t.rank()), last = g.rank() - 1, n = t.dim(static_cast<size_t>(d));
  if (size <= kUnrolled) {
    std::vector<V> terms;
    IntList dims(g.dims().begin(), g.dims().end() - 1);
    for (int64_t k = 0; k < size; ++k)
      terms.push_back(b.reshape(b.slice_dim(g, last, k, k + 1), dims));
    return put(l, out, spread(b, terms, iota_dims(size), d, step, n));
  }
  int64_t count = g.dim(static_cast<size_t>(d));
  IntList perm = iota_dims(last);
  perm.insert(perm.begin() + d + 1, last);
  Type places = ir::make_type(DType::kS32, IntList{count, size});
  V at = b.add(b.mul(b.iota(places, 0), b.constant_int(step, places)), b.iota(places, 1));
  V flat = b.reshape(b.transpose(g, perm),
                     with_dim(Ints(g.dims()).first(static_cast<size_t>(last)), d, count * size));
  V zeros = b.zeros(t.with(g.dtype()));
  put(l, out, scatter_list(b, zeros, as_1d(b, at), flat, d, Combine::kAdd));
}

constexpr auto reflect = edge_pad_lower<Edge::kReflect>;
constexpr auto reflect_backward = edge_pad_backward_lower<Edge::kReflect>;
constexpr auto replicate = edge_pad_lower<Edge::kReplicate>;
constexpr auto replicate_backward = edge_pad_backward_lower<Edge::kReplicate>;

}  // namespace

Family pad_rows() {
  static const Row kRows[] = {
      {.name = "aten::constant_pad_nd",
       .type = constant_pad_type,
       .lower = constant_pad_lower,
       .layout = Layout::kSuggested,
       .general = "pad",
       .split = split_pad},
      {.name = "aten::reflection_pad1d",
       .lower = reflect,
       .kernels = {{"reflection_pad1d", takes::kNoBools}}},
      {.name = "aten::reflection_pad2d",
       .type = reflection_pad2d_type,
       .lower = reflect,
       .layout = Layout::kSuggested,
       .kernels = {{"reflection_pad2d", takes::kNoBools}}},
      {.name = "aten::reflection_pad3d",
       .lower = reflect,
       .kernels = {{"reflection_pad3d", takes::kNoBools}}},
      {.name = "aten::reflection_pad1d_backward", .lower = reflect_backward},
      {.name = "aten::reflection_pad2d_backward",
       .type = edge_pad_backward_type,
       .lower = reflect_backward},
      {.name = "aten::reflection_pad3d_backward", .lower = reflect_backward},
      {.name = "aten::replication_pad1d",
       .lower = replicate,
       .kernels = {{"replication_pad1d", takes::kNoBools}}},
      {.name = "aten::replication_pad2d",
       .lower = replicate,
       .kernels = {{"replication_pad2d", takes::kNoBools}}},
      {.name = "aten::replication_pad3d",
       .lower = replicate,
       .kernels = {{"replication_pad3d", takes::kNoBools}}},
      {.name = "aten::replication_pad1d_backward", .lower = replicate_backward},
      {.name = "aten::replication_pad2d_backward",
       .type = edge_pad_backward_type,
       .lower = replicate_backward},
      {.name = "aten::replication_pad3d_backward",
       .type = edge_pad_backward_type,
       .lower = replicate_backward},
      {.name = "aten::im2col",
       .type = im2col_type,
       .lower = im2col_lower,
       .kernels = {{"im2col_out_cpu", takes::kInexact | takes::kBools}}},
      {.name = "aten::col2im",
       .type = col2im_type,
       .lower = col2im_lower,
       .kernels = {{"col2im_out_cpu", takes::kInexact | takes::kBools}}},
      {.name = "aten::unfold_backward",
       .type = unfold_backward_type,
       .lower = unfold_backward_lower},
  };
  return kRows;
}

}  // namespace tp::ops
