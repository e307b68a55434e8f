// Shardings as text, tiles and boxes. That the boxes are those of a numpy model is
// tests/python/test_spmd_model.py's.
#include <gtest/gtest.h>

#include "base/error.h"
#include "shard/boxes.h"
#include "shard/op_sharding.h"
#include "shard/registry.h"
#include "shard/sharding.h"
#include "shard/spelling.h"

namespace tp::shard {
namespace {

Mesh grid() { return {{0, 1, 2, 3, 4, 5, 6, 7}, {{"x", 2}, {"y", 4}}}; }
Mesh backwards() { return {{7, 6, 5, 4, 3, 2, 1, 0}, {{"a", 8}}}; }

std::string words(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Shard, TheSeedsTileAssignment) {
  EXPECT_EQ(make_sharding(grid(), {{"y"}, {}})->gspmd,
            "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}");
  EXPECT_EQ(make_sharding(grid(), {{"x", "y"}, {}})->gspmd, "{devices=[8,1]<=[8]}");
  EXPECT_EQ(make_sharding(grid(), {{"y", "x"}, {}})->gspmd, "{devices=[8,1]<=[2,4]T(1,0)}");
  EXPECT_EQ(make_sharding(grid(), {{}, {"x"}})->gspmd,
            "{devices=[1,2,4]<=[8] last_tile_dim_replicate}");
  EXPECT_EQ(make_sharding(backwards(), {{"a"}})->gspmd, "{devices=[8]7,6,5,4,3,2,1,0}");
}

TEST(Shard, OnePlacementHasOneText) {
  Mesh line{{0, 1, 2, 3, 4, 5, 6, 7}, {{"d", 8}}};
  EXPECT_EQ(make_sharding(line, {{"d"}, {}})->text, make_sharding(grid(), {{"x", "y"}, {}})->text);
  EXPECT_EQ(make_sharding(line, {})->text, make_sharding(grid(), {{}, {}})->text);
  EXPECT_TRUE(same(*make_sharding(line, {{}}), *replicated_over({0, 1, 2, 3, 4, 5, 6, 7})));
  // Who holds a part twice is no difference, in whatever order the mesh has them.
  Mesh twisted{{0, 1, 2, 3, 4, 5, 6, 7}, {{"y", 4}, {"x", 2}}};
  Mesh flipped{{1, 0, 3, 2, 5, 4, 7, 6}, {{"y", 4}, {"x", 2}}};
  EXPECT_EQ(make_sharding(twisted, {{"y"}})->text, make_sharding(flipped, {{"y"}})->text);
}

TEST(Shard, OtherDevicesAreInTheText) {
  Mesh half{{4, 5, 6, 7}, {{"d", 4}}};
  EXPECT_EQ(make_sharding(half, {{"d"}})->text, "{devices=[4]<=[4]} on 4,5,6,7");
  EXPECT_EQ(make_sharding(half, {})->text, "{replicated} on 4,5,6,7");
}

TEST(Shard, BadMeshesAndSpecsAreRefusedInWords) {
  EXPECT_NE(words([] { check_mesh({{0, 1, 2}, {{"x", 2}}}); }).find("3 devices do not fill"),
            std::string::npos);
  EXPECT_NE(words([] { check_mesh({{0, 0}, {{"x", 2}}}); }).find("device 0 comes twice"),
            std::string::npos);
  EXPECT_NE(words([] { check_mesh({{0, 1}, {{"x", 2}, {"x", 1}}}); }).find("'x' comes twice"),
            std::string::npos);
  EXPECT_NE(words([] { make_sharding(grid(), {{"z"}}); }).find("has no axis 'z'"),
            std::string::npos);
  EXPECT_NE(words([] { make_sharding(grid(), {{"x"}, {"x"}}); }).find("axis 'x' comes twice"),
            std::string::npos);
  std::vector<int64_t> odd{63, 4};
  std::string text =
      words([&] { check_fits(*make_sharding(grid(), {{"x", "y"}, {}}), odd, "mark_sharding"); });
  EXPECT_NE(text.find("mark_sharding: dim 0 (63) is not divisible by axes 'x', 'y' (8)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("pad it to 64"), std::string::npos);
}

TEST(Shard, TilesAreExpressedOverAMeshThatHasThem) {
  Spec spec;
  EXPECT_TRUE(express(make_sharding(grid(), {{"y", "x"}, {}})->tiles, grid(), 2, spec));
  EXPECT_EQ(spec, (Spec{{"y", "x"}, {}}));
  EXPECT_TRUE(express(make_sharding(grid(), {{}, {"y"}})->tiles, grid(), 2, spec));
  EXPECT_EQ(spec, (Spec{{}, {"y"}}));
  EXPECT_FALSE(express(make_sharding(backwards(), {{"a"}})->tiles, grid(), 1, spec));
}

TEST(Shard, AModuleHasOneMeshWhereOneServes) {
  Ref rows = make_sharding({{0, 1, 2, 3, 4, 5, 6, 7}, {{"d", 8}}}, {{"d"}, {}});
  Ref columns = make_sharding(grid(), {{}, {"y"}});
  std::vector<Ref> all{rows, columns};
  Spelling s(Form::kShardy, rows->devices, all);
  EXPECT_EQ(s.top(), "  sdy.mesh @mesh = <[\"x\"=2, \"y\"=4]>\n");
  EXPECT_EQ(s.attribute(rows.get(), 2),
            "sdy.sharding = #sdy.sharding<@mesh, [{\"x\", \"y\"}, {}]>");
  EXPECT_EQ(s.attribute(nullptr, 1), "sdy.sharding = #sdy.sharding<@mesh, [{}]>");
  EXPECT_EQ(Spelling(Form::kGspmd, rows->devices, all).attribute(columns.get(), 2),
            "mhlo.sharding = \"{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}\"");
}

TEST(Shard, AnOpenConstraintSpeaksOfSomeAxesOnly) {
  Ref cut = make_open(grid(), {{}, {"y"}}, {}), whole = make_open(grid(), {{}, {}}, {"y"});
  std::vector<Ref> all{cut, whole};
  Spelling shardy(Form::kShardy, cut->devices, all);
  EXPECT_EQ(shardy.value(cut.get(), 2), "#sdy.sharding<@mesh, [{?}, {\"y\", ?}]>");
  EXPECT_EQ(shardy.value(whole.get(), 2), "#sdy.sharding<@mesh, [{?}, {?}], replicated={\"y\"}>");
  EXPECT_EQ(Spelling::unspecified(*cut, 2), "unspecified_dims=[0]");
  EXPECT_EQ(Spelling::unspecified(*whole, 2), "unspecified_dims=[0,1]");
  EXPECT_EQ(Spelling::unspecified(*make_sharding(grid(), {{}, {"y"}}), 2), "");
  // They are other constraints than closed ones, and than one another, and are found by their text.
  EXPECT_NE(cut->text, make_sharding(grid(), {{}, {"y"}})->text);
  EXPECT_NE(whole->text, make_open(grid(), {{}, {}}, {"x"})->text);
  EXPECT_TRUE(find(whole->text)->open);
}

TEST(Shard, APermutedMeshNamesItsDevices) {
  Ref r = make_sharding(backwards(), {{"a"}});
  Spelling s(Form::kShardy, r->devices, std::span(&r, 1));
  EXPECT_EQ(s.top(), "  sdy.mesh @mesh = <[\"a\"=8], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>\n");
}

TEST(Shard, AStoredShardingComesBack) {
  for (const Ref& r :
       {make_sharding(grid(), {{"y"}, {}}), make_sharding(backwards(), {{"a"}}),
        make_sharding({{4, 6}, {{"d", 2}}}, {}), make_sharding({{2, 9}, {{"d", 2}}}, {{}, {"d"}})})
    EXPECT_TRUE(same(*parse_portable(portable_text(*r)), *r)) << r->text;
  EXPECT_NE(words([] { parse_portable("0,1|x"); }), "");
}

TEST(Shard, BoxesAreCutAndPutTogether) {
  std::vector<int64_t> dims{4, 6, 8};
  std::vector<float> whole(4 * 6 * 8), back(whole.size());
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  for (const Spec& spec : {Spec{{"y"}, {}, {}}, Spec{{}, {"x"}, {"y"}}, Spec{{"x"}, {}, {"y"}}}) {
    Ref s = make_sharding(grid(), spec);
    std::fill(back.begin(), back.end(), -1.f);
    for (int p : first_holders(s->tiles)) {
      Box box = box_of(*s, dims, static_cast<size_t>(p));
      std::vector<float> part(whole.size() / 4);
      take_box(whole.data(), dims, box, 4, part.data());
      int64_t offset = run_offset(dims, box, 4);
      if (offset >= 0) {
        EXPECT_EQ(whole[static_cast<size_t>(offset) / 4], part[0]);
      }
      put_box(back.data(), dims, box, 4, part.data());
    }
    EXPECT_EQ(back, whole);
  }
  EXPECT_GE(run_offset(dims, box_of(*make_sharding(grid(), {{"y"}, {}, {}}), dims, 3), 4), 0);
  EXPECT_EQ(run_offset(dims, box_of(*make_sharding(grid(), {{}, {}, {"y"}}), dims, 3), 4), -1);
}

TEST(Shard, ReadsWhatPluginsTell) {
  // type OTHER, dims [4,1,2], replicate_on_last_tile_dim, iota [2,4], perm [1,0]
  std::string partial("\x08\x03\x1a\x03\x04\x01\x02\x30\x01\x4a\x02\x02\x04\x52\x02\x01\x00", 17);
  EXPECT_EQ(read_op_sharding(partial, 8), make_sharding(grid(), {{"y"}, {}})->tiles);
  std::string listed("\x08\x03\x1a\x01\x08\x22\x08\x07\x06\x05\x04\x03\x02\x01\x00", 15);
  EXPECT_EQ(read_op_sharding(listed, 8), make_sharding(backwards(), {{"a"}})->tiles);
  EXPECT_TRUE(read_op_sharding("", 8).counts.empty());
  EXPECT_NE(words([&] { read_op_sharding(listed, 4); }).find("8 devices, expected 4"),
            std::string::npos);
  EXPECT_NE(words([] { read_op_sharding(std::string("\x08\x04", 2), 8); }).find("kind 4"),
            std::string::npos);
}

}  // namespace
}  // namespace tp::shard
