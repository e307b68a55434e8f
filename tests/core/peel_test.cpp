// Peeling: what of a graph is glue before and after its core, and the core as a graph of its own.
#include "exec/peel.h"

#include <gtest/gtest.h>

#include "ops/core/row.h"

namespace tp::exec {
namespace {

using ir::DType;
using ir::Node;
using ir::Value;

const ir::OpKind& kind(const char* name) { return ops::kind_of(*ops::find_row(name)); }

Value data(ir::Type t) { return {Node::make_data(t, nullptr), 0}; }
Value op(const char* name, std::vector<Value> operands, ir::Type t) {
  return {Node::make(kind(name), operands, std::span(&t, 1), {}), 0};
}

bool is_glue(const Node& n) { return is_whole_numbers(n, 100); }

// ids -> view (before) -> embedding -> argmax (core) -> cat with ids (after)
struct Decode {
  explicit Decode(int64_t length) {
    ir::Type s1 = ir::make_type(DType::kS64, std::vector<int64_t>{1});
    ir::Type f = ir::make_type(DType::kF32, std::vector<int64_t>{1, 8});
    ids = data(ir::make_type(DType::kS64, std::vector<int64_t>{length}));
    last = op("torch_pjrt::view", {ids}, s1);
    weight = data(ir::make_type(DType::kF32, std::vector<int64_t>{8, 8}));
    embedded = op("aten::embedding", {weight, last}, f);
    best = op("aten::argmax", {embedded}, s1);
    next =
        op("aten::cat", {ids, best}, ir::make_type(DType::kS64, std::vector<int64_t>{length + 1}));
    std::lock_guard lock(ir::graph_lock());
    graph = ir::build_graph({next, embedded}, [](const Node&) { return true; });
  }
  Value ids, last, weight, embedded, best, next;
  ir::Graph graph;
};

TEST(Peel, GlueIsBeforeAndAfterTheCore) {
  Decode d(5);
  Peeled p = peel(d.graph, is_glue);
  EXPECT_EQ(p.before, std::vector<const Node*>{d.last.node.get()});
  EXPECT_EQ(p.after, std::vector<const Node*>{d.next.node.get()});
  EXPECT_EQ(p.core, (std::vector<const Node*>{d.embedded.node.get(), d.best.node.get()}));
  EXPECT_EQ(p.given, std::vector<Value>{d.last});
  EXPECT_EQ(p.taken, std::vector<Value>{d.best});
}

TEST(Peel, TheCoreIsTheSameWhateverTheGlue) {
  std::vector<std::vector<uint64_t>> signatures;
  for (int64_t length : {5, 6}) {
    Decode d(length);
    Core core = make_core(d.graph, peel(d.graph, is_glue), {});
    EXPECT_EQ(core.root_of, std::vector<size_t>{1});
    ASSERT_EQ(core.roots.size(), 2u);
    std::lock_guard lock(ir::graph_lock());
    ir::Graph g = ir::build_graph(std::move(core.roots), [](const Node&) { return true; });
    signatures.push_back(ir::signature(g));
  }
  EXPECT_EQ(signatures[0], signatures[1]);
}

TEST(Peel, LargeTensorsAndFloatsAreNoGlue) {
  Value big = data(ir::make_type(DType::kS64, std::vector<int64_t>{101}));
  Value x = data(ir::make_type(DType::kF32, std::vector<int64_t>{2}));
  EXPECT_FALSE(is_glue(*op("aten::neg", {big}, big.type()).node));
  EXPECT_FALSE(is_glue(*op("aten::neg", {x}, x.type()).node));
  ir::Type small = ir::make_type(DType::kS64, std::vector<int64_t>{2});
  EXPECT_TRUE(is_glue(*op("aten::neg", {data(small)}, small).node));
}

}  // namespace
}  // namespace tp::exec
