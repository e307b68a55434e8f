#include "harness.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/text.h"

namespace tp::test {

using ir::DType;
using ir::Scalar;
using ir::Type;

namespace {

uint16_t to_bf16(float v) {
  uint32_t u = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); }

// Calls f with a value of the element's C++ type. Narrow floats travel as bf16; f16 as _Float16.
template <class F>
auto with_dtype(DType t, F f) {
  switch (t) {
    case DType::kPred:
    case DType::kU8:
      return f(uint8_t{});
    case DType::kS8:
      return f(int8_t{});
    case DType::kS16:
      return f(int16_t{});
    case DType::kS32:
      return f(int32_t{});
    case DType::kS64:
      return f(int64_t{});
    case DType::kU16:
      return f(uint16_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kF32:
    case DType::kC64:
      return f(float{});
    default:
      return f(double{});
  }
}

}  // namespace

std::vector<double> Tensor::values() const {
  std::vector<double> v;
  DType t = type.dtype();
  size_t n = static_cast<size_t>(type.numel()), step = ir::is_complex(t) ? 2 : 1;
  if (t == DType::kBF16) {
    auto p = reinterpret_cast<const uint16_t*>(bytes.data());
    for (size_t i = 0; i < n; ++i) v.push_back(from_bf16(p[i]));
    return v;
  }
  with_dtype(t, [&](auto zero) {
    auto p = reinterpret_cast<const decltype(zero)*>(bytes.data());
    for (size_t i = 0; i < n; ++i) v.push_back(static_cast<double>(p[i * step]));
  });
  return v;
}

Tensor make_tensor(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values) {
  Tensor t{ir::make_type(dtype, dims), {}};
  check(static_cast<size_t>(t.type.numel()) == values.size(),
        "a tensor has a value for each element");
  for (double v : values) {
    if (dtype == DType::kBF16) {
      uint16_t u = to_bf16(static_cast<float>(v));
      t.bytes.append(reinterpret_cast<const char*>(&u), sizeof u);
      continue;
    }
    with_dtype(dtype, [&](auto zero) {
      auto e = static_cast<decltype(zero)>(v);
      t.bytes.append(reinterpret_cast<const char*>(&e), sizeof e);
      if (ir::is_complex(dtype)) t.bytes.append(reinterpret_cast<const char*>(&zero), sizeof zero);
    });
  }
  return t;
}

Type parse_type(std::string_view text) {
  if (text == "-") return {};
  size_t open = text.find('[');
  check(open != text.npos && text.back() == ']', cat("a type reads like f32[2,3], not ", text));
  std::vector<int64_t> dims;
  std::string inner(text.substr(open + 1, text.size() - open - 2));
  for (const char* p = inner.c_str(); *p;) {
    char* end = nullptr;
    dims.push_back(std::strtoll(p, &end, 10));
    p = *end == ',' ? end + 1 : end;
  }
  for (int i = 0; i < static_cast<int>(DType::kCount); ++i)
    if (ir::dtype_name(static_cast<DType>(i)) == text.substr(0, open))
      return ir::make_type(static_cast<DType>(i), dims);
  fail(Code::kValue, cat("no dtype is called ", text));
}

// --- OpCall --------------------------------------------------------------------------------------

Scalar OpCall::scalar(double v) { return {v, 0, 0, Scalar::Kind::kFloat}; }
Scalar OpCall::scalar(int64_t v) { return {0, 0, v, Scalar::Kind::kInt}; }
Scalar OpCall::scalar(bool v) { return {0, 0, v, Scalar::Kind::kBool}; }

int64_t OpCall::operand(Tensor t) {
  operands_.push_back({ir::Node::make_data(t.type, nullptr), 0});
  inputs_.push_back(std::move(t));
  return static_cast<int64_t>(operands_.size()) - 1;
}

OpCall& OpCall::tensor(std::string_view name, Tensor t) {
  attrs_.operand(ir::symbol(name), operand(std::move(t)));
  return *this;
}
OpCall& OpCall::number(std::string_view name, const Scalar& s, bool wrapped) {
  operands_.push_back({ir::Node::make_number(s, wrapped), 0});
  attrs_.operand(ir::symbol(name), static_cast<int64_t>(operands_.size()) - 1);
  return *this;
}
OpCall& OpCall::tensors(std::string_view name, std::vector<Tensor> list) {
  std::vector<int64_t> at;
  for (Tensor& t : list) at.push_back(t.type ? operand(std::move(t)) : -1);
  attrs_.operands(ir::symbol(name), at);
  return *this;
}
OpCall& OpCall::none(std::string_view name) {
  attrs_.none(ir::symbol(name));
  return *this;
}
OpCall& OpCall::integer(std::string_view name, int64_t v) {
  attrs_.integer(ir::symbol(name), v);
  return *this;
}
OpCall& OpCall::real(std::string_view name, double v) {
  attrs_.real(ir::symbol(name), v);
  return *this;
}
OpCall& OpCall::boolean(std::string_view name, bool v) {
  attrs_.boolean(ir::symbol(name), v);
  return *this;
}
OpCall& OpCall::ints(std::string_view name, std::vector<int64_t> v) {
  attrs_.ints(ir::symbol(name), v);
  return *this;
}
OpCall& OpCall::bools(std::string_view name, std::vector<int64_t> v) {
  attrs_.bools(ir::symbol(name), v);
  return *this;
}
OpCall& OpCall::floats(std::string_view name, std::vector<double> v) {
  attrs_.floats(ir::symbol(name), v);
  return *this;
}
OpCall& OpCall::dtype(std::string_view name, DType t) {
  attrs_.dtype(ir::symbol(name), t);
  return *this;
}
OpCall& OpCall::text(std::string_view name, std::string_view v) {
  attrs_.text(ir::symbol(name), v);
  return *this;
}
OpCall& OpCall::types(std::vector<Type> t) {
  types_ = std::move(t);
  return *this;
}
OpCall& OpCall::types(const std::vector<std::string>& texts) {
  types_.clear();
  for (const std::string& t : texts) types_.push_back(parse_type(t));
  return *this;
}

const ops::Row& OpCall::row() const {
  const ops::Row* r = ops::find_row(row_);
  if (!r) fail(Code::kNotImplemented, cat("the op table has no row ", row_));
  return *r;
}

std::vector<Type> OpCall::operand_types() const {
  std::vector<Type> t;
  for (const ir::Value& v : operands_) t.push_back(v.type());
  return t;
}

bool OpCall::has_rule() const { return row().type != nullptr; }

std::vector<Type> OpCall::inferred() const {
  std::vector<Type> out, in = operand_types();
  ops::Args args(ir::AttrsView(attrs_.words()), in, operands_);
  if (row().type) row().type(args, out);
  ops::check_call(row(), args);
  return out;
}

ir::Graph OpCall::graph() const {
  std::vector<Type> types = types_.empty() ? inferred() : types_;
  ir::NodePtr n = ir::Node::make(ops::kind_of(row()), operands_, types, attrs_.words());
  std::vector<ir::Value> roots;
  for (uint32_t i = 0; i < types.size(); ++i)
    if (types[i]) roots.push_back({n, i});
  std::lock_guard lock(ir::graph_lock());
  ir::Graph g = ir::build_graph(std::move(roots), [](const ir::Node&) { return false; });
  ir::verify(g);
  return g;
}

lower::Module OpCall::lower() const {
  ir::Graph g = graph();
  std::lock_guard lock(ir::graph_lock());
  return lower::lower(g, "one_op");
}

std::vector<Tensor> OpCall::run() const {
  ir::Graph g = graph();
  std::vector<Tensor> in(g.num_buffers);
  std::vector<int64_t> integers(g.num_integers);
  std::vector<double> reals(g.num_reals);
  for (const ir::LeafUse& leaf : g.leaves) {
    const Scalar& s = leaf.node->scalar();
    if (leaf.feed == ir::Feed::kInteger) integers[leaf.index] = s.integer;
    if (leaf.feed == ir::Feed::kReal) reals[leaf.index] = s.re;
    if (leaf.feed == ir::Feed::kReal && s.kind == Scalar::Kind::kComplex)
      reals[leaf.index + 1] = s.im;
    if (leaf.feed != ir::Feed::kBuffer) continue;
    size_t buffer = 0;
    for (const ir::Value& v : operands_) {
      if (v.node.get() == leaf.node) in[leaf.index] = inputs_[buffer];
      buffer += v.node->role() == ir::Role::kData;
    }
  }
  auto packed = [&in](DType t, const auto& v) {
    auto n = static_cast<int64_t>(v.size());
    if (n)
      in.push_back({ir::make_type(t, {&n, 1}),
                    std::string(reinterpret_cast<const char*>(v.data()), v.size() * 8)});
  };
  packed(DType::kS64, integers);
  packed(DType::kF64, reals);
  std::vector<Type> out;
  for (const ir::Value& r : g.roots) out.push_back(r.type());
  std::string text;
  {
    std::lock_guard lock(ir::graph_lock());
    text = lower::lower(g, "one_op", {.target = cpu_client().capabilities()}).text;
  }
  return run_module(text, in, out);
}

}  // namespace tp::test
