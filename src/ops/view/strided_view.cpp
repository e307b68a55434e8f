// read_view and write_view: a view plan as StableHLO. Whole dims keep their place: the root is put
// in memory order only where the plan merges dims that are not neighbours. Any thread.
#include "ops/view/strided_view.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/sizes.h"
#include "base/text.h"
#include "ops/core/helpers.h"
#include "ops/view/view_starts.h"

namespace tp::ops {
namespace {

int64_t product(Ints v) {
  return std::accumulate(v.begin(), v.end(), int64_t{1}, std::multiplies<>());
}

IntList identity(size_t n) {
  IntList v(n);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

IntList permuted(Ints v, Ints perm) {
  IntList out;
  for (int64_t p : perm) out.push_back(v[static_cast<size_t>(p)]);
  return out;
}

// --- plan to statements

// Where each segment stands: in the root's own order where each is a run of neighbours there.
struct Placement {
  bool natural = false;
  std::vector<ViewSegment> segments;  // in the order of the value
  std::vector<ViewLevel> levels;      // likewise
};

bool is_run(const ViewSegment& s, const IntList& order) {
  for (int d = s.dim_begin + 1; d < s.dim_end; ++d)
    if (order[static_cast<size_t>(d)] != order[static_cast<size_t>(d - 1)] + 1) return false;
  return true;
}

Placement place(const ViewPlan& plan, const IntList& order) {
  Placement p;
  p.natural = std::all_of(plan.segments.begin(), plan.segments.end(),
                          [&](const ViewSegment& s) { return is_run(s, order); });
  p.segments = plan.segments;
  if (p.natural)
    std::sort(
        p.segments.begin(), p.segments.end(), [&](const ViewSegment& a, const ViewSegment& b) {
          return order[static_cast<size_t>(a.dim_begin)] < order[static_cast<size_t>(b.dim_begin)];
        });
  for (const ViewSegment& s : p.segments)
    p.levels.insert(p.levels.end(), plan.levels.begin() + s.level_begin,
                    plan.levels.begin() + s.level_end);
  return p;
}

// A strided level over whole steps as two levels of step 1: writing then is a dynamic_update_slice.
std::vector<ViewLevel> without_steps(const std::vector<ViewLevel>& levels) {
  std::vector<ViewLevel> out;
  for (const ViewLevel& l : levels) {
    if (l.step == 1 || l.extent % l.step != 0) {
      out.push_back(l);
      continue;
    }
    out.push_back(
        {l.extent / l.step, l.start / l.step, l.count, 1, l.view_dim, l.input, l.step, false});
    out.push_back({l.step, l.start % l.step, 1, 1, -1, l.input, l.step, true});
  }
  return out;
}

bool sliced(const std::vector<ViewSegment>& segments) {
  return !std::all_of(segments.begin(), segments.end(),
                      [](const ViewSegment& s) { return s.whole(); });
}

IntList extents(const std::vector<ViewSegment>& segments) {
  IntList v;
  for (const ViewSegment& s : segments) v.push_back(s.extent);
  return v;
}
IntList extents(const std::vector<ViewLevel>& levels) {
  IntList v;
  for (const ViewLevel& l : levels) v.push_back(l.extent);
  return v;
}
IntList counts(const std::vector<ViewLevel>& levels) {
  IntList v;
  for (const ViewLevel& l : levels) v.push_back(l.count);
  return v;
}

V slice_segments(Builder& b, V v, const std::vector<ViewSegment>& segments, Starts starts) {
  if (!sliced(segments)) return v;
  v = b.reshape(v, extents(segments));
  if (any(starts)) {
    IntList lengths;
    for (const ViewSegment& s : segments) lengths.push_back(s.slice_len);
    return b.dynamic_slice(v, starts_of(b, starts, segments), lengths);
  }
  IntList start, limit, step(segments.size(), 1);
  for (const ViewSegment& s : segments) {
    start.push_back(s.slice_start);
    limit.push_back(s.slice_start + s.slice_len);
  }
  return b.slice(v, start, limit, step);
}

V slice_levels(Builder& b, V v, const std::vector<ViewLevel>& levels, Starts starts) {
  v = b.reshape(v, extents(levels));
  if (any(starts)) {  // first the span that moves, then its steps
    IntList spans;
    for (const ViewLevel& l : levels) spans.push_back((l.count - 1) * l.step + 1);
    v = b.dynamic_slice(v, starts_of(b, starts, levels), spans);
  }
  IntList start, limit, step;
  for (const ViewLevel& l : levels) {
    start.push_back(any(starts) ? 0 : l.start);
    limit.push_back(start.back() + (l.count - 1) * l.step + 1);
    step.push_back(l.count == 1 ? 1 : l.step);
  }
  return b.slice(v, start, limit, step);
}

// --- from the sliced value to the view's shape

// reshape to `dims`, then transpose by `perm`: gives the view without its broadcasts.
struct Arrangement {
  IntList dims, perm;
};

// The view's dims with broadcast ones as 1.
IntList core_dims(const ViewSpec& s) {
  IntList v = s.size;
  for (size_t i = 0; i < v.size(); ++i)
    if (s.stride[i] == 0) v[i] = 1;
  return v;
}

// Dims that move, in the order of the value.
IntList moving(const std::vector<ViewLevel>& levels) {
  IntList v;
  for (const ViewLevel& l : levels)
    if (l.view_dim >= 0) v.push_back(l.view_dim);
  return v;
}

// Unit dims of value and view are as many: a transpose alone does it.
Arrangement transpose_only(const std::vector<ViewLevel>& levels, const IntList& core) {
  Arrangement a{counts(levels), {}};
  std::vector<int64_t> at(core.size(), -1), free;
  for (size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].view_dim >= 0)
      at[static_cast<size_t>(levels[i].view_dim)] = static_cast<int64_t>(i);
    else
      free.push_back(static_cast<int64_t>(i));
  }
  size_t next = 0;
  for (int64_t p : at) a.perm.push_back(p >= 0 ? p : free[next++]);
  return a;
}

Arrangement arrange(const std::vector<ViewLevel>& levels, const IntList& core) {
  IntList moved = moving(levels);
  if (std::is_sorted(moved.begin(), moved.end())) return {core, identity(core.size())};
  if (levels.size() == core.size()) return transpose_only(levels, core);
  // Unit dims of the view go behind the moving dim that they follow in the view.
  IntList key(core.size()), order = identity(core.size());
  for (size_t i = 0; i < moved.size(); ++i)
    key[static_cast<size_t>(moved[i])] = static_cast<int64_t>(i) + 1;
  for (size_t d = 1; d < core.size(); ++d)
    if (key[d] == 0) key[d] = key[d - 1];
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return key[static_cast<size_t>(x)] < key[static_cast<size_t>(y)];
  });
  return {permuted(core, order), inverse_permutation(order)};
}

// --- overlapping windows

// Memory positions of the view's elements: [size..., 1].
V view_positions(Builder& b, const IntList& size, const ViewSpec& spec, int64_t elements,
                 Starts starts) {
  DType t = elements <= INT32_MAX ? DType::kS32 : DType::kS64;
  Type type = ir::make_type(t, size);
  V sum;
  for (size_t d = 0; d < size.size(); ++d) {
    if (size[d] == 1 || spec.stride[d] == 0) continue;
    V term = b.mul(b.iota(type, static_cast<int64_t>(d)), b.constant_int(spec.stride[d], type));
    sum = sum ? b.add(sum, term) : term;
  }
  V offset = any(starts) ? b.broadcast_to(b.convert(starts[0], t), size)
                         : b.constant_int(spec.offset, type);
  sum = sum ? b.add(sum, offset) : offset;
  IntList dims = size;
  dims.push_back(1);
  return b.reshape(sum, dims);
}

V gather_view(Builder& b, V flat, const ViewSpec& spec, Starts starts) {
  IntList size = core_dims(spec);
  V at = view_positions(b, size, spec, flat.type.numel(), starts);
  hlo::GatherConfig c{.offset_dims = {},
                      .collapsed = {0},
                      .start_index_map = {0},
                      .slice_sizes = {1},
                      .index_vector_dim = static_cast<int64_t>(size.size()),
                      .sorted = false};
  return b.gather(flat, at, ir::make_type(flat.dtype(), size), c);
}

V scatter_view(Builder& b, V flat, V src, const ViewSpec& spec, Starts starts) {
  V at = view_positions(b, spec.size, spec, flat.type.numel(), starts);
  hlo::ScatterConfig c{.update_window_dims = {},
                       .inserted_window_dims = {0},
                       .scatter_dims_to_operand = {0},
                       .index_vector_dim = static_cast<int64_t>(spec.size.size()),
                       .sorted = false,
                       .unique = true};
  return b.scatter(flat, at, src, c,
                   [](Builder&, std::span<const V> x) -> std::vector<V> { return {x[1]}; });
}

// --- writing

// Strided levels: the update spread by padding, selected by a mask of the same padding.
V update_strided(Builder& b, V base, V update, const std::vector<ViewLevel>& levels) {
  IntList low, high, interior;
  for (const ViewLevel& l : levels) {
    int64_t step = l.count == 1 ? 1 : l.step;
    low.push_back(l.start);
    high.push_back(l.extent - l.start - (l.count - 1) * step - 1);
    interior.push_back(step - 1);
  }
  V spread = b.pad(update, b.zeros(ir::scalar_type(update.dtype())), low, high, interior);
  Type pred = update.type.with(DType::kPred);
  V mask = b.pad(b.ones(pred), b.zeros(ir::scalar_type(DType::kPred)), low, high, interior);
  return b.select(mask, spread, base);
}

// `base` has the levels' extents.
V update_levels(Builder& b, V base, V update, const std::vector<ViewLevel>& levels, Starts starts) {
  bool dense = std::all_of(levels.begin(), levels.end(),
                           [](const ViewLevel& l) { return l.count == 1 || l.step == 1; });
  return dense ? b.dynamic_update_slice(base, update, starts_of(b, starts, levels))
               : update_strided(b, base, update, levels);
}

// Memory (in the placement's order) with `update` (the levels' counts) written into it.
V write_levels(Builder& b, V memory, V update, const Placement& p,
               const std::vector<ViewLevel>& levels, Starts starts) {
  if (counts(levels) != extents(levels)) {
    V base = b.reshape(slice_segments(b, memory, p.segments, starts), extents(levels));
    update = update_levels(b, base, update, levels, starts);
  }
  if (sliced(p.segments)) {
    IntList lengths;
    for (const ViewSegment& s : p.segments) lengths.push_back(s.slice_len);
    V base = b.reshape(memory, extents(p.segments));
    update =
        b.dynamic_update_slice(base, b.reshape(update, lengths), starts_of(b, starts, p.segments));
  }
  return b.reshape(update, memory.dims());
}

// The update among zeros: padding instead of an update.
V pad_levels(Builder& b, V update, const Placement& p, V zero) {
  IntList low, high, interior;
  for (const ViewLevel& l : p.levels) {
    int64_t step = l.count == 1 ? 1 : l.step;
    low.push_back(l.start);
    high.push_back(l.extent - l.start - (l.count - 1) * step - 1);
    interior.push_back(step - 1);
  }
  V v = b.pad(update, zero, low, high, interior);
  if (!sliced(p.segments)) return v;
  IntList lengths, before, after, none(p.segments.size(), 0);
  for (const ViewSegment& s : p.segments) {
    lengths.push_back(s.slice_len);
    before.push_back(s.slice_start);
    after.push_back(s.extent - s.slice_start - s.slice_len);
  }
  return b.pad(b.reshape(v, lengths), zero, before, after, none);
}

// In the value's order, for a plan over dims `order` of a root of the view's own type.
IntList order_of(const IntList& order, bool natural) {
  return natural ? identity(order.size()) : order;
}

}  // namespace

IntList memory_order(Ints dims, Ints base_stride) {
  check(dims.size() == base_stride.size(), "a root has one stride for each dimension");
  IntList order = identity(dims.size());
  bool ascending = true;
  int64_t last = INT64_MAX;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 1) continue;
    ascending &= base_stride[d] < last;
    last = base_stride[d];
  }
  if (!ascending)
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return base_stride[static_cast<size_t>(a)] > base_stride[static_cast<size_t>(b)];
    });
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    auto d = static_cast<size_t>(order[i]);
    check(dims[d] == 1 || product(dims) == 0 || base_stride[d] == expected,
          "a root's strides are a dense permutation");
    expected *= dims[d];
  }
  return order;
}

V flat_memory(Builder& b, V root, Ints base_stride) {
  return b.reshape(b.transpose(root, memory_order(root.dims(), base_stride)),
                   IntList{root.type.numel()});
}

void check_view(const ViewSpec& s, Type root) {
  check(s.size.size() == s.stride.size(), "a view has one stride for each dimension");
  int64_t item = ir::dtype_size(s.dtype);
  auto extent = window_extent(s.size, s.stride, s.offset);
  auto need = extent ? product_of(std::span(&*extent, 1), item) : std::nullopt;
  if (!need || *need > root.bytes())
    fail(Code::kRuntime,
         cat("setStorage: sizes [", join(s.size, ", "), "], strides [", join(s.stride, ", "),
             "], storage offset ", s.offset, ", and itemsize ", item,
             need ? cat(" requiring a storage size of ", *need) : std::string(),
             " are out of bounds for storage of size ", root.bytes()));
}

V read_view(Builder& b, V root, const ViewSpec& spec, Starts starts) {
  Type type = ir::make_type(spec.dtype, spec.size);
  if (type.numel() == 0) return b.zeros(type);
  IntList order = memory_order(root.dims(), spec.base_stride);
  V memory = root;
  if (spec.dtype != root.dtype()) {
    memory = as_memory(b, root, order, spec.dtype);
    order = identity(memory.dims().size());
  }
  IntList dims = permuted(memory.dims(), order);
  ViewPlan plan = plan_view(dims, spec.size, spec.stride, spec.offset);
  number_starts(plan, ViewUse::kRead);
  V v;
  if (plan.gather) {
    v = gather_view(b, b.reshape(b.transpose(memory, order), IntList{product(dims)}), spec, starts);
  } else {
    Placement p = place(plan, order);
    v = slice_segments(b, b.transpose(memory, order_of(order, p.natural)), p.segments, starts);
    v = slice_levels(b, v, p.levels, starts);
    Arrangement a = arrange(p.levels, core_dims(spec));
    v = b.transpose(b.reshape(v, a.dims), a.perm);
  }
  return b.broadcast(v, type, identity(spec.size.size()));
}

V spread_view(Builder& b, Type root, V src, const ViewSpec& spec, Starts starts) {
  check(spec.dtype == root.dtype(), "a spread keeps the element type");
  IntList order = memory_order(root.dims(), spec.base_stride);
  ViewPlan plan{.gather = true, .segments = {}, .levels = {}};
  if (src.type.numel() != 0)
    plan = plan_view(permuted(root.dims(), order), spec.size, spec.stride, spec.offset);
  if (plan.gather || any(starts)) return write_view(b, b.zeros(root), src, spec, starts);
  Placement p = place(plan, order);
  Arrangement a = arrange(p.levels, core_dims(spec));
  V update = b.reshape(b.transpose(src, inverse_permutation(a.perm)), counts(p.levels));
  V zero = b.zeros(ir::scalar_type(src.dtype()));
  IntList perm = order_of(order, p.natural);
  V memory = b.reshape(pad_levels(b, update, p, zero), permuted(root.dims(), perm));
  return b.transpose(memory, inverse_permutation(perm));
}

V write_view(Builder& b, V root, V src, const ViewSpec& spec, Starts starts) {
  if (src.type.numel() == 0) return root;
  for (size_t i = 0; i < spec.size.size(); ++i)
    if (spec.size[i] > 1 && spec.stride[i] == 0)
      fail(Code::kRuntime,
           "unsupported operation: more than one element of the written-to tensor refers to a "
           "single memory "
           "location. Please clone() the tensor before performing the operation.");
  IntList order = memory_order(root.dims(), spec.base_stride);
  V memory = root;
  IntList memory_perm = order;
  if (spec.dtype != root.dtype()) {
    memory = as_memory(b, root, order, spec.dtype);
    memory_perm = identity(memory.dims().size());
  }
  IntList dims = permuted(memory.dims(), memory_perm);
  ViewPlan plan = plan_view(dims, spec.size, spec.stride, spec.offset);
  number_starts(plan, ViewUse::kWrite);
  if (plan.gather) {
    V flat = b.reshape(b.transpose(memory, memory_perm), IntList{product(dims)});
    memory = b.reshape(scatter_view(b, flat, src, spec, starts), dims);
    memory = b.transpose(memory, inverse_permutation(memory_perm));
  } else {
    Placement p = place(plan, memory_perm);
    std::vector<ViewLevel> levels = without_steps(p.levels);
    Arrangement a = arrange(levels, core_dims(spec));
    V update = b.reshape(b.transpose(src, inverse_permutation(a.perm)), counts(levels));
    IntList perm = order_of(memory_perm, p.natural);
    memory = write_levels(b, b.transpose(memory, perm), update, p, levels, starts);
    memory = b.transpose(memory, inverse_permutation(perm));
  }
  return spec.dtype == root.dtype() ? memory : from_memory(b, memory, root, order);
}

}  // namespace tp::ops
