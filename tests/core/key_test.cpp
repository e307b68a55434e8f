// The compile key: same inputs, same key; another ingredient, another key, and that digest only.
#include "exec/key.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

namespace tp::exec {
namespace {

const ir::OpKind kAdd = ir::make_kind("test::add");
const ir::OpKind kMul = ir::make_kind("test::mul");
const ir::Type kVec = ir::make_type(ir::DType::kF32, std::vector<int64_t>{4});

ir::Value node(const ir::OpKind& kind, const char* sharding = nullptr) {
  ir::Value x{ir::Node::make_data(kVec, nullptr), 0};
  ir::ShardingPtr s = sharding ? std::make_shared<const std::string>(sharding) : nullptr;
  return {ir::Node::make(kind, std::span(&x, 1), {&kVec, 1}, {}, s), 0};
}

const std::vector<ir::Value> kRoots = {node(kAdd), node(kMul)};
const std::vector<uint32_t> kSequence = {0, 1, 1};

KeyInputs inputs() {
  return {.force_data = false,
          .environment = hash_text("cpu"),
          .torch_revision = "abc",
          .revision = "def",
          .roots = kRoots,
          .parameter_sequence = kSequence,
          .donated = {},
          .sharding = {}};
}

TEST(Key, SameInputsSameKey) {
  Key a = make_key(inputs()), b = make_key(inputs());
  EXPECT_EQ(a.total, b.total);
  EXPECT_EQ(a.digests, b.digests);
}

TEST(Key, EqualGraphsOfOtherNodesHaveOneKey) {
  std::vector<ir::Value> twins = {node(kAdd), node(kMul)};
  KeyInputs in = inputs();
  in.roots = twins;
  EXPECT_EQ(make_key(in).total, make_key(inputs()).total);
}

// Every ingredient with a change of it.
struct Change {
  Ingredient ingredient;
  std::function<void(KeyInputs&)> apply;
};
const std::vector<uint32_t> kOtherSequence = {0, 1, 0};
const std::vector<uint32_t> kDonated = {1};
const std::vector<ir::Value> kSwapped = {kRoots[1], kRoots[0]};
const Change kChanges[] = {
    {Ingredient::kForceData, [](KeyInputs& in) { in.force_data = true; }},
    {Ingredient::kEnvironment, [](KeyInputs& in) { in.environment = hash_text("gpu"); }},
    {Ingredient::kTorchRevision, [](KeyInputs& in) { in.torch_revision = "abd"; }},
    {Ingredient::kRevision, [](KeyInputs& in) { in.revision = "deg"; }},
    {Ingredient::kRoots, [](KeyInputs& in) { in.roots = kSwapped; }},
    {Ingredient::kParameterSequence, [](KeyInputs& in) { in.parameter_sequence = kOtherSequence; }},
    {Ingredient::kDonated, [](KeyInputs& in) { in.donated = kDonated; }},
    {Ingredient::kDevice, [](KeyInputs& in) { in.device = 1; }},
    {Ingredient::kSharding, [](KeyInputs& in) { in.sharding = "auto"; }},
};

struct KeyChange : testing::TestWithParam<size_t> {};

TEST_P(KeyChange, ChangesTheTotalAndItsOwnDigestOnly) {
  const Change& change = kChanges[GetParam()];
  KeyInputs in = inputs();
  change.apply(in);
  Key a = make_key(inputs()), b = make_key(in);
  EXPECT_NE(a.total, b.total);
  for (size_t i = 0; i < a.digests.size(); ++i)
    EXPECT_EQ(a.digests[i] == b.digests[i], i != static_cast<size_t>(change.ingredient)) << i;
}

INSTANTIATE_TEST_SUITE_P(Ingredients, KeyChange, testing::Range(size_t{0}, std::size(kChanges)));

TEST(Key, EveryIngredientHasAChangeAboveAndAName) {
  ASSERT_EQ(std::size(kChanges), static_cast<size_t>(Ingredient::kCount));
  std::set<std::string_view> names;
  for (size_t i = 0; i < std::size(kChanges); ++i) {
    EXPECT_EQ(static_cast<size_t>(kChanges[i].ingredient), i);
    names.insert(ingredient_name(kChanges[i].ingredient));
  }
  EXPECT_EQ(names.size(), std::size(kChanges));
}

TEST(Key, CountAndOutputOfRootsMatter) {
  KeyInputs fewer = inputs();
  fewer.roots = std::span(kRoots).first(1);
  EXPECT_NE(make_key(fewer).total, make_key(inputs()).total);
  std::vector<ir::Value> other = kRoots;
  other[0].index = 1;
  KeyInputs second = inputs();
  second.roots = other;
  EXPECT_NE(make_key(second).total, make_key(inputs()).total);
}

TEST(Key, ShardingOfARootIsAnIngredient) {
  std::vector<ir::Value> roots = {node(kAdd, "{replicated}"), node(kMul)};
  KeyInputs in = inputs();
  in.roots = roots;
  EXPECT_NE(make_key(in).total, make_key(inputs()).total);
}

TEST(Key, EqualBytesInTwoPlacesDoNotCancel) {
  KeyInputs a = inputs(), b = inputs();
  a.torch_revision = b.revision = "x";
  a.revision = b.torch_revision = "y";
  EXPECT_NE(make_key(a).total, make_key(b).total);
}

}  // namespace
}  // namespace tp::exec
