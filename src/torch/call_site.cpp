#include "torch/call_site.h"

#include <ATen/ops/_linalg_check_errors.h>

#include "base/text.h"
#include "ops/core/row.h"
#include "torch/host_op.h"
#include "torch/schema.h"

namespace tp::torch_room {

const ir::Symbol kHostCheck = ir::symbol("linalg_check"), kHostInfo = ir::symbol("linalg_info"),
                 kHostIsMatrix = ir::symbol("linalg_is_matrix");

namespace {

using From = CallSite::Argument::From;

CallSite::Argument from_operands(const c10::Argument& a, const ir::Attr& attr) {
  auto ints = attr.ints();
  CallSite::Argument r{From::kTensor, {}, {ints.begin(), ints.end()}};
  c10::TypePtr t = a.real_type();
  if (auto o = t->cast<c10::OptionalType>()) t = o->getElementType();
  if (attr.kind == ir::AttrKind::kOperands) {
    bool optional =
        t->expectRef<c10::ListType>().getElementType()->kind() != c10::TypeKind::TensorType;
    r.from = optional ? From::kOptList : From::kList;
  } else if (t->kind() == c10::TypeKind::NumberType) {
    r.from = From::kScalar;
  } else if (t->kind() == c10::TypeKind::FloatType) {
    r.from = From::kReal;
  }
  return r;
}

// What was given as None, or not recorded because it is the default (recorder: unit_default).
c10::IValue absent(const c10::Argument& a) {
  if (a.real_type()->kind() == c10::TypeKind::OptionalType) return {};
  if (a.default_value()) return *a.default_value();
  return at::Tensor();
}

c10::IValue bool_list(std::span<const int64_t> bits) {
  c10::List<bool> list;
  for (int64_t b : bits) list.push_back(b != 0);
  return list;
}

CallSite::Argument decode(const c10::Argument& a, ir::AttrsView attrs) {
  ir::Attr attr;
  if (!attrs.find(ir::symbol(a.name()), &attr)) return {From::kValue, absent(a), {}};
  auto value = [](c10::IValue v) { return CallSite::Argument{From::kValue, std::move(v), {}}; };
  switch (attr.kind) {
    case ir::AttrKind::kNone:
      return value(absent(a));
    case ir::AttrKind::kOperand:
    case ir::AttrKind::kOperands:
      return from_operands(a, attr);
    case ir::AttrKind::kInt:
      return value(attr.integer());
    case ir::AttrKind::kFloat:
      return value(attr.real());
    case ir::AttrKind::kBool:
      return value(attr.boolean());
    case ir::AttrKind::kInts:
      return value(std::vector<int64_t>(attr.ints().begin(), attr.ints().end()));
    case ir::AttrKind::kFloats:
      return value(std::vector<double>(attr.floats().begin(), attr.floats().end()));
    case ir::AttrKind::kBools:
      return value(bool_list(attr.ints()));
    case ir::AttrKind::kDType:
      return value(to_scalar_type(attr.dtype()));
    case ir::AttrKind::kText:
      return value(std::string(attr.text()));
  }
  return value({});
}

std::optional<CallSite::Check> decode_check(ir::AttrsView attrs) {
  ir::Attr name, info, is_matrix;
  if (!attrs.find(kHostCheck, &name) || !attrs.find(kHostInfo, &info) ||
      !attrs.find(kHostIsMatrix, &is_matrix))
    return std::nullopt;
  return CallSite::Check{std::string(name.text()), static_cast<size_t>(info.integer()),
                         is_matrix.boolean()};
}

c10::IValue value_of(const CallSite::Argument& a, const CallSite::Operand& operand,
                     const CallSite::Number& number) {
  switch (a.from) {
    case From::kValue:
      return a.value;
    case From::kTensor:
      return operand(a.operands[0]);
    case From::kScalar:
      return number(a.operands[0]);
    case From::kReal:
      return number(a.operands[0]).toDouble();
    case From::kList: {
      c10::List<at::Tensor> list;
      for (int64_t i : a.operands) list.push_back(i < 0 ? at::Tensor() : operand(i));
      return list;
    }
    case From::kOptList: {
      c10::List<std::optional<at::Tensor>> list;
      for (int64_t i : a.operands) list.push_back(i < 0 ? std::nullopt : std::optional(operand(i)));
      return list;
    }
  }
  return {};
}

}  // namespace

std::vector<c10::IValue> CallSite::stack(const Operand& operand, const Number& number) const {
  std::vector<c10::IValue> out;
  out.reserve(args.size() + 2);
  for (const Argument& a : args) out.push_back(value_of(a, operand, number));
  return out;
}

std::vector<c10::IValue> CallSite::stack(const Operand& operand) const {
  return stack(operand, [&operand](int64_t i) { return operand(i).item(); });
}

CallSite decode_call(std::string_view name, ir::AttrsView attrs) {
  auto op = c10::Dispatcher::singleton().findSchema(parse_name(name));
  if (!op) fail(Code::kRuntime, cat("this PyTorch has no operator ", name));
  CallSite site{*op, {}, decode_check(attrs)};
  for (const c10::Argument& a : op->schema().arguments()) site.args.push_back(decode(a, attrs));
  return site;
}

std::vector<size_t> written_arguments(std::string_view name, const c10::FunctionSchema& schema) {
  std::vector<size_t> places;
  if (const ops::Row* row = ops::find_row(name))
    for (const std::string& w : words(row->writes))
      places.push_back(static_cast<size_t>(*schema.argumentIndexWithName(w)));
  return places;
}

void check_results(const CallSite& site, const std::vector<at::Tensor>& results) {
  if (const auto& c = site.check)
    at::_linalg_check_errors(results.at(c->info), c->name, c->is_matrix);
}

Code code_of(const c10::Error& e) {
  if (dynamic_cast<const c10::LinAlgError*>(&e)) return Code::kLinAlg;
  if (dynamic_cast<const c10::IndexError*>(&e)) return Code::kIndex;
  if (dynamic_cast<const c10::ValueError*>(&e)) return Code::kValue;
  if (dynamic_cast<const c10::TypeError*>(&e)) return Code::kType;
  if (dynamic_cast<const c10::NotImplementedError*>(&e)) return Code::kNotImplemented;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&e)) return Code::kOutOfMemory;
  return Code::kRuntime;
}

}  // namespace tp::torch_room
