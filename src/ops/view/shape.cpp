// Ops that move whole dims or blocks: cat, stack, flip, roll, repeat, triangles, pixel shuffles,
// trace. The family's rows also come from view_copy.cpp and pad.cpp. Any thread.
#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"
#include "ops/view/shape_rows.h"

namespace tp::ops {
namespace {

// Empty 1-d tensors are skipped, whatever the others' rank: an old habit that eager keeps.
void cat_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  std::vector<V> parts;
  for (const V& v : l.list("tensors"))
    if (v.rank() == l.out().rank() && v.type.numel() != 0)
      parts.push_back(b.convert(v, l.out().dtype()));
  if (parts.empty()) return out.push_back(b.zeros(l.out()));
  int64_t dim = l.has("dim") ? l.dim("dim", l.out().rank()) : 0;
  out.push_back(b.concat(parts, dim));
}

void stack_type(const Args& a, std::vector<Type>& out) {
  std::vector<Type> t = a.types("tensors");
  if (t.empty()) fail(Code::kRuntime, "stack expects a non-empty TensorList");
  DType dtype = t[0].dtype();
  for (size_t i = 1; i < t.size(); ++i) {
    if (!std::ranges::equal(t[i].dims(), t[0].dims()))
      fail(Code::kRuntime,
           cat("stack expects each tensor to be equal size, but got ", size_text(t[0].dims()),
               " at entry 0 and ", size_text(t[i].dims()), " at entry ", i));
    dtype = ir::promote(dtype, t[i].dtype());
  }
  IntList dims = dims_of(t[0]);
  int64_t dim = a.has("dim") ? a.dim("dim", t[0].rank() + 1) : 0;
  dims.insert(dims.begin() + dim, static_cast<int64_t>(t.size()));
  out.push_back(ir::make_type(dtype, dims));
}
void stack_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  std::vector<V> parts = l.list("tensors");
  int64_t dim = l.has("dim") ? l.dim("dim", l.out().rank()) : 0;
  IntList dims = dims_of(parts[0].type);
  dims.insert(dims.begin() + dim, 1);
  for (V& v : parts) v = b.reshape(b.convert(v, l.out().dtype()), dims);
  out.push_back(b.concat(parts, dim));
}

// --- triangles

template <hlo::Cmp keep>
void triangle_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  if (self.type.numel() == 0) return out.push_back(self);
  auto rank = static_cast<size_t>(self.rank());
  Type plane = ir::make_type(DType::kS32, self.dims().last(2));
  int64_t far = std::max(plane.dim(0), plane.dim(1)) + 1;
  V diagonal = b.constant_int(std::clamp(l.i_or("diagonal", 0), -far, far), plane);
  if (V d = l.input("diagonal")) {
    d = b.max(b.min(d, b.constant_int(far, d.type)), b.constant_int(-far, d.type));
    diagonal = b.broadcast_to(b.convert(d, plane.dtype()), plane.dims());
  }
  V row = b.add(b.iota(plane, 0), diagonal);
  V mask = b.compare(b.iota(plane, 1), row, keep);
  IntList last{static_cast<int64_t>(rank) - 2, static_cast<int64_t>(rank) - 1};
  mask = b.broadcast(mask, self.type.with(DType::kPred), last);
  out.push_back(b.select(mask, self, b.zeros(self.type)));
}

// --- order along dims

void flip_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  if (!a.ints("dims").empty()) a.dims("dims", self.rank());
  out.push_back(self);
}
void flip_lower(Lowering& l, std::vector<V>& out) {
  V self = l.in("self");
  bool none = l.ints("dims").empty() || self.rank() == 0;
  out.push_back(none ? self : l.builder().reverse(self, l.dims("dims", self.rank())));
}

void roll_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  IntList shifts = a.ints("shifts"), dims = a.ints_or("dims", {});
  if (shifts.empty()) fail(Code::kRuntime, "`shifts` required");
  if (shifts.size() != dims.size() && !(dims.empty() && shifts.size() == 1))
    fail(Code::kRuntime,
         cat("shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size()));
  int64_t n = std::max(self.rank(), 1);
  if (!dims.empty() && self.rank() == 0)
    fail(Code::kIndex, cat("Dimension specified as ", dims[0], " but tensor has no dimensions"));
  for (int64_t d : dims)
    if (self.numel() && (d < -n || d >= n))  // eager does not look at an empty tensor's
      fail(Code::kIndex, cat("Dimension out of range (expected to be in range of [", -n, ", ",
                             n - 1, "], but got ", d, ")"));
  out.push_back(self);
}
// A shift that is an input: one window of the tensor laid behind itself.
V roll_by(Builder& b, V v, V shift, int64_t dim) {
  int64_t n = v.dim(static_cast<size_t>(dim));
  V size = b.constant_int(n, shift.type);
  V rest = b.binary("stablehlo.remainder", b.neg(shift), size);
  V start = b.binary("stablehlo.remainder", b.add(rest, size), size);
  std::vector<V> starts(static_cast<size_t>(v.rank()), b.zeros(shift.type));
  starts[static_cast<size_t>(dim)] = start;
  V both[] = {v, v};
  return b.dynamic_slice(b.concat(both, dim), starts, v.dims());
}
V roll_dim(Lowering& l, V v, size_t i, int64_t dim) {
  Builder& b = l.builder();
  if (V shift = l.input("shifts", i)) return roll_by(b, v, shift, dim);
  int64_t n = v.dim(static_cast<size_t>(dim)), start = ((-l.ints("shifts")[i]) % n + n) % n;
  if (start == 0) return v;
  V parts[] = {b.slice_dim(v, dim, start, n), b.slice_dim(v, dim, 0, start)};
  return b.concat(parts, dim);
}
void roll_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V v = l.in("self");
  IntList dims = l.ints_or("dims", {});
  if (v.type.numel() == 0 || v.rank() == 0) return out.push_back(v);
  if (dims.empty()) return out.push_back(b.reshape(roll_dim(l, as_1d(b, v), 0, 0), v.dims()));
  for (size_t i = 0; i < dims.size(); ++i)
    v = roll_dim(l, v, i, dims[i] < 0 ? dims[i] + v.rank() : dims[i]);
  out.push_back(v);
}

void repeat_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  IntList dims = a.ints("repeats");
  if (static_cast<int>(dims.size()) < self.rank())
    fail(Code::kRuntime,
         "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
         "tensor");
  size_t fresh = dims.size() - self.dims().size();
  for (size_t i = fresh; i < dims.size(); ++i) dims[i] = checked_mul(dims[i], self.dim(i - fresh));
  for (int64_t d : dims)
    if (d < 0)
      fail(Code::kRuntime,
           cat("Trying to create tensor with negative dimension ", d, ": ", size_text(dims)));
  out.push_back(self.with(dims));
}
// Each dim n repeated r times is a broadcast [r, n] seen flat.
void repeat_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  IntList repeats = l.ints("repeats"), wide, map;
  size_t fresh = repeats.size() - self.dims().size();
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] != 1) wide.push_back(repeats[i]);
    if (i < fresh) continue;
    map.push_back(static_cast<int64_t>(wide.size()));
    wide.push_back(self.dim(i - fresh));
  }
  out.push_back(b.reshape(b.broadcast(self, self.type.with(wide), map), l.out().dims()));
}

// --- channels and pixels

void pixel_shuffle_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  int64_t r = a.i("upscale_factor");
  if (self.rank() < 3)
    fail(Code::kRuntime,
         cat("pixel_shuffle expects input to have at least 3 dimensions, but got input "
             "with ",
             self.rank(), " dimension(s)"));
  if (r <= 0)
    fail(Code::kRuntime, cat("pixel_shuffle expects a positive upscale_factor, but got ", r));
  IntList dims = dims_of(self);
  int64_t* chw = dims.data() + dims.size() - 3;
  if (chw[0] % (r * r) != 0)
    fail(Code::kRuntime,
         cat("pixel_shuffle expects its input's 'channel' dimension to be divisible by "
             "the square of upscale_factor, but input.size(-3)=",
             chw[0], " is not divisible by ", r * r));
  chw[0] /= r * r, chw[1] *= r, chw[2] *= r;
  out.push_back(self.with(dims));
}
void pixel_shuffle_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  int64_t r = l.i("upscale_factor"), n = self.rank() - 3;
  Ints chw = self.dims().last(3);
  IntList split(self.dims().begin(), self.dims().end() - 3), perm = iota_dims(n);
  split.insert(split.end(), {chw[0] / (r * r), r, r, chw[1], chw[2]});
  perm.insert(perm.end(), {n, n + 3, n + 1, n + 4, n + 2});
  out.push_back(b.reshape(b.transpose(b.reshape(self, split), perm), l.out().dims()));
}

void pixel_unshuffle_type(const Args& a, std::vector<Type>& out) {
  static constexpr const char* kNames[] = {"height", "width"};
  Type self = a.type("self");
  int64_t r = a.i("downscale_factor");
  if (self.rank() < 3)
    fail(Code::kRuntime,
         cat("pixel_unshuffle expects input to have at least 3 dimensions, but got input "
             "with ",
             self.rank(), " dimension(s)"));
  if (r <= 0)
    fail(Code::kRuntime, cat("pixel_unshuffle expects a positive downscale_factor, but got ", r));
  IntList dims = dims_of(self);
  int64_t* chw = dims.data() + dims.size() - 3;
  for (int i = 0; i < 2; ++i)
    if (chw[i + 1] % r != 0)
      fail(Code::kRuntime, cat("pixel_unshuffle expects ", kNames[i],
                               " to be divisible by "
                               "downscale_factor, but input.size(",
                               i - 2, ")=", chw[i + 1], " is not divisible by ", r));
  if (self.numel() == 0) return out.push_back(self);  // as eager
  chw[0] *= r * r, chw[1] /= r, chw[2] /= r;
  out.push_back(self.with(dims));
}
void pixel_unshuffle_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  if (self.type.numel() == 0) return out.push_back(self);
  int64_t r = l.i("downscale_factor"), n = self.rank() - 3;
  Ints chw = self.dims().last(3);
  IntList split(self.dims().begin(), self.dims().end() - 3), perm = iota_dims(n);
  split.insert(split.end(), {chw[0], chw[1] / r, r, chw[2] / r, r});
  perm.insert(perm.end(), {n, n + 2, n + 4, n + 1, n + 3});
  out.push_back(b.reshape(b.transpose(b.reshape(self, split), perm), l.out().dims()));
}

void channel_shuffle_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  int64_t groups = a.i("groups");
  if (self.rank() <= 2)
    fail(Code::kRuntime,
         cat("channel_shuffle expects input with > 2 dims, but got input with sizes ",
             size_text(self.dims())));
  if (groups <= 0)
    fail(Code::kRuntime,
         cat("Number of groups to divide channels in must be positive. Value of groups:", groups));
  if (self.dim(1) % groups != 0)
    fail(Code::kRuntime, cat("Number of channels must be divisible by groups. Got ", self.dim(1),
                             " channels and ", groups, " groups."));
  out.push_back(self);
}
void channel_shuffle_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  int64_t groups = l.i("groups");
  IntList split = dims_of(self.type), perm = iota_dims(self.rank() + 1);
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  std::swap(perm[1], perm[2]);
  out.push_back(b.reshape(b.transpose(b.reshape(self, split), perm), self.dims()));
}

// at::canCast
bool casts(DType from, DType to) {
  if (ir::is_complex(from)) return ir::is_complex(to);
  if (ir::is_float(from)) return ir::is_float(to) || ir::is_complex(to);
  return from == DType::kPred || to != DType::kPred;
}
void cat_out(DType result, DType out) {
  if (!casts(result, out))
    fail(Code::kType, cat("torch.cat(): input types can't be cast to the desired output type ",
                          eager_name(out).scalar));
}

constexpr Row kRows[] = {
    {.name = "aten::cat",
     .lower = cat_lower,
     .out = {.check = cat_out, .dtype = OutDtype::kCast, .may_alias = false}},
    {.name = "aten::stack",
     .type = stack_type,
     .lower = stack_lower,
     .layout = Layout::kMeta,
     .out = {.check = cat_out}},
    {.name = "aten::tril", .lower = triangle_lower<hlo::Cmp::kLe>, .general = "diagonal"},
    {.name = "aten::triu", .lower = triangle_lower<hlo::Cmp::kGe>, .general = "diagonal"},
    {.name = "aten::flip", .type = flip_type, .lower = flip_lower, .layout = Layout::kCopyOfFirst},
    {.name = "aten::roll",
     .type = roll_type,
     .lower = roll_lower,
     .layout = Layout::kMeta,
     .general = "shifts"},
    {.name = "aten::repeat", .type = repeat_type, .lower = repeat_lower},
    {.name = "aten::pixel_shuffle",
     .type = pixel_shuffle_type,
     .lower = pixel_shuffle_lower,
     .layout = Layout::kSuggested},
    {.name = "aten::pixel_unshuffle",
     .type = pixel_unshuffle_type,
     .lower = pixel_unshuffle_lower,
     .layout = Layout::kSuggested},
    {.name = "aten::channel_shuffle",
     .type = channel_shuffle_type,
     .lower = channel_shuffle_lower,
     .layout = Layout::kSuggested},
};

}  // namespace

Family shape() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all(std::begin(kRows), std::end(kRows));
    for (Family part : {view_copy_rows(), pad_rows()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return rows;
}

}  // namespace tp::ops
