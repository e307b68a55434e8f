// The callback of host ops: decodes what the program's text says about the call (once a call site),
// makes CPU tensors of the program's buffers, calls PyTorch's kernel. Any thread; the table of call
// sites has a lock of its own, held for a lookup.
#include <ATen/Parallel.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/from_blob.h>

#include <mutex>

#include "base/error.h"
#include "base/lru.h"
#include "base/text.h"
#include "ops/host/host.h"
#include "torch/host_op.h"
#include "torch/schema.h"

namespace tp::torch_room {

const ir::Symbol kHostCheck = ir::symbol("linalg_check"), kHostInfo = ir::symbol("linalg_info"),
                 kHostIsMatrix = ir::symbol("linalg_is_matrix");

namespace {

using pjrt::ffi::Buffer;
using pjrt::ffi::Frame;

// --- a call site ---------------------------------------------------------------------------------

struct Argument {
  enum class From : uint8_t { kValue, kTensor, kScalar, kReal, kList, kOptList } from;
  c10::IValue value;              // kValue
  std::vector<int64_t> operands;  // else; -1 for an absent element of a list
};

struct Check {
  std::string name;
  size_t info;
  bool is_matrix;
};

struct Site {
  c10::OperatorHandle op;
  std::optional<c10::OperatorHandle> out;
  std::vector<Argument> args;
  std::vector<int64_t> python;  // operands that are Python numbers
  std::optional<Check> check;
};

Argument from_operands(const c10::Argument& a, const ir::Attr& attr) {
  auto ints = attr.ints();
  Argument r{Argument::From::kTensor, {}, {ints.begin(), ints.end()}};
  c10::TypePtr t = a.real_type();
  if (auto o = t->cast<c10::OptionalType>()) t = o->getElementType();
  if (attr.kind == ir::AttrKind::kOperands) {
    bool optional =
        t->expectRef<c10::ListType>().getElementType()->kind() != c10::TypeKind::TensorType;
    r.from = optional ? Argument::From::kOptList : Argument::From::kList;
  } else if (t->kind() == c10::TypeKind::NumberType) {
    r.from = Argument::From::kScalar;
  } else if (t->kind() == c10::TypeKind::FloatType) {
    r.from = Argument::From::kReal;
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

Argument decode(const c10::Argument& a, ir::AttrsView attrs) {
  ir::Attr attr;
  if (!attrs.find(ir::symbol(a.name()), &attr)) return {Argument::From::kValue, absent(a), {}};
  auto value = [](c10::IValue v) { return Argument{Argument::From::kValue, std::move(v), {}}; };
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

std::optional<Check> decode_check(ir::AttrsView attrs) {
  ir::Attr name, info, is_matrix;
  if (!attrs.find(kHostCheck, &name) || !attrs.find(kHostInfo, &info) ||
      !attrs.find(kHostIsMatrix, &is_matrix))
    return std::nullopt;
  return Check{std::string(name.text()), static_cast<size_t>(info.integer()), is_matrix.boolean()};
}

std::shared_ptr<const Site> decode(std::string_view name, std::span<const int64_t> words,
                                   std::span<const int64_t> python) {
  auto op = c10::Dispatcher::singleton().findSchema(parse_name(name));
  if (!op) fail(Code::kRuntime, cat("this PyTorch has no operator ", name));
  ir::AttrsView attrs({reinterpret_cast<const uint64_t*>(words.data()), words.size()});
  auto site = std::make_shared<Site>(
      Site{*op, out_form(*op), {}, {python.begin(), python.end()}, decode_check(attrs)});
  for (const c10::Argument& a : op->schema().arguments()) site->args.push_back(decode(a, attrs));
  return site;
}

// Decoded call sites by what their text says.
std::shared_ptr<const Site> site_of(const Frame& frame) {
  static std::mutex mu;
  static auto* sites = new LruMap<Hash128, std::shared_ptr<const Site>>(1024);
  std::string_view name = pjrt::ffi::text(frame, ops::kHostOp);
  auto words = pjrt::ffi::integers(frame, ops::kHostWords);
  auto python = pjrt::ffi::integers(frame, ops::kHostPython);
  Hash128 key = mix(mix(hash_text(name), hash_bytes(words.data(), words.size_bytes())),
                    hash_bytes(python.data(), python.size_bytes()));
  {
    std::lock_guard lock(mu);
    if (auto* hit = sites->get(key)) return *hit;
  }
  auto made = decode(name, words, python);
  std::lock_guard lock(mu);
  return *sites->put(key, std::move(made));
}

// --- the call ------------------------------------------------------------------------------------

// XLA's PrimitiveType, which is not PJRT's numbering.
at::ScalarType scalar_type_of(int element_type) {
  switch (element_type) {
    case 1:
      return at::kBool;
    case 2:
      return at::kChar;
    case 3:
      return at::kShort;
    case 4:
      return at::kInt;
    case 5:
      return at::kLong;
    case 6:
      return at::kByte;
    case 7:
      return at::kUInt16;
    case 8:
      return at::kUInt32;
    case 9:
      return at::kUInt64;
    case 10:
      return at::kHalf;
    case 11:
      return at::kFloat;
    case 12:
      return at::kDouble;
    case 15:
      return at::kComplexFloat;
    case 16:
      return at::kBFloat16;
    case 18:
      return at::kComplexDouble;
    case 19:
      return at::kFloat8_e5m2;
    case 20:
      return at::kFloat8_e4m3fn;
    default:
      fail(Code::kInternal, cat("a host op has a buffer of XLA's element type ", element_type));
  }
}

at::Tensor view_of(const Buffer& b) {
  auto options = at::TensorOptions(scalar_type_of(b.element_type)).device(at::kCPU);
  return at::from_blob(b.data, at::IntArrayRef(b.dims, static_cast<size_t>(b.rank)), options);
}

class Caller {
 public:
  Caller(const Frame& frame, const Site& site) : frame_(frame), site_(site) {
    for (int64_t i = 0; i < frame.results.size; ++i) results_.push_back(view_of(frame.result(i)));
  }

  void run() {
    Stack stack;
    for (const Argument& a : site_.args) stack.push_back(value(a));
    if (site_.out && results_.size() == site_.op.schema().returns().size())
      write_into(std::move(stack));
    else
      copy_out(std::move(stack));
    if (const auto& c = site_.check)
      at::_linalg_check_errors(results_.at(c->info), c->name, c->is_matrix);
  }

 private:
  at::Tensor operand(int64_t i) const {
    at::Tensor t = view_of(frame_.argument(i));
    for (int64_t p : site_.python)
      if (p == i) t.unsafeGetTensorImpl()->set_wrapped_number(true);
    return t;
  }

  c10::IValue value(const Argument& a) const {
    switch (a.from) {
      case Argument::From::kValue:
        return a.value;
      case Argument::From::kTensor:
        return operand(a.operands[0]);
      case Argument::From::kScalar:
        return operand(a.operands[0]).item();
      case Argument::From::kReal:
        return operand(a.operands[0]).item().toDouble();
      case Argument::From::kList: {
        c10::List<at::Tensor> list;
        for (int64_t i : a.operands) list.push_back(i < 0 ? at::Tensor() : operand(i));
        return list;
      }
      case Argument::From::kOptList: {
        c10::List<std::optional<at::Tensor>> list;
        for (int64_t i : a.operands)
          list.push_back(i < 0 ? std::nullopt : std::optional(operand(i)));
        return list;
      }
    }
    return {};
  }

  void write_into(Stack stack) {
    for (const at::Tensor& t : results_) stack.emplace_back(t.view(t.sizes()));
    call_on_cpu(*site_.out, &stack);
    size_t i = 0;
    for (const at::Tensor& t : tensors_of(stack)) {
      at::Tensor& to = results_[i++];
      expect(t, to);
      // A kernel may leave a conj bit (lu_solve of a right-hand system) or other strides behind.
      bool as_given = !t.is_conj() && !t.is_neg() && t.strides() == to.strides() &&
                      t.const_data_ptr() == to.const_data_ptr();
      if (!as_given) to.copy_(t.clone(at::MemoryFormat::Contiguous).resolve_conj().resolve_neg());
    }
  }

  void copy_out(Stack stack) {
    call_on_cpu(site_.op, &stack);
    size_t i = 0;
    for (const at::Tensor& t : tensors_of(stack)) {
      if (!t.defined()) continue;
      check(i < results_.size(), "a host op gives the results that were recorded");
      expect(t, results_[i]);
      results_[i++].copy_(t);
    }
    check(i == results_.size(), "a host op gives the results that were recorded");
  }

  void expect(const at::Tensor& got, const at::Tensor& recorded) const {
    if (got.sizes() == recorded.sizes() && got.scalar_type() == recorded.scalar_type()) return;
    fail(Code::kInternal,
         cat(display(site_.op.operator_name()), ": its CPU kernel gave ",
             ir::make_type(to_dtype(got.scalar_type()), span_of(got.sizes())).text(), " where ",
             ir::make_type(to_dtype(recorded.scalar_type()), span_of(recorded.sizes())).text(),
             " was recorded"));
  }

  const Frame& frame_;
  const Site& site_;
  std::vector<at::Tensor> results_;
};

// --- errors --------------------------------------------------------------------------------------

Code code_of(const c10::Error& e) {
  if (dynamic_cast<const c10::LinAlgError*>(&e)) return Code::kLinAlg;
  if (dynamic_cast<const c10::IndexError*>(&e)) return Code::kIndex;
  if (dynamic_cast<const c10::ValueError*>(&e)) return Code::kValue;
  if (dynamic_cast<const c10::TypeError*>(&e)) return Code::kType;
  if (dynamic_cast<const c10::NotImplementedError*>(&e)) return Code::kNotImplemented;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&e)) return Code::kOutOfMemory;
  return Code::kRuntime;
}

}  // namespace

pjrt::ffi::Error* run_host_op(Frame* frame) {
  constexpr int kRun = 3;
  if (pjrt::ffi::answered_version(frame) || frame->stage != kRun) return nullptr;
  // A thread of the plugin's knows torch.set_num_threads() only once it has asked.
  at::internal::lazy_init_num_threads();
  try {
    Caller(*frame, *site_of(*frame)).run();
    return nullptr;
  } catch (const c10::Error& e) {
    return pjrt::ffi::failure(*frame, code_of(e), e.what_without_backtrace());
  } catch (const Error& e) {
    return pjrt::ffi::failure(*frame, e.code(), e.what());
  } catch (const std::exception& e) {
    return pjrt::ffi::failure(*frame, Code::kRuntime, e.what());
  }
}

}  // namespace tp::torch_room
