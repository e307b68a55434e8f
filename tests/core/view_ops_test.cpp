// The strided-view resolver: its plans against plain index arithmetic, its text for the common
// views, and reading and writing through the real plugin.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "harness.h"
#include "ops/view/strided_view.h"

namespace tp::test {
namespace {

using hlo::Builder;
using hlo::IntList;
using hlo::V;
using ops::ViewLevel;
using ops::ViewPlan;
using ops::ViewSpec;

int64_t product(const IntList& v) {
  return std::accumulate(v.begin(), v.end(), int64_t{1}, std::multiplies<>());
}

// Memory positions of the view's elements in view order, straight from the definition.
IntList strided_positions(const IntList& size, const IntList& stride, int64_t offset) {
  IntList out;
  for (int64_t i = 0; i < product(size); ++i) {
    int64_t rest = i, at = offset;
    for (size_t d = size.size(); d-- > 0;) {
      at += rest % size[d] * stride[d];
      rest /= size[d];
    }
    out.push_back(at);
  }
  return out;
}

// Where `place` (counts into each view dim) lands in memory by the plan.
int64_t planned_position(const ViewPlan& plan, const IntList& place) {
  int64_t at = 0;
  for (const ops::ViewSegment& s : plan.segments) {
    int64_t inner = 0;
    for (int i = s.level_begin; i < s.level_end; ++i) {
      const ViewLevel& l = plan.levels[static_cast<size_t>(i)];
      int64_t count = l.view_dim < 0 ? 0 : place[static_cast<size_t>(l.view_dim)];
      EXPECT_LT(l.start + (l.count - 1) * l.step, l.extent);
      inner = inner * l.extent + l.start + count * l.step;
    }
    at = at * s.extent + s.slice_start + inner;
  }
  return at;
}

IntList planned_positions(const ViewPlan& plan, const IntList& size, const IntList& stride) {
  IntList out;
  for (int64_t i = 0; i < product(size); ++i) {
    IntList place(size.size());
    int64_t rest = i;
    for (size_t d = size.size(); d-- > 0;) {
      place[d] = stride[d] == 0 ? 0 : rest % size[d];
      rest /= size[d];
    }
    out.push_back(planned_position(plan, place));
  }
  return out;
}

bool overlaps(IntList at) {
  std::sort(at.begin(), at.end());
  return std::adjacent_find(at.begin(), at.end()) != at.end();
}

// Counts the plans that needed a gather although no two elements share memory.
struct Tally {
  int views = 0, gathers = 0, needless = 0;
};

void check_plan(const IntList& dims, const IntList& size, const IntList& stride, int64_t offset,
                Tally* tally) {
  IntList want = strided_positions(size, stride, offset);
  if (*std::max_element(want.begin(), want.end()) >= product(dims)) return;
  ViewPlan plan = ops::plan_view(dims, size, stride, offset);
  ++tally->views;
  if (plan.gather) {
    ++tally->gathers;
    tally->needless += !overlaps(want);
    return;
  }
  int64_t levels = 1;
  for (const ops::ViewSegment& s : plan.segments) {
    int64_t extent = 1;
    for (int i = s.level_begin; i < s.level_end; ++i)
      extent *= plan.levels[static_cast<size_t>(i)].extent;
    EXPECT_EQ(extent, s.slice_len);
    EXPECT_LE(s.slice_start + s.slice_len, s.extent);
    levels *= s.extent;
  }
  EXPECT_EQ(levels, product(dims));
  ASSERT_EQ(planned_positions(plan, size, stride), want);
}

// Every view of up to two dims, and of three small ones.
Tally all_views(const IntList& dims) {
  Tally tally;
  int64_t n = product(dims);
  for (int64_t offset = 0; offset < n; ++offset) {
    check_plan(dims, {}, {}, offset, &tally);
    for (int64_t c0 = 1; c0 <= n; ++c0)
      for (int64_t t0 = 0; t0 <= n; ++t0) {
        check_plan(dims, {c0}, {t0}, offset, &tally);
        for (int64_t c1 = 1; c1 <= 4; ++c1)
          for (int64_t t1 = 0; t1 <= n; ++t1) check_plan(dims, {c0, c1}, {t0, t1}, offset, &tally);
        if (c0 > 3) continue;
        for (int64_t t1 : {1, 2, 3, 4, 6})
          for (int64_t t2 : {0, 1, 2, 6, 12})
            check_plan(dims, {c0, 2, 2}, {t0, t1, t2}, offset, &tally);
      }
  }
  return tally;
}

TEST(ViewPlan, AgreesWithIndexArithmetic) {
  for (const IntList& dims : std::vector<IntList>{
           {}, {1}, {7}, {12}, {4, 3}, {3, 4}, {2, 3, 2}, {1, 6, 2}, {2, 1, 6}, {13}}) {
    Tally t = all_views(dims);
    EXPECT_GT(t.views, 0);
    // Distinct elements that no slicing reaches are rare: odd as_strided calls.
    EXPECT_LE(t.needless, t.views / 10) << t.gathers << " gathers of " << t.views;
  }
}

TEST(ViewPlan, ManyDimsAgreeToo) {
  Tally t;
  IntList dims{4, 6, 5, 2};
  check_plan(dims, {2, 5, 3, 4}, {1, 2, 10, 60}, 10, &t);    // permuted slice
  check_plan(dims, {2, 2, 3, 10}, {120, 60, 20, 1}, 0, &t);  // split, step
  check_plan(dims, {240}, {1}, 0, &t);                       // flat
  check_plan(dims, {2, 3, 4}, {12, 4, 1}, 7, &t);            // a parameter in a flat buffer
  check_plan(dims, {4, 3, 2}, {1, 4, 12}, 7, &t);            // and transposed
  check_plan(dims, {4, 5}, {61, 12}, 3, &t);                 // diagonal-like
  EXPECT_EQ(t.views, 6);
  EXPECT_LE(t.gathers, 1);
}

// --- text

ViewSpec spec(IntList base_stride, IntList size, IntList stride, int64_t offset = 0,
              ir::DType t = ir::DType::kF32) {
  return {std::move(base_stride), std::move(size), std::move(stride), offset, t};
}

// Names of the statements that read the view.
std::vector<std::string> statements(const IntList& dims, const ViewSpec& s) {
  Builder b;
  V root = b.parameter(ir::make_type(ir::DType::kF32, dims));
  V v = ops::read_view(b, root, s);
  EXPECT_EQ(v.type, ir::make_type(s.dtype, s.size));
  std::string text = b.finish("m", std::vector<V>{v});
  std::vector<std::string> names;
  for (size_t at = 0; (at = text.find("\"stablehlo.", at)) != text.npos;) {
    size_t end = text.find('"', at + 1);
    names.push_back(text.substr(at + 11, end - at - 11));
    at = end + 1;
  }
  return names;
}
using Names = std::vector<std::string>;

TEST(ViewText, EmitsNothingForTheWhole) {
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {4, 6}, {6, 1})), Names{});
  EXPECT_EQ(statements({4, 6}, spec({1, 4}, {4, 6}, {1, 4})), Names{});  // column-major root
  EXPECT_EQ(statements({}, spec({}, {}, {})), Names{});
}

TEST(ViewText, KeepsCommonViewsToOneStatement) {
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {24}, {1})), Names{"reshape"});
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {6, 4}, {1, 6})), Names{"transpose"});
  EXPECT_EQ(statements({2, 3, 4}, spec({12, 4, 1}, {4, 2, 3}, {1, 12, 4})), Names{"transpose"});
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {2, 6}, {6, 1}, 6)), Names{"slice"});
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {4, 3}, {6, 2}, 1)), Names{"slice"});
  EXPECT_EQ(statements({1, 8}, spec({8, 1}, {1, 2}, {8, 1}, 2)), Names{"slice"});
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {4, 1, 6}, {6, 6, 1})), Names{"reshape"});
  EXPECT_EQ(statements({4, 1}, spec({1, 1}, {4, 6}, {1, 0})), Names{"broadcast_in_dim"});
}

TEST(ViewText, SelectsAndMixesInAFewStatements) {
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {6}, {1}, 12)), (Names{"slice", "reshape"}));
  EXPECT_EQ(statements({4, 6}, spec({6, 1}, {6, 2}, {1, 6}, 6)), (Names{"slice", "transpose"}));
  // channels_last: one slice of the root's own dims, no transpose
  EXPECT_EQ(statements({2, 3, 4, 4}, spec({48, 1, 12, 3}, {2, 2, 4, 4}, {48, 1, 12, 3})),
            Names{"slice"});
}

TEST(ViewText, TakesAFlatParameterBySlicing) {
  Names n = statements({100}, spec({1}, {3, 4}, {4, 1}, 7));
  EXPECT_EQ(n, (Names{"slice", "reshape"}));
}

TEST(ViewText, GathersOverlappingWindowsOnce) {
  Names n = statements({10}, spec({1}, {4, 3}, {2, 1}));
  EXPECT_EQ(n.back(), "gather");
  EXPECT_EQ(std::count(n.begin(), n.end(), "gather"), 1);
}

// --- through the plugin

Tensor counted(std::vector<int64_t> dims) {
  std::vector<double> v(static_cast<size_t>(product(dims)));
  std::iota(v.begin(), v.end(), 0.0);
  return f32(std::move(dims), v);
}

OpCall view_call(const char* row, Tensor root, const ViewSpec& s) {
  OpCall c(row);
  c.tensor("self", std::move(root));
  return c.ints("base_stride", s.base_stride)
      .ints("size", s.size)
      .ints("stride", s.stride)
      .integer("storage_offset", s.offset)
      .dtype("dtype", s.dtype);
}

std::vector<double> as_doubles(const IntList& v) { return {v.begin(), v.end()}; }

TEST(ViewRun, ReadsWhatTheMemoryHolds) {
  for (const ViewSpec& s : {spec({6, 1}, {3, 2}, {2, 6}, 1), spec({6, 1}, {5, 3}, {2, 1}, 4),
                            spec({6, 1}, {2, 3}, {0, 7}, 2), spec({6, 1}, {0, 3}, {1, 1})}) {
    auto out = view_call("torch_pjrt::view", counted({4, 6}), s).run();
    EXPECT_EQ(out[0].values(), as_doubles(strided_positions(s.size, s.stride, s.offset)));
  }
}

TEST(ViewRun, ReadsAColumnMajorRootInMemoryOrder) {
  // logical [2,3] with strides (1,2): memory is the transpose
  auto out = view_call("torch_pjrt::view", counted({2, 3}), spec({1, 2}, {6}, {1})).run();
  EXPECT_EQ(out[0].values(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
}

std::vector<double> written(const IntList& dims, const ViewSpec& s) {
  std::vector<double> memory(static_cast<size_t>(product(dims)));
  std::iota(memory.begin(), memory.end(), 0.0);
  double next = -1;
  for (int64_t at : strided_positions(s.size, s.stride, s.offset))
    memory[static_cast<size_t>(at)] = next--;
  return memory;
}

TEST(ViewRun, WritesThroughEveryKindOfView) {
  for (const ViewSpec& s :
       {spec({6, 1}, {4, 6}, {6, 1}), spec({6, 1}, {6, 4}, {1, 6}), spec({6, 1}, {2, 6}, {6, 1}, 6),
        spec({6, 1}, {4, 2}, {6, 4}, 1), spec({6, 1}, {4, 3}, {6, 2}, 1),
        spec({6, 1}, {2, 5}, {5, 1}, 3), spec({6, 1}, {4}, {7}, 0), spec({6, 1}, {3, 2}, {7, 4}, 1),
        spec({6, 1}, {}, {}, 5), spec({6, 1}, {2, 0}, {1, 1})}) {
    std::vector<double> src;
    for (int64_t i = 0; i < product(s.size); ++i) src.push_back(-1.0 - static_cast<double>(i));
    auto out = view_call("torch_pjrt::view_scatter", counted({4, 6}), s)
                   .tensor("src", f32(s.size, src))
                   .run();
    EXPECT_EQ(out[0].values(), written({4, 6}, s));
  }
}

TEST(ViewRun, ReinterpretsMemory) {
  auto bits =
      view_call("torch_pjrt::view", f32({2}, {1.0, -2.0}), spec({1}, {2}, {1}, 0, ir::DType::kS32))
          .run();
  EXPECT_EQ(bits[0].values(), (std::vector<double>{0x3f800000, static_cast<int32_t>(0xc0000000)}));
  auto complex = view_call("torch_pjrt::view", f32({3, 2}, {1, 2, 3, 4, 5, 6}),
                           spec({2, 1}, {3}, {1}, 0, ir::DType::kC64))
                     .run();
  EXPECT_EQ(complex[0].values(), (std::vector<double>{1, 3, 5}));
}

TEST(ViewRun, RefusesWhatLiesOutside) {
  OpCall call = view_call("torch_pjrt::view", counted({4}), spec({1}, {3}, {2}));
  try {
    call.inferred();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kRuntime);
    EXPECT_EQ(e.message(),
              "setStorage: sizes [3], strides [2], storage offset 0, and itemsize 4 requiring a "
              "storage size "
              "of 20 are out of bounds for storage of size 16");
  }
}

TEST(ViewRun, ResizeKeepsMemoryAndPadsWithZeros) {
  OpCall grow("torch_pjrt::resize");
  grow.tensor("self", counted({2, 2})).ints("base_stride", {1, 2}).integer("numel", 6);
  EXPECT_EQ(grow.run()[0].values(), (std::vector<double>{0, 2, 1, 3, 0, 0}));
  OpCall shrink("torch_pjrt::resize");
  shrink.tensor("self", counted({2, 2})).ints("base_stride", {2, 1}).integer("numel", 3);
  EXPECT_EQ(shrink.run()[0].values(), (std::vector<double>{0, 1, 2}));
}

TEST(ViewRun, ExpandStretchesAndSaysWhatDoesNotFit) {
  OpCall e("torch_pjrt::expand");
  e.tensor("self", f32({2, 1}, {1, 2})).ints("size", {2, -1, 3});
  EXPECT_EQ(e.run()[0].values(), (std::vector<double>{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  OpCall bad("torch_pjrt::expand");
  bad.tensor("self", f32({2}, {1, 2})).ints("size", {3});
  EXPECT_THROW(bad.inferred(), Error);
}

TEST(ViewRun, CastsAsEagerDoes) {
  OpCall to_bool("torch_pjrt::cast");
  to_bool.tensor("self", f32({3}, {0.0, 0.5, -2.0})).dtype("dtype", ir::DType::kPred);
  EXPECT_EQ(to_bool.run()[0].values(), (std::vector<double>{0, 1, 1}));
  OpCall to_byte("torch_pjrt::cast");
  to_byte.tensor("self", f32({3}, {-1.0, 2.9, 257.0})).dtype("dtype", ir::DType::kU8);
  EXPECT_EQ(to_byte.run()[0].values(), (std::vector<double>{255, 2, 1}));
}

}  // namespace
}  // namespace tp::test
