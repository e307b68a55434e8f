// Types are interned: equal ones are one object, print as XLA does, and hash as their text.
#include "ir/type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ir/node.h"

namespace tp::ir {
namespace {

Type f32(std::vector<int64_t> dims) { return make_type(DType::kF32, dims); }

TEST(Type, EqualTypesAreOneObject) {
  EXPECT_EQ(&f32({4, 8}).text(), &f32({4, 8}).text());
  EXPECT_FALSE(f32({4, 8}) == f32({8, 4}));
  EXPECT_FALSE(f32({4}) == make_type(DType::kS32, std::vector<int64_t>{4}));
  EXPECT_FALSE(f32({}) == f32({1}));
}

TEST(Type, ThreadsGetTheSameObject) {
  std::vector<const std::string*> seen(8);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < seen.size(); ++i)
      threads.emplace_back([&seen, i] { seen[i] = &f32({1234, 5, 6}).text(); });
  }
  for (auto* text : seen) EXPECT_EQ(text, seen[0]);
}

TEST(Type, PrintsAsXlaDoes) {
  EXPECT_EQ(f32({4, 8}).text(), "f32[4,8]");
  EXPECT_EQ(f32({}).text(), "f32[]");
  EXPECT_EQ(scalar_type(DType::kPred).text(), "pred[]");
  EXPECT_EQ(f32({4, 8}).mlir(), "tensor<4x8xf32>");
  EXPECT_EQ(make_type(DType::kC64, std::vector<int64_t>{2}).mlir(), "tensor<2xcomplex<f32>>");
  EXPECT_EQ(scalar_type(DType::kPred).mlir(), "tensor<i1>");
}

TEST(Type, HashIsOfTheText) {
  EXPECT_EQ(f32({4, 8}).hash(), hash_text("f32[4,8]"));
  EXPECT_NE(f32({4, 8}).hash(), f32({48}).hash());
}

TEST(Type, CountsElementsAndBytes) {
  EXPECT_EQ(f32({4, 8}).numel(), 32);
  EXPECT_EQ(f32({4, 8}).bytes(), 128);
  EXPECT_EQ(f32({4, 0}).bytes(), 0);
  EXPECT_EQ(f32({}).numel(), 1);
  EXPECT_EQ(f32({2, 3, 4}).rank(), 3);
}

TEST(Type, WithChangesOneThing) {
  EXPECT_EQ(f32({4}).with(DType::kF32), f32({4}));
  EXPECT_EQ(f32({4}).with(DType::kS64).text(), "s64[4]");
  EXPECT_EQ(f32({4}).with(std::vector<int64_t>{2, 2}), f32({2, 2}));
}

TEST(Type, NullIsNoType) {
  EXPECT_FALSE(Type());
  EXPECT_TRUE(f32({}));
}

// Types that nobody has made before, from `first` on.
Type rare(int64_t i) { return f32({3, 1'000'000 + i}); }

TEST(Type, TableIsBoundedWhereShapesNeverRepeat) {
  size_t before = live_types();
  for (int64_t i = 0; i < 20'000; ++i) EXPECT_EQ(rare(i).dim(1), 1'000'000 + i);
  EXPECT_LE(live_types(), std::max(before, Type::kForever) + 1);
}

TEST(Type, CountedTypesLiveAsLongAsTheyAreHeld) {
  for (int64_t i = 0; i < static_cast<int64_t>(Type::kForever); ++i) rare(i);
  size_t before = live_types();
  {
    Type a = rare(50'000), b = a, moved = std::move(b);
    std::vector<Type> many(100, a);
    many.resize(1000, rare(50'001));
    EXPECT_EQ(live_types(), before + 2);
    EXPECT_TRUE(rare(50'000) == a && moved == a && !b && !(many.back() == a));
    a = many.back();
    a = *&a;
    EXPECT_EQ(moved.text(), "f32[3,1050000]");
    EXPECT_EQ(a.with(DType::kF32), a);
    EXPECT_EQ(live_types(), before + 2);
  }
  EXPECT_EQ(live_types(), before);
}

TEST(Type, NodesHoldTheirTypes) {
  for (int64_t i = 0; i < static_cast<int64_t>(Type::kForever); ++i) rare(i);
  size_t before = live_types();
  {
    Value leaf{Node::make_fill(rare(60'000), Scalar{}), 0};
    static const OpKind kind = make_kind("test::two_results");
    Type types[] = {rare(60'001), Type()};
    Value made{Node::make(kind, std::span(&leaf, 1), types, {}), 0};
    leaf = {};
    types[0] = {};
    EXPECT_EQ(made.type().text(), "f32[3,1060001]");
    EXPECT_EQ(made.node->operands()[0].type().text(), "f32[3,1060000]");
    EXPECT_EQ(live_types(), before + 2);
  }
  EXPECT_EQ(live_types(), before);
}

TEST(Type, KeysOfATypeThatWentAndCameBackAreTheSameAndOfNoOther) {
  for (int64_t i = 0; i < static_cast<int64_t>(Type::kForever); ++i) rare(i);
  Hash128 key = mix(Hash128{}, rare(70'000));
  for (int64_t i = 70'001; i < 70'100; ++i) EXPECT_NE(mix(Hash128{}, rare(i)), key);
  EXPECT_EQ(mix(Hash128{}, rare(70'000)), key);
}

TEST(Type, ThreadsThatMakeAndDropTheSameTypesAgree) {
  for (int64_t i = 0; i < static_cast<int64_t>(Type::kForever); ++i) rare(i);
  size_t before = live_types();
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&wrong] {
        for (int64_t i = 0; i < 5'000; ++i) {
          Type a = rare(80'000 + i % 3), b = rare(80'000 + i % 3);
          wrong += !(a == b) || a.dim(1) != 1'080'000 + i % 3;
        }
      });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(live_types(), before);
}

struct Promotion {
  DType a, b, out;
};
struct PromotionTest : testing::TestWithParam<Promotion> {};

TEST_P(PromotionTest, IsEagersBothWays) {
  auto [a, b, out] = GetParam();
  EXPECT_EQ(promote(a, b), out) << dtype_name(a) << " " << dtype_name(b);
  EXPECT_EQ(promote(b, a), out);
}

INSTANTIATE_TEST_SUITE_P(Table, PromotionTest,
                         testing::Values(Promotion{DType::kF32, DType::kF64, DType::kF64},
                                         Promotion{DType::kF16, DType::kBF16, DType::kF32},
                                         Promotion{DType::kBF16, DType::kF32, DType::kF32},
                                         Promotion{DType::kS64, DType::kF16, DType::kF16},
                                         Promotion{DType::kS32, DType::kS64, DType::kS64},
                                         Promotion{DType::kU8, DType::kS8, DType::kS16},
                                         Promotion{DType::kU8, DType::kS32, DType::kS32},
                                         Promotion{DType::kPred, DType::kU8, DType::kU8},
                                         Promotion{DType::kPred, DType::kPred, DType::kPred},
                                         Promotion{DType::kC64, DType::kF64, DType::kC128},
                                         Promotion{DType::kC64, DType::kF32, DType::kC64},
                                         Promotion{DType::kC64, DType::kS64, DType::kC64}));

TEST(Promotion, Float8MixesAreRefused) {
  EXPECT_THROW(promote(DType::kF8E4M3FN, DType::kF32), Error);
}

}  // namespace
}  // namespace tp::ir
