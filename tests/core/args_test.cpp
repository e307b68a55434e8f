// How rows read arguments: by schema name, with eager's wrapping, promotion and words.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/core/row.h"

namespace tp::ops {
namespace {

using ir::AttrsBuilder;
using ir::Node;
using ir::Scalar;
using ir::Value;

Type type(DType t, std::initializer_list<int64_t> dims) { return ir::make_type(t, IntList(dims)); }

template <class F>
std::string words_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was thrown";
}

struct Recorded {
  AttrsBuilder attrs;
  std::vector<Value> values;
  std::vector<Type> types;

  void tensor(std::string_view name, Type t) { put(name, {Node::make_data(t, nullptr), 0}); }
  void number(std::string_view name, double v, bool wrapped = true) {
    put(name, {Node::make_number(Scalar{v, 0, 0, Scalar::Kind::kFloat}, wrapped), 0});
  }
  void number(std::string_view name, int64_t v) {
    put(name, {Node::make_number(Scalar{0, 0, v, Scalar::Kind::kInt}, true), 0});
  }
  void put(std::string_view name, Value v) {
    attrs.operand(ir::symbol(name), static_cast<int64_t>(values.size()));
    types.push_back(v.type());
    values.push_back(std::move(v));
  }
  Args args() const { return Args(ir::AttrsView(attrs.words()), types, values); }
};

TEST(Args, ReadsEachKindByName) {
  Recorded r;
  r.attrs.integer(ir::symbol("i"), -3);
  r.attrs.real(ir::symbol("f"), 0.5);
  r.attrs.boolean(ir::symbol("b"), true);
  r.attrs.none(ir::symbol("gone"));
  r.attrs.text(ir::symbol("text"), "floor");
  r.attrs.dtype(ir::symbol("dtype"), DType::kBF16);
  r.attrs.ints(ir::symbol("ints"), IntList{4, 5});
  Args a = r.args();
  EXPECT_EQ(a.i("i"), -3);
  EXPECT_EQ(a.f("i"), -3.0);
  EXPECT_EQ(a.f("f"), 0.5);
  EXPECT_TRUE(a.b("b"));
  EXPECT_FALSE(a.has("gone"));
  EXPECT_FALSE(a.has("never"));
  EXPECT_EQ(a.i_or("gone", 7), 7);
  EXPECT_EQ(a.text_or("text", ""), "floor");
  EXPECT_EQ(a.dtype_or("dtype", DType::kF32), DType::kBF16);
  EXPECT_EQ(a.ints("ints"), (IntList{4, 5}));
  EXPECT_EQ(a.ints("i"), IntList{-3});
  EXPECT_EQ(words_of([&] { a.i("text"); }), "argument text is not recorded as an integer");
}

TEST(Args, DimsWrapAndSortWithEagersWords) {
  Recorded r;
  r.attrs.integer(ir::symbol("dim"), -1);
  r.attrs.ints(ir::symbol("dims"), IntList{-1, 0});
  r.attrs.ints(ir::symbol("twice"), IntList{1, -2});
  r.attrs.ints(ir::symbol("none"), IntList{});
  Args a = r.args();
  EXPECT_EQ(a.dim("dim", 3), 2);
  EXPECT_EQ(a.dim("dim", 0), 0);
  EXPECT_EQ(a.dims("dims", 3), (IntList{0, 2}));
  EXPECT_EQ(a.dims("none", 2), (IntList{0, 1}));
  EXPECT_EQ(a.dims("absent", 2), (IntList{0, 1}));
  EXPECT_EQ(a.dims("dim", 0), IntList{});
  EXPECT_EQ(words_of([&] { a.dims("twice", 3); }),
            "dim 1 appears multiple times in the list of dims");
  Recorded far;
  far.attrs.integer(ir::symbol("dim"), 5);
  EXPECT_EQ(words_of([&] { far.args().dim("dim", 2); }),
            "Dimension out of range (expected to be in range of [-2, 1], but got 5)");
}

DType common(Recorded& r) { return r.args().common_dtype({"self", "other"}); }

TEST(Args, TensorsBeatZeroDimTensorsBeatNumbers) {
  Recorded a;
  a.tensor("self", type(DType::kBF16, {2}));
  a.number("other", 2.5);
  EXPECT_EQ(common(a), DType::kBF16);

  Recorded b;
  b.tensor("self", type(DType::kS64, {2}));
  b.number("other", 2.5);
  EXPECT_EQ(common(b), DType::kF32);  // the default dtype, not the number's 64 bits

  Recorded c;
  c.tensor("self", type(DType::kS32, {2}));
  c.tensor("other", type(DType::kS64, {}));
  EXPECT_EQ(common(c), DType::kS32);

  Recorded d;
  d.tensor("self", type(DType::kF32, {2}));
  d.tensor("other", type(DType::kF64, {1}));
  EXPECT_EQ(common(d), DType::kF64);

  Recorded e;
  e.tensor("self", type(DType::kPred, {2}));
  e.number("other", int64_t{3});
  EXPECT_EQ(common(e), DType::kS64);

  Recorded f;
  f.tensor("self", type(DType::kF64, {2}));
  f.tensor("other", type(DType::kC64, {}));
  EXPECT_EQ(common(f), DType::kC128);

  Recorded g;
  g.tensor("self", type(DType::kS64, {2}));
  g.number("other", 2.5, false);  // a 0-d tensor's own width counts
  EXPECT_EQ(common(g), DType::kF64);
}

TEST(Table, EveryRowHasOneKindAndTheWayBack) {
  size_t rows = 0;
  for (Family f : table())
    for (const Row& r : f) {
      EXPECT_EQ(find_row(r.name), &r);
      EXPECT_EQ(row_of(kind_of(r)), &r);
      EXPECT_STREQ(kind_of(r).name, r.name);
      EXPECT_NE(r.lower, nullptr) << r.name;
      ++rows;
    }
  EXPECT_GT(rows, 100u);
  EXPECT_EQ(row_of(ir::data_kind()), nullptr);
  EXPECT_EQ(find_row("aten::no_such_op"), nullptr);
}

}  // namespace
}  // namespace tp::ops
