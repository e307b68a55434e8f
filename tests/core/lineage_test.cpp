// What a value is made from, and the update in place that it decides.
#include "hlo/lineage.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "hlo/builder.h"

namespace tp {
namespace {

using hlo::Builder;
using hlo::IntList;
using hlo::Lineage;
using hlo::V;
using ir::Type;

TEST(Lineage, ValuesAreMadeFromTheirOperandsAndThoseFromTheirs) {
  Lineage l;  // 0, 1: inputs
  int add[] = {0}, twice[] = {2}, other[] = {1};
  l.add(2, hash_text("add"), add);
  l.add(3, hash_text("mul"), twice);
  l.add(4, hash_text("mul"), other);
  EXPECT_TRUE(l.made_from(3, 0));
  EXPECT_TRUE(l.made_from(3, 2));
  EXPECT_TRUE(l.made_from(3, 3));
  EXPECT_FALSE(l.made_from(4, 0));
  EXPECT_FALSE(l.made_from(3, 4));
}

TEST(Lineage, AValueMadeAgainIsTheSameValue) {
  Lineage l;
  int x[] = {0}, first[] = {1}, second[] = {2};
  l.add(1, hash_text("exp"), x);
  l.add(2, hash_text("exp"), x);
  l.add(3, hash_text("neg"), first);
  l.add(4, hash_text("neg"), second);
  EXPECT_TRUE(l.made_from(3, 2)) << "the plugin merges both exps";
  EXPECT_TRUE(l.made_from(3, 4));
}

// z = x.reshape(-1); z[1:] = made of what `from` is.
std::string written(bool from_itself, bool reshaped) {
  Builder b;
  V x = b.parameter(ir::make_type(ir::DType::kF32, IntList{2, 4}));
  V y = b.parameter(ir::make_type(ir::DType::kF32, IntList{8}));
  V z = reshaped ? b.reshape(x, IntList{8}) : y;
  V other = reshaped ? y : b.reshape(x, IntList{8});
  V update = b.slice_dim(b.neg(from_itself ? z : other), 0, 0, 7);
  V starts[] = {b.constant_int(1, ir::scalar_type(ir::DType::kS64))};
  V out = b.dynamic_update_slice(z, update, starts);
  return b.finish("m", {&out, 1}, {});
}

TEST(Builder, AnUpdateOfAReshapedValueMadeFromItselfIsSelected) {
  EXPECT_NE(written(true, true).find("stablehlo.select"), std::string::npos);
}

TEST(Builder, AnUpdateOfZerosMadeFromZerosEnds) {
  Builder b;
  Type t = ir::make_type(ir::DType::kF32, IntList{1, 8});
  V update = b.slice_dim(b.neg(b.zeros(t)), 1, 0, 7);
  V zero = b.constant_int(0, ir::scalar_type(ir::DType::kS64)), starts[] = {zero, zero};
  V out = b.dynamic_update_slice(b.zeros(t), update, starts);
  EXPECT_NE(b.finish("m", {&out, 1}, {}).find("stablehlo.select"), std::string::npos);
}

TEST(Builder, OtherUpdatesAreMadeInPlace) {
  EXPECT_EQ(written(false, true).find("stablehlo.select"), std::string::npos);
  EXPECT_EQ(written(true, false).find("stablehlo.select"), std::string::npos);
}

}  // namespace
}  // namespace tp
