#include "torch/recorder.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/DefaultDtype.h>

#include <bit>
#include <unordered_map>

#include "base/error.h"
#include "base/flags.h"
#include "base/lru.h"
#include "base/text.h"
#include "base/thread_local.h"
#include "ops/core/eager_text.h"
#include "torch/capture.h"
#include "torch/checks.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/host_op.h"
#include "torch/random.h"
#include "torch/trace.h"
#include "torch/unsynced.h"

namespace tp::torch_room {

using ir::Type;
using ir::Value;

namespace {

using TypeCache = LruMap<Hash128, std::unique_ptr<Inferred>>;

TypeCache& type_cache() {
  static thread_local TypeCache cache(static_cast<size_t>(flag_int(Flag::kShapeCacheSize)));
  return address_once(cache);
}

const ir::Symbol kPrecision = ir::symbol(ops::kPrecision),
                 kDefaultFloat = ir::symbol(ops::kDefaultFloat), kSeed = ir::symbol("seed"),
                 kOffset = ir::symbol("offset");

[[noreturn]] void mixed_devices(c10::Device first, c10::Device other) {
  fail(Code::kRuntime,
       cat("Expected all tensors to be on the same device, but found at least two devices, ",
           first.str(), " and ", other.str(), "!"),
       cat("move the other tensor with .to(\"", first.str(), "\")"));
}

[[noreturn]] void used_outside() {
  fail(Code::kRuntime, "this tensor was made while a function was traced: it has no value",
       "return it from the traced function");
}

// Strides of a copy: those of the operand, made dense where it has gaps or overlaps.
std::unique_ptr<Dims> like_first(const Impl& first, Type result) {
  if (!result || first.sizes() != ref_of(result.dims())) return nullptr;
  return std::make_unique<Dims>(dims_of(dense_strides(first)));
}

// 0-d tensors of the CPU, Python numbers among them, are operands like those of the device.
at::Tensor meta_of(const at::Tensor& t) {
  if (!t.defined()) return t;
  bool number = t.device().is_cpu() && t.dim() == 0 && t.layout() == at::kStrided;
  if (!number && !impl_or_null(t)) return t;
  at::Tensor meta = at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
  if (number)
    meta.unsafeGetTensorImpl()->set_wrapped_number(t.unsafeGetTensorImpl()->is_wrapped_number());
  return meta;
}

// Eager's CPU casts operands of another dtype before it lays out the result, and a cast has no gaps
// and no overlaps. `from`: the first argument that takes part.
void lay_out_casts(Stack& args, size_t from) {
  at::native::ResultTypeState state{};
  for (size_t i = from; i < args.size(); ++i)
    if (args[i].isTensor() && args[i].toTensor().defined())
      state = at::native::update_result_type_state(args[i].toTensor(), state);
  at::ScalarType common = at::native::result_type(state);
  for (size_t i = from; i < args.size(); ++i) {
    if (!args[i].isTensor() || !args[i].toTensor().defined()) continue;
    const at::Tensor& t = args[i].toTensor();
    if (t.scalar_type() == common || t.is_non_overlapping_and_dense()) continue;
    args[i] = at::detail::empty_strided_meta(
        t.sizes(), at::infer_dense_strides(t.sizes(), t.strides()), t.scalar_type());
  }
}

// Strides that PyTorch's TensorIterator gives the result of an elementwise op on these arguments.
std::unique_ptr<Dims> iterator_strides(Stack args, Type result, bool reversed) {
  if (reversed) std::reverse(args.begin(), args.end());
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
  config.declare_static_dtype_and_device(at::kByte, at::kMeta).add_owned_output(at::TensorBase());
  for (const c10::IValue& v : args)
    if (v.isTensor() && v.toTensor().defined()) {
      const at::Tensor& t = v.toTensor();
      config.add_owned_const_input(
          at::detail::empty_strided_meta(t.sizes(), t.strides(), at::kByte));
    }
  at::TensorIterator iterator = config.build();
  const at::TensorBase& out = iterator.tensor_base(0);
  if (out.sizes() != ref_of(result.dims()) || plain_strides(*out.unsafeGetTensorImpl()))
    return nullptr;
  return std::make_unique<Dims>(span_of(out.strides()));
}

std::unique_ptr<Dims> suggested_strides(const Stack& args, Type result) {
  for (size_t i = 0; i < args.size() && i < 2; ++i) {
    if (!args[i].isTensor() || !args[i].toTensor().defined()) continue;
    const at::Tensor& t = args[i].toTensor();
    at::MemoryFormat format = t.suggest_memory_format();
    if (t.dim() != result.rank() || format == at::MemoryFormat::Contiguous) continue;
    auto dims = ref_of(result.dims());
    return std::make_unique<Dims>(span_of(t.dim() == 4 ? c10::get_channels_last_strides_2d(dims)
                                                       : c10::get_channels_last_strides_3d(dims)));
  }
  return nullptr;
}

Result result_of(const at::Tensor& t) {
  if (!t.defined()) return {};
  Result r{ir::make_type(to_dtype(t.scalar_type()), span_of(t.sizes())), nullptr};
  if (!plain_strides(*t.unsafeGetTensorImpl()) && t.is_non_overlapping_and_dense())
    r.strides = std::make_unique<Dims>(span_of(t.strides()));
  return r;
}

}  // namespace

c10::IValue map_tensors(const c10::IValue& v, at::Tensor (*f)(const at::Tensor&)) {
  if (v.isTensor()) return f(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorList()) list.push_back(f(t));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorList())
      list.push_back(t && t->defined() ? std::optional<at::Tensor>(f(*t)) : std::nullopt);
    return list;
  }
  return v;
}

const MetaRow* meta_row(std::string_view overload) {
  static const auto* map = [] {
    auto* m = new std::unordered_map<std::string_view, const MetaRow*>;
    for (auto rows : {meta_rows_own(), meta_rows_0(), meta_rows_1(), meta_rows_2()})  // ours first
      for (const MetaRow& r : rows) m->emplace(r.overload, &r);
    return m;
  }();
  auto it = map->find(overload);
  return it == map->end() ? nullptr : it->second;
}

// --- arguments
// ----------------------------------------------------------------------------------------------

int64_t Call::operand(Value v, const Impl* t) {
  key_ = mix(key_, v.type());
  if (t) {
    if (device_.index() < 0) device_ = t->device();
    if (t->device().index() != device_.index()) [[unlikely]]
      mixed_devices(device_, t->device());
    if (!first_) first_ = t;
    if (!plain_strides(*t)) {
      strided_ = true;
      strides_ = mix(strides_, operands_.size());
      for (int64_t s : t->strides()) strides_ = mix(strides_, static_cast<uint64_t>(s));
    }
  }
  operands_.push_back(std::move(v));
  return static_cast<int64_t>(operands_.size()) - 1;
}

void Call::note_divisor(const at::Scalar& s) {
  by_zero_ |= op_.row->divides && !operands_.empty() && !s.isComplex() && s.toDouble() == 0;
}

int64_t Call::number(const at::Scalar& s, bool wrapped) {
  note_divisor(s);
  // A number is no part of a type; but some are asked about with the type.
  if (op_.row->refuses_numbers && !s.isComplex())
    key_ = mix(key_, std::bit_cast<uint64_t>(s.toDouble()));
  key_ = mix(
      key_, uint64_t{wrapped});  // a Python number and a 0-d tensor of one type promote differently
  return operand({ir::Node::make_number(to_scalar(s), wrapped), 0}, nullptr);
}

int64_t Call::tensor_operand(const at::Tensor& t, bool may_upload) {
  if (Impl* p = impl_or_null(t)) {
    if (p->alias()->traced && !tracing()) [[unlikely]]
      used_outside();
    bool lazy_bits = t.is_conj() || t.is_neg();
    return operand(lazy_bits ? resolved_value(t) : value_of(*p), p);
  }
  if (t.device().is_cpu() && t.dim() == 0) {
    // A Python number, or a 0-d CPU tensor: read now, a run-time number of the program. A tensor
    // keeps its width (promotion sees f32, not "some float").
    bool wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
    at::Scalar s = t.item();
    note_divisor(s);
    Value n{ir::Node::make_number(to_scalar(s), wrapped), 0};
    if (!wrapped) n = cast(std::move(n), to_dtype(t.scalar_type()));
    key_ = mix(key_, uint64_t{wrapped});
    return operand(std::move(n), nullptr);
  }
  if (may_upload && t.device().is_cpu()) {
    at::Tensor up = t.to(device());
    return operand(value_of(impl_of(up)), &impl_of(up));
  }
  mixed_devices(device(), t.device());
}

void Call::tensor(const ArgInfo& a, const at::Tensor& t) {
  if (!t.defined()) return attrs_.none(a.symbol);
  attrs_.operand(a.symbol, tensor_operand(t, false));
}

void Call::tensor_list(const ArgInfo& a, c10::ArrayRef<at::Tensor> list) {
  SmallVec<int64_t, 8> at;
  for (const at::Tensor& t : list)
    at.push_back(t.defined() ? tensor_operand(t, a.kind == ArgKind::kOptTensorList) : -1);
  attrs_.operands(a.symbol, at);
}

namespace {

// Does every dtype hold s? Complex numbers: ask.
bool small(const at::Scalar& s) {
  constexpr double kSmall = 127;
  if (s.isComplex()) return false;
  double v = s.toDouble();
  return (v >= 0 && v <= kSmall) || s.isBoolean();
}

}  // namespace

void check_fits(const at::Scalar& s, at::ScalarType t) {
  switch (t) {
#define TP_FITS(type, name)          \
  case at::ScalarType::name:         \
    static_cast<void>(s.to<type>()); \
    return;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(TP_FITS)
#undef TP_FITS
    default:
      return;
  }
}

void Call::check_numbers(const Inferred& i) const {
  if (i.types.empty() || !i.types[0]) return;
  if (by_zero_ && ir::is_int(i.types[0].dtype()) && i.types[0].numel() > 0)
    fail(Code::kRuntime, "ZeroDivisionError");
  for (const at::Scalar& s : large_) check_fits(s, to_scalar_type(i.types[0].dtype()));
}

void Call::scalar(const ArgInfo& a, const at::Scalar& s) {
  if (a.must_fit && !small(s)) large_.push_back(s);
  if (a.unit_default && s.isIntegral(false) && s.toLong() == 1) return attrs_.none(a.symbol);
  if (!a.as_attr || (a.unless_complex && s.isComplex()))
    return attrs_.operand(a.symbol, number(s, true));
  // toDouble refuses an imaginary part, in eager's words.
  if (s.isFloatingPoint() || s.isComplex()) return attrs_.real(a.symbol, s.toDouble());
  if (s.isBoolean()) return attrs_.boolean(a.symbol, s.toBool());
  attrs_.integer(a.symbol, s.toLong());
}

void Call::real(const ArgInfo& a, double v) {
  if (a.as_number)
    attrs_.operand(a.symbol, number(at::Scalar(v), true));
  else
    attrs_.real(a.symbol, v);
}

void Call::random(const std::optional<at::Generator>& g) {
  auto [seed, offset] = next_random(g);
  int64_t s = number(at::Scalar(seed), false), o = number(at::Scalar(offset), false);
  attrs_.operand(kSeed, s);
  attrs_.operand(kOffset, o);
  const ir::NodePtr &seed_leaf = operands_[static_cast<size_t>(s)].node,
                    &offset_leaf = operands_[static_cast<size_t>(o)].node;
  if (tracing()) [[unlikely]]
    t_trace->drew(seed_leaf, offset_leaf, offset);
  else if (Capture* c = g_capture.load(std::memory_order_acquire)) [[unlikely]]
    c->drew(seed_leaf, offset_leaf, offset);
  // A distribution's parameters are run-time numbers: their range is asked at every call, not once
  // a type.
  if (op_.row->check) with_args([&](const ops::Args& args) { op_.row->check(args); });
}

void Call::value(const ArgInfo& a, const c10::IValue& v) {
  if (v.isDevice() && v.toDevice().is_xla() && v.toDevice().has_index())
    device_ = checked_device(v.toDevice());
  if (a.kind == ArgKind::kSkip || a.kind == ArgKind::kGenerator) return;
  if (v.isNone()) return attrs_.none(a.symbol);
  switch (a.kind) {
    case ArgKind::kTensor:
      return tensor(a, v.toTensor());
    case ArgKind::kTensorList:
      return tensor_list(a, v.toTensorVector());
    case ArgKind::kOptTensorList: {
      std::vector<at::Tensor> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorList())
        list.push_back(t.value_or(at::Tensor()));
      return tensor_list(a, list);
    }
    case ArgKind::kScalar:
      return scalar(a, v.toScalar());
    case ArgKind::kInt:
      return integer(a, v.toInt());
    case ArgKind::kFloat:
      return real(a, v.toDouble());
    case ArgKind::kBool:
      return boolean(a, v.toBool());
    case ArgKind::kInts:
      return ints(a, v.toDimVector());
    case ArgKind::kFloats:
      return attrs_.floats(a.symbol, v.toDoubleVector());
    case ArgKind::kDType:
      return dtype(a, v.toScalarType());
    case ArgKind::kText:
      return text(a, v.toStringView());
    case ArgKind::kBools: {
      SmallVec<int64_t, 4> bits;
      for (bool b : v.toBoolList()) bits.push_back(b);
      return attrs_.bools(a.symbol, bits);
    }
    case ArgKind::kGenerator:
    case ArgKind::kSkip:
      break;
  }
}

// --- types
// --------------------------------------------------------------------------------------------------

void Call::finish_key(FormKind form) {
  if (op_.row->special == ops::Special::kProducts) {
    auto asked = at::globalContext().float32MatmulPrecision();
    if (asked != at::Float32MatmulPrecision::HIGHEST)
      attrs_.integer(kPrecision, asked == at::Float32MatmulPrecision::HIGH ? 1 : 2);
  }
  if (at::ScalarType t = c10::get_default_dtype_as_scalartype(); t != at::kFloat)
    attrs_.dtype(kDefaultFloat, to_dtype(t));
  for (uint64_t w : attrs_.words()) key_ = mix(key_, w);
  if (strided_) key_ = mix(key_, strides_);
  // The forms have checks of their own, so they have entries of their own.
  key_ = mix(key_, static_cast<uint64_t>(form));
}

const Inferred* Call::lookup() const {
  auto* hit = type_cache().get(key_);
  return hit ? hit->get() : nullptr;
}

void Call::with_args(const std::function<void(const ops::Args&)>& f) const {
  c10::SmallVector<Type, 8> types;
  for (const Value& v : operands_) types.push_back(v.type());
  f(ops::Args(ir::AttrsView(attrs_.words()), {types.data(), types.size()},
              {operands_.data(), operands_.size()}));
}

std::unique_ptr<Dims> Call::strides_of(Type result, const Stack& args) const {
  if (!result || !strided_) return nullptr;
  switch (op_.row->layout) {
    case ops::Layout::kContiguous:
      return nullptr;
    case ops::Layout::kIterator:
    case ops::Layout::kIteratorReversed:
    case ops::Layout::kIteratorOfRest: {
      Stack cast = args;
      lay_out_casts(cast, op_.row->layout == ops::Layout::kIteratorOfRest ? 1 : 0);
      return iterator_strides(std::move(cast), result,
                              op_.row->layout == ops::Layout::kIteratorReversed);
    }
    case ops::Layout::kSuggested:
      return suggested_strides(args, result);
    case ops::Layout::kMeta: {
      Stack s = args;
      for (c10::IValue& v : s) v = map_tensors(v, meta_of);
      op_.meta(&s);
      return std::move(result_of(s[0].toTensor()).strides);
    }
    case ops::Layout::kCopyOfFirst:
      return first_ && !plain_strides(*first_) ? like_first(*first_, result) : nullptr;
  }
  return nullptr;
}

Inferred Call::by_rule(const Stack& args) const {
  Inferred i;
  with_args([&](const ops::Args& a) { op_.row->type(a, i.types); });
  for (Type t : i.types) i.results.push_back({t, strides_of(t, args)});
  return i;
}

Inferred Call::by_meta(Stack& stack) const {
  if (strided_ && op_.iterates) lay_out_casts(stack, 0);
  for (c10::IValue& v : stack) v = map_tensors(v, meta_of);
  op_.meta(&stack);
  Inferred i;
  for (const c10::IValue& v : stack) i.results.push_back(result_of(v.toTensor()));
  for (const Result& r : i.results) i.types.push_back(r.type);
  return i;
}

Inferred Call::by_dry_run(Stack& stack) const {
  Inferred i;
  for (const at::Tensor& t : dry_run(*op_.cpu, std::move(stack))) {
    Result r = result_of(t);
    // A window of more memory (lstsq) is laid out without the rest.
    if (t.defined() && !t.is_non_overlapping_and_dense())
      r.strides = std::make_unique<Dims>(dims_of(dense_strides(*t.unsafeGetTensorImpl())));
    i.types.push_back(r.type);
    i.results.push_back(std::move(r));
  }
  return i;
}

void check_out(const OpInfo& op, Type t, const at::Tensor& out) {
  if (!t) return;
  ir::DType have = to_dtype(out.scalar_type());
  ops::check_out(*op.row, t.dtype(), have);
  if (op.exact_out && t.dtype() != have)
    fail(Code::kRuntime, ops::expected_out_dtype(t.dtype(), have));
  if (!c10::canCast(to_scalar_type(t.dtype()), out.scalar_type()))
    fail(Code::kRuntime, ops::cannot_be_cast(t.dtype(), have));
}

void Call::check_inplace(const Inferred& i) const {
  const Impl& self = *first_;
  Type t = i.types.at(0);
  ops::check_inplace(*op_.row, type_of(self).dtype());
  if (ref_of(t.dims()) != self.sizes())
    fail(Code::kRuntime,
         cat("output with shape [", join(self.sizes(), ", "),
             "] doesn't match the broadcast shape [", join(t.dims(), ", "), "]"),
         "use the form that is not in-place, or expand the tensor first");
  at::ScalarType from = to_scalar_type(t.dtype()), to = self.dtype().toScalarType();
  if (!c10::canCast(from, to))
    fail(Code::kRuntime, ops::cannot_be_cast(t.dtype(), to_dtype(to)),
         cat("use the form that is not in-place, or convert the tensor to ", c10::toString(from),
             " first"));
}

void Call::check_outs(const Inferred& i) const {
  size_t next = 0;
  auto check = [&](const at::Tensor& t) {
    if (next < i.types.size()) check_out(op_, i.types[next++], t);
  };
  for (const c10::IValue& v : outs_) {
    if (v.isTensor()) {
      check(v.toTensor());
    } else {
      for (const at::Tensor& t : v.toTensorVector()) check(t);
    }
  }
}

const Inferred& Call::miss(FormKind form, Stack& stack) {
  Inferred i = op_.row->type ? by_rule(stack) : op_.meta ? by_meta(stack) : by_dry_run(stack);
  if (form == FormKind::kInplace && first_) check_inplace(i);
  check_outs(i);
  if (first_written_) check_overlap(*first_written_);  // eager's kernels come last
  with_args([&](const ops::Args& args) { ops::check_call(*op_.row, args); });
  return **type_cache().put(key_, std::make_unique<Inferred>(std::move(i)));
}

ir::NodePtr Call::node(const Inferred& types) {
  device_ = device();
  check_device(device_.index());
  ir::NodePtr made =
      ir::Node::make(*op_.kind, {operands_.data(), operands_.size()}, types.types, attrs_.words());
  made->set_location(here());
  note_recorded(*made);
  return made;
}

std::string Call::describe() const {
  std::vector<std::string> types;
  for (const Value& v : operands_) types.push_back(v.type().text());
  return cat(op_.base_name, "(", join(types, ", "), ")");
}

}  // namespace tp::torch_room
