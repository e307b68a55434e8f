// The strided-view resolver: a PyTorch view (size, stride, offset) of a dense root value as
// reshape, slice, transpose and broadcast, or as one gather where windows overlap. plan_view is
// arithmetic; read_view and write_view turn a plan into statements. Any thread, one Builder each.
#pragma once
#include <cstdint>
#include <vector>

#include "hlo/builder.h"

namespace tp::ops {

using hlo::Builder;
using hlo::IntList;
using hlo::Ints;
using hlo::V;
using ir::DType;
using ir::Type;

// One dimension of the reshaped memory and the slice taken of it: `count` elements from `start`.
struct ViewLevel {
  int64_t extent, start, count, step;
  int view_dim;  // the view's dimension it becomes; -1: a single element, dropped
  // Where `start` may be an input of the program: its place among the view's starts, and what of
  // it this level takes: the quotient by `divisor`, the remainder, or (0) all.
  int input = -1;
  int64_t divisor = 0;
  bool remainder = false;
};

// A run of memory dims, handled as one flat dim of `extent`: sliced to [slice_start, slice_start +
// slice_len) and reshaped to levels [level_begin, level_end).
struct ViewSegment {
  int dim_begin, dim_end;
  int64_t extent, slice_start, slice_len;
  int level_begin, level_end;
  int input = -1;  // likewise, of slice_start
  bool whole() const { return slice_len == extent; }
};

struct ViewPlan {
  bool gather = false;  // no slicing expresses the view; the lists are empty
  std::vector<ViewSegment> segments;
  std::vector<ViewLevel> levels;
};

// Plans the view over row-major memory of `dims`. The view is not empty and lies within the memory.
// Dims of size 1 and of stride 0 take part as absent ones.
ViewPlan plan_view(Ints dims, Ints size, Ints stride, int64_t offset);

struct ViewSpec {
  IntList base_stride, size, stride;
  int64_t offset = 0;
  DType dtype = DType::kF32;  // sizes, strides and offset count elements of it
};

// What of a view may change while its program stays: the starts of its slices (of a gather, its
// offset). Reads and writes differ in which starts can be inputs. `structure` gets what the starts
// leave of the view. Elements of another type than the root's: none.
enum class ViewUse { kRead, kWrite };
std::vector<int64_t> view_starts(const ViewSpec& spec, Type root, ViewUse use,
                                 std::vector<uint64_t>& structure);

// Throws unless the spec lies within a root of type `root`.
void check_view(const ViewSpec& spec, Type root);
// `starts`: 0-d s64 values in the order of view_starts; an invalid V, or none at all: as the spec
// says.
V read_view(Builder& b, V root, const ViewSpec& spec, std::span<const V> starts = {});
// The root with `src` (type dtype[size]) written through the view, which must not overlap itself.
V write_view(Builder& b, V root, V src, const ViewSpec& spec, std::span<const V> starts = {});
// The same for a root of zeros; the view must not overlap itself.
V spread_view(Builder& b, Type root, V src, const ViewSpec& spec, std::span<const V> starts = {});

// The root in memory order as elements of t; a tail shorter than one element is left out. And the
// way back: memory as a root, with that tail taken from the old root.
V as_memory(Builder& b, V root, const IntList& order, DType t);
V from_memory(Builder& b, V memory, V root, const IntList& order);
// Logical dims of a dense root, outermost in memory first; fails where base_stride isn't dense.
IntList memory_order(Ints dims, Ints base_stride);
// The root's elements in memory order, as one dimension.
V flat_memory(Builder& b, V root, Ints base_stride);

}  // namespace tp::ops
