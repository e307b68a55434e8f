#include "lower/node.h"

#include "base/error.h"
#include "base/text.h"
#include "lower/control.h"
#include "ops/core/row.h"
#include "ops/host/choice.h"

namespace tp::lower {
namespace {

using hlo::V;
using ir::DType;
using ir::Type;

// Only where operands are float32: products of narrower ones are exact on every device.
hlo::Builder::Precision precision_of(const ops::Args& a, std::span<const Type> types) {
  using Precision = hlo::Builder::Precision;
  bool wide = false;
  for (Type t : types) wide = wide || ir::real_dtype(t.dtype()) == DType::kF32;
  int64_t lowered = a.i_or(ops::kPrecision, 0);
  if (!wide || lowered == 2) return Precision::kDefault;
  return lowered == 1 ? Precision::kHigh : Precision::kHighest;
}

void expect_types(const ir::Node& n, std::span<const V> out) {
  check(out.size() == n.types().size(), cat(n.kind().name, ": its lowering gives ", out.size(),
                                            " values where ", n.types().size(), " were recorded"));
  for (size_t i = 0; i < out.size(); ++i) {
    Type want = n.types()[i];
    if (want && (!out[i] || !(out[i].type == want)))
      check(false,
            cat(n.kind().name, ": output ", i, " is ", out[i] ? out[i].type.text() : "absent",
                " where ", want.text(), " was recorded"));
  }
}

void lower_row(hlo::Builder& b, const ir::Node& n, std::span<const V> in,
               std::span<const V> numbers, bool on_host, std::vector<V>& out) {
  const ops::Row* row = ops::row_of(n.kind());
  if (!row || !row->lower)
    fail(Code::kNotImplemented, cat(n.kind().name, " has no lowering to StableHLO"));
  std::vector<Type> types;
  for (const ir::Value& v : n.operands()) types.push_back(v.type());
  ops::Lowering l(b, n, in, types, numbers);
  b.set_precision(precision_of(l, types));
  try {
    if (on_host && ops::lower_on_host(*row, l, out)) return;
    row->lower(l, out);
  } catch (const Error& e) {
    throw Error(e.code(), cat(n.kind().name, ": ", e.what()));
  }
}

}  // namespace

void lower_node(hlo::Builder& b, const ir::Node& n, std::span<const V> in,
                std::span<const V> numbers, bool on_host, std::vector<V>& out) {
  const ir::Location& where = ir::location_of(n.location());
  b.set_location(where.scope.empty() ? n.kind().name : cat(where.scope, "/", n.kind().name),
                 where.file, where.line);
  if (ir::regions_of(n).empty())
    lower_row(b, n, in, numbers, on_host, out);
  else
    lower_control(b, n, in, out);
  b.set_location({});
  expect_types(n, out);
}

}  // namespace tp::lower
