// Types are interned: equal ones are one object, print as XLA does, and hash as their text.
#include "ir/type.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"

namespace tp::ir {
namespace {

Type f32(std::vector<int64_t> dims) { return make_type(DType::kF32, dims); }

TEST(Type, EqualTypesAreOneObject) {
  EXPECT_EQ(f32({4, 8}).rep(), f32({4, 8}).rep());
  EXPECT_FALSE(f32({4, 8}) == f32({8, 4}));
  EXPECT_FALSE(f32({4}) == make_type(DType::kS32, std::vector<int64_t>{4}));
  EXPECT_FALSE(f32({}) == f32({1}));
}

TEST(Type, ThreadsGetTheSameObject) {
  std::vector<const Type::Rep*> seen(8);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < seen.size(); ++i)
      threads.emplace_back([&seen, i] { seen[i] = f32({1234, 5, 6}).rep(); });
  }
  for (auto* rep : seen) EXPECT_EQ(rep, seen[0]);
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
