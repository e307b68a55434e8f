// Convolution and its backward, any number of spatial dims. Everything is one correlation of [N, C,
// s...] with [O, C/groups, k...]; a transposed convolution is the input gradient of a plain one.
#include <algorithm>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/host/choice.h"
#include "ops/nn/conv_shape.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

// CPU compilers' grouped loops are slow (measured: 2-300 times), so for CPUs a depthwise
// convolution of up to this many kernel positions becomes multiply-adds, and one of few groups a
// convolution a group.
constexpr int64_t kDepthwiseTaps = 64;
constexpr int64_t kSplitGroups = 8;

struct Window {
  IntList stride, low, high, lhs_dilation, rhs_dilation;
  int64_t groups = 1;
};

IntList range(int64_t from, int64_t to) {
  IntList v;
  for (; from < to; ++from) v.push_back(from);
  return v;
}

IntList ones(size_t n) { return IntList(n, 1); }

IntList joined(std::initializer_list<int64_t> head, Ints tail) {
  IntList v(head);
  v.insert(v.end(), tail.begin(), tail.end());
  return v;
}

Ints spatial(Ints dims) { return dims.subspan(2); }

int64_t volume(Ints dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Sizes of the result of sliding `kernel` over `in`.
IntList slid(const Window& w, Ints in, Ints kernel) {
  IntList out;
  for (size_t i = 0; i < in.size(); ++i) {
    int64_t room = (in[i] - 1) * w.lhs_dilation[i] + 1 + w.low[i] + w.high[i];
    out.push_back((room - (kernel[i] - 1) * w.rhs_dilation[i] - 1) / w.stride[i] + 1);
  }
  return out;
}

// The kernel positions in row-major order.
std::vector<IntList> positions(Ints kernel) {
  std::vector<IntList> all{{}};
  for (int64_t k : kernel) {
    std::vector<IntList> next;
    for (const IntList& p : all)
      for (int64_t i = 0; i < k; ++i) {
        next.push_back(p);
        next.back().push_back(i);
      }
    all = std::move(next);
  }
  return all;
}

// Cuts from x (padded and dilated) what one kernel position sees.
V seen_from(Builder& b, V x, const Window& w, const IntList& at, Ints out) {
  IntList start(2, 0), limit{x.dim(0), x.dim(1)}, step(2, 1);
  for (size_t i = 0; i < at.size(); ++i) {
    start.push_back(at[i] * w.rhs_dilation[i]);
    limit.push_back(start[i + 2] + (out[i] - 1) * w.stride[i] + 1);
    step.push_back(w.stride[i]);
  }
  return b.slice(x, start, limit, step);
}

V padded(Builder& b, V x, const Window& w) {
  IntList interior(2, 0);
  for (int64_t d : w.lhs_dilation) interior.push_back(d - 1);
  return b.pad(x, b.zeros(ir::scalar_type(x.dtype())), joined({0, 0}, w.low),
               joined({0, 0}, w.high), interior);
}

// [N, C, ...] -> [N, C * times, ...], each channel repeated.
V repeat_channels(Builder& b, V x, int64_t times) {
  TapTable taps;
  for (int64_t c = 0; c < x.dim(1) * times; ++c) taps.push_back({{c / times, 1.0}});
  return times == 1 ? x : apply_taps(b, x, 1, taps);
}

bool splits_groups(const Builder& b) { return b.target().has(Fact::kSlowGroups); }

// Of `kernel` dims [O, C/groups, k...] over x.
bool unrolls(const Builder& b, V x, Ints kernel, int64_t groups) {
  return splits_groups(b) && groups > 1 && groups == x.dim(1) && kernel[1] == 1 &&
         volume(spatial(kernel)) <= kDepthwiseTaps;
}

// The g-th of `groups` equal parts of a dim.
V group_of(Builder& b, V v, int64_t dim, int64_t groups, int64_t g) {
  int64_t each = v.dim(static_cast<size_t>(dim)) / groups;
  return b.slice_dim(v, dim, g * each, (g + 1) * each);
}

// One multiply-add a kernel position.
V correlate_depthwise(Builder& b, V x, V kernel, const Window& w) {
  Ints sizes = spatial(kernel.dims());
  IntList out = slid(w, spatial(x.dims()), sizes);
  int64_t channels = kernel.dim(0);
  x = padded(b, repeat_channels(b, x, channels / x.dim(1)), w);
  V flat = b.reshape(kernel, IntList{channels, volume(sizes)});
  int64_t k = 0, channel_dim = 1;
  V sum;
  for (const IntList& at : positions(sizes)) {
    V part = seen_from(b, x, w, at, out);
    V column = b.reshape(b.slice_dim(flat, 1, k, k + 1), {&channels, 1});
    V term = b.mul(part, stretch(b, column, part, {&channel_dim, 1}));
    sum = sum ? b.add(sum, term) : term;
    ++k;
  }
  return sum;
}

// The same of any groups: at each kernel position a product over the channels.
V correlate_shifted(Builder& b, V x, V kernel, const Window& w) {
  Ints sizes = spatial(kernel.dims());
  IntList out = slid(w, spatial(x.dims()), sizes);
  int64_t n = x.dim(0), g = w.groups, in = kernel.dim(1), each = kernel.dim(0) / g, k = 0;
  IntList all = joined({n, g, each, in}, out);
  x = padded(b, x, w);
  V flat = b.reshape(kernel, IntList{g, each, in, volume(sizes)});
  IntList from{0, 1, 3}, of_kernel{1, 2, 3}, channel{3};
  for (size_t i = 4; i < all.size(); ++i) from.push_back(static_cast<int64_t>(i));
  V sum;
  for (const IntList& at : positions(sizes)) {
    V part = b.reshape(seen_from(b, x, w, at, out), joined({n, g, in}, out));
    V column = b.reshape(b.slice_dim(flat, 3, k, k + 1), IntList{g, each, in});
    V products = b.mul(b.broadcast(part, part.type.with(all), from),
                       b.broadcast(column, column.type.with(all), of_kernel));
    V term = b.reduce(products, channel, Builder::Red::kSum);
    sum = sum ? b.add(sum, term) : term;
    ++k;
  }
  return b.reshape(sum, joined({n, g * each}, out));
}

V correlate(Builder& b, V x, V kernel, const Window& w) {
  IntList dims =
      joined({x.dim(0), kernel.dim(0)}, slid(w, spatial(x.dims()), spatial(kernel.dims())));
  Type out = x.type.with(dims);
  if (x.type.numel() == 0 || kernel.type.numel() == 0 || out.numel() == 0) return b.zeros(out);
  if (unrolls(b, x, kernel.dims(), w.groups)) return correlate_depthwise(b, x, kernel, w);
  if (ir::is_wide_int(x.dtype()) && !b.target().has(Fact::kWideConvolutions))
    return correlate_shifted(b, x, kernel, w);
  if (splits_groups(b) && w.groups > 1 && w.groups <= kSplitGroups) {
    Window one = w;
    one.groups = 1;
    std::vector<V> parts;
    for (int64_t g = 0; g < w.groups; ++g)
      parts.push_back(
          correlate(b, group_of(b, x, 1, w.groups, g), group_of(b, kernel, 0, w.groups, g), one));
    return b.concat(parts, 1);
  }
  IntList order = range(0, x.rank());
  return b.conv(x, kernel, out,
                {.stride = w.stride,
                 .pad_low = w.low,
                 .pad_high = w.high,
                 .lhs_dilation = w.lhs_dilation,
                 .rhs_dilation = w.rhs_dilation,
                 .lhs = order,
                 .rhs = order,
                 .out = order,
                 .feature_groups = w.groups,
                 .batch_groups = 1,
                 .reversal = {}});
}

// --- the three products of a plain convolution

// `out` fixes the spatial size: what would not fit is cut at the high end.
V output_of(Builder& b, V x, V kernel, const ConvArgs& c, Ints out) {
  Window w{c.stride, c.padding, {}, ones(c.spatial()), c.dilation, c.groups};
  for (size_t i = 0; i < c.spatial(); ++i) {
    int64_t reach = c.dilation[i] * (kernel.dim(i + 2) - 1) + 1;
    w.high.push_back((out[i] - 1) * c.stride[i] + reach - x.dim(i + 2) - c.padding[i]);
  }
  return correlate(b, x, kernel, w);
}

// [O, C/g, k...] -> [C, O/g, k...], reversed along k.
V turned(Builder& b, V kernel, int64_t groups) {
  Ints k = spatial(kernel.dims());
  int64_t out = kernel.dim(0) / groups, in = kernel.dim(1);
  V split = b.reshape(kernel, joined({groups, out, in}, k));
  IntList perm = range(0, split.rank());
  std::swap(perm[1], perm[2]);
  V swapped = b.reshape(b.transpose(split, perm), joined({groups * in, out}, k));
  return b.reverse(swapped, range(2, kernel.rank()));
}

V input_gradient(Builder& b, V grad, V kernel, const ConvArgs& c, Ints in) {
  Window w{ones(c.spatial()), {}, {}, c.stride, c.dilation, c.groups};
  for (size_t i = 0; i < c.spatial(); ++i) {
    int64_t reach = c.dilation[i] * (kernel.dim(i + 2) - 1);
    w.low.push_back(reach - c.padding[i]);
    w.high.push_back(in[i] + c.padding[i] - ((grad.dim(i + 2) - 1) * c.stride[i] + 1));
  }
  return correlate(b, grad, turned(b, kernel, c.groups), w);
}

V weight_gradient_depthwise(Builder& b, V x, V grad, const Window& w, Type out) {
  x = padded(b, repeat_channels(b, x, grad.dim(1) / x.dim(1)), w);
  IntList dims = range(0, x.rank());
  dims.erase(dims.begin() + 1);
  std::vector<V> columns;
  for (const IntList& at : positions(spatial(out.dims()))) {
    V part = b.mul(seen_from(b, x, w, at, spatial(grad.dims())), grad);
    columns.push_back(b.reshape(b.reduce(part, dims, Builder::Red::kSum), IntList{out.dim(0), 1}));
  }
  return b.reshape(b.concat(columns, 1), out.dims());
}

// Channels take the batch's place and the gradient the kernel's. Many groups on a CPU: the groups
// go to the features ([N, C, s] as [C/g, g*N, s]), because compilers expand groups of a batch to a
// dense convolution.
V weight_gradient_conv(Builder& b, V x, V grad, const Window& w, Type out) {
  IntList order = range(0, x.rank()), swapped = order, lhs;
  std::swap(swapped[0], swapped[1]);
  lhs = swapped;
  bool features = w.groups > 1 && splits_groups(b);
  if (features) {
    int64_t n = x.dim(0), in = x.dim(1) / w.groups;
    V split = b.reshape(x, joined({n, w.groups, in}, spatial(x.dims())));
    IntList perm = range(0, split.rank());
    std::swap(perm[0], perm[2]);
    x = b.reshape(b.transpose(split, perm), joined({in, w.groups * n}, spatial(x.dims())));
    lhs = order;
  }
  return b.conv(x, grad, out,
                {.stride = w.rhs_dilation,
                 .pad_low = w.low,
                 .pad_high = w.high,
                 .lhs_dilation = w.lhs_dilation,
                 .rhs_dilation = w.stride,
                 .lhs = lhs,
                 .rhs = swapped,
                 .out = swapped,
                 .feature_groups = features ? w.groups : 1,
                 .batch_groups = features ? 1 : w.groups,
                 .reversal = {}});
}

V weight_gradient(Builder& b, V x, V grad, const ConvArgs& c, Type out) {
  if (x.type.numel() == 0 || grad.type.numel() == 0 || out.numel() == 0) return b.zeros(out);
  Window w{c.stride, c.padding, {}, ones(c.spatial()), c.dilation, c.groups};
  for (size_t i = 0; i < c.spatial(); ++i)
    w.high.push_back((out.dim(i + 2) - 1) * c.dilation[i] + (grad.dim(i + 2) - 1) * c.stride[i] +
                     1 - x.dim(i + 2) - c.padding[i]);
  if (unrolls(b, x, out.dims(), c.groups)) return weight_gradient_depthwise(b, x, grad, w, out);
  if (!splits_groups(b) || c.groups == 1 || c.groups > kSplitGroups)
    return weight_gradient_conv(b, x, grad, w, out);
  Type part = out.with(with_dim(out.dims(), 0, out.dim(0) / c.groups));
  w.groups = 1;
  std::vector<V> parts;
  for (int64_t g = 0; g < c.groups; ++g)
    parts.push_back(weight_gradient_conv(b, group_of(b, x, 1, c.groups, g),
                                         group_of(b, grad, 1, c.groups, g), w, part));
  return b.concat(parts, 0);
}

V computed(Lowering& l, std::string_view name) {
  V v = l.in(name);
  return l.builder().convert(v, ir::compute_dtype(v.dtype()));
}

void conv_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input"), w = a.type("weight");
  std::optional<Type> bias = a.opt_type("bias");
  ConvArgs c = conv_args(a, w.rank());
  IntList dims = conv_output_dims(c, x, w, bias);
  check_conv_dtypes(x, w, bias, c.transposed);
  out.push_back(x.with(dims));
}

void conv_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = l.out();
  ConvArgs c = conv_args(l, l.type("weight").rank());
  V x = computed(l, "input"), w = computed(l, "weight"), y;
  if (t.numel() == 0)
    y = b.zeros(t.with(x.dtype()));
  else
    y = c.transposed ? input_gradient(b, x, w, c, spatial(t.dims()))
                     : output_of(b, x, w, c, spatial(t.dims()));
  if (l.has("bias") && t.numel() != 0) {
    int64_t channel = 1;
    y = b.add(y, stretch(b, computed(l, "bias"), y, {&channel, 1}));
  }
  out.push_back(b.convert(y, t.dtype()));
}

void conv_backward_type(const Args& a, std::vector<Type>& out) {
  Type grad = a.type("grad_output"), x = a.type("input"), w = a.type("weight");
  ConvArgs c = conv_args(a, w.rank());
  IntList want = conv_output_dims(c, x, w, std::nullopt);
  check_conv_dtypes(x, w, std::nullopt, c.transposed);
  if (!std::ranges::equal(want, grad.dims()))
    fail(Code::kRuntime, cat("Expected grad_output of size ", size_text(want), " but got ",
                             size_text(grad.dims())));
  IntList mask = a.ints("output_mask");
  int64_t channels = grad.dim(1);
  out.push_back(mask[0] ? x : Type());
  out.push_back(mask[1] ? w : Type());
  out.push_back(mask[2] ? ir::make_type(grad.dtype(), {&channels, 1}) : Type());
}

void conv_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_output"), x = computed(l, "input"), w = computed(l, "weight");
  ConvArgs c = conv_args(l, w.rank());
  V gx, gw, gb;
  if (Type t = l.out(0))
    gx = c.transposed ? output_of(b, grad, w, c, spatial(t.dims()))
                      : input_gradient(b, grad, w, c, spatial(t.dims()));
  if (l.out(1))
    gw = c.transposed ? weight_gradient(b, grad, x, c, w.type)
                      : weight_gradient(b, x, grad, c, w.type);
  if (l.out(2)) {
    IntList dims = range(0, grad.rank());
    dims.erase(dims.begin() + 1);
    gb = b.reduce(grad, dims, Builder::Red::kSum);
  }
  const V results[] = {gx, gw, gb};
  for (size_t i = 0; i < 3; ++i)
    out.push_back(results[i] ? b.convert(results[i], l.out(i).dtype()) : V());
}

constexpr Row kForward = {.name = "aten::convolution",
                          .type = conv_type,
                          .lower = conv_lower,
                          .layout = Layout::kSuggested,
                          .special = Special::kProducts,
                          .faster_on_host = faster_on_host::convolution};
constexpr Row kBackward = {.name = "aten::convolution_backward",
                           .type = conv_backward_type,
                           .lower = conv_backward_lower,
                           .layout = Layout::kSuggested,
                           .special = Special::kProducts,
                           .faster_on_host = faster_on_host::convolution_backward};

// A device's own name of the op: the host's kernel is the op's.
constexpr Row overrideable(Row r, const char* name) {
  r.host_name = r.name;
  r.name = name;
  return r;
}

}  // namespace

Family conv() {
  static const Row kRows[] = {
      overrideable(kForward, "aten::convolution_overrideable"),
      overrideable(kBackward, "aten::convolution_backward_overrideable"),
      kForward,
      kBackward,
  };
  return kRows;
}

}  // namespace tp::ops
