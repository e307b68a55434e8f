// Stored programs as bytes: what is written is read back; anything else is refused with a reason.
#include "exec/cache_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tp::exec {
namespace {

Key key_of(std::string_view name) {
  Key k;
  for (size_t i = 0; i < k.digests.size(); ++i) k.digests[i] = mix(hash_text(name), i);
  k.total = hash_text(name);
  return k;
}

CacheFile sample() {
  return {.key = key_of("a").total,
          .ingredients = ingredients_of(key_of("a")),
          .structure = hash_text("structure"),
          .outputs = "f32[2,3] s64[]",
          .nodes = 12,
          .compile_ms = 345,
          .where = "train.py:41 in step",
          .program = {}};
}
std::string encoded(const CacheFile& f, const std::string& program) {
  return encode_head(f, program) + program;
}
std::string refusal(const std::string& bytes) {
  try {
    decode(bytes);
  } catch (const Error& e) {
    return e.message();
  }
  return "none";
}

TEST(CacheFileTest, WhatIsWrittenIsReadBack) {
  std::string program("bytes\n\0with anything\n", 21);
  CacheFile f = decode(encoded(sample(), program));
  EXPECT_EQ(f.program, program);
  EXPECT_EQ(f.key, sample().key);
  EXPECT_EQ(f.ingredients, sample().ingredients);
  EXPECT_EQ(f.structure, sample().structure);
  EXPECT_EQ(f.outputs, "f32[2,3] s64[]");
  EXPECT_EQ(f.nodes, 12);
  EXPECT_EQ(f.compile_ms, 345);
  EXPECT_EQ(f.where, "train.py:41 in step");
}

TEST(CacheFileTest, EmptyProgramAndTextsAreReadBack) {
  CacheFile f = sample();
  f.outputs = f.where = "";
  EXPECT_EQ(decode(encoded(f, "")).program, "");
  f.where = "two\nlines";
  EXPECT_EQ(decode(encoded(f, "")).where, "two");
}

TEST(CacheFileTest, EveryFlippedBitIsSeen) {
  std::string good = encoded(sample(), "program bytes");
  ASSERT_EQ(refusal(good), "none");
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    EXPECT_NE(refusal(bad), "none") << "byte " << i;
  }
}

TEST(CacheFileTest, EveryShorterOrLongerFileIsRefused) {
  std::string good = encoded(sample(), "program bytes");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(refusal(good.substr(0, n)), "none") << n;
  EXPECT_NE(refusal(good + "x"), "none");
}

TEST(CacheFileTest, StrangersFilesAreRefused) {
  EXPECT_NE(refusal("ELF something").find("no such file"), std::string::npos);
}

TEST(CacheFileTest, FileOfTheSameKeyDiffersInNothing) {
  EXPECT_EQ(difference(sample(), key_of("a"), hash_text("structure"), "f32[2,3] s64[]"), "");
}

TEST(CacheFileTest, EachIngredientThatDiffersIsNamed) {
  for (size_t i = 0; i < static_cast<size_t>(Ingredient::kCount); ++i) {
    Key other = key_of("a");
    other.digests[i] = hash_text("changed");
    EXPECT_EQ(difference(sample(), other, hash_text("structure"), "f32[2,3] s64[]"),
              ingredient_name(static_cast<Ingredient>(i)));
  }
}

TEST(CacheFileTest, OtherStructureOutputsOrKeyAreNamed) {
  Key k = key_of("a");
  EXPECT_EQ(difference(sample(), k, hash_text("other"), "f32[2,3] s64[]"), "structure");
  EXPECT_EQ(difference(sample(), k, hash_text("structure"), "f32[2,3]"), "outputs");
  k.total = hash_text("b");
  EXPECT_EQ(difference(sample(), k, hash_text("structure"), "f32[2,3] s64[]"), "key");
}

TEST(CacheFileTest, IngredientListOfAnotherLengthIsRefused) {
  CacheFile f = sample();
  f.ingredients.pop_back();
  EXPECT_NE(difference(f, key_of("a"), hash_text("structure"), "f32[2,3] s64[]"), "");
  f = sample();
  f.ingredients.emplace_back("new one", Hash128{});
  EXPECT_EQ(difference(f, key_of("a"), hash_text("structure"), "f32[2,3] s64[]"), "new one");
}

}  // namespace
}  // namespace tp::exec
