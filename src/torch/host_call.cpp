// The callback of host ops: decodes what the program's text says about the call (once a call site),
// makes CPU tensors of the program's buffers, calls PyTorch's kernel. Any thread; the table of call
// sites has a lock of its own, held for a lookup.
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/lru.h"
#include "base/text.h"
#include "ops/host/host.h"
#include "torch/call_site.h"
#include "torch/host_op.h"
#include "torch/schema.h"

namespace tp::torch_room {
namespace {

using pjrt::ffi::Buffer;
using pjrt::ffi::Frame;

// --- a call site ---------------------------------------------------------------------------------

struct Site {
  CallSite call;
  std::optional<c10::OperatorHandle> out;
  std::vector<int64_t> python;  // operands that are Python numbers
  // Of an op of the table: arguments that the kernel writes, which are results behind the schema's.
  std::vector<size_t> writes;
};

std::shared_ptr<const Site> decode(std::string_view name, std::span<const int64_t> words,
                                   std::span<const int64_t> python) {
  ir::AttrsView attrs({reinterpret_cast<const uint64_t*>(words.data()), words.size()});
  CallSite call = decode_call(name, attrs);
  auto out = out_form(call.op);
  std::vector<size_t> writes = written_arguments(name, call.op.schema());
  return std::make_shared<Site>(
      Site{std::move(call), out, {python.begin(), python.end()}, std::move(writes)});
}

// The words of a call whose numbers are inputs of its program: the last arguments.
std::vector<int64_t> given_words(const Frame& frame, std::span<const int64_t> inputs) {
  auto words = pjrt::ffi::integers(frame, ops::kHostWords);
  std::vector<int64_t> given(words.begin(), words.end());
  int64_t at = frame.arguments.size - static_cast<int64_t>(inputs.size());
  for (int64_t word : inputs)
    std::memcpy(&given.at(static_cast<size_t>(word)), frame.argument(at++).data, sizeof(int64_t));
  return given;
}

// Decoded call sites by what their text says.
std::shared_ptr<const Site> site_of(const Frame& frame) {
  static std::mutex mu;
  static auto* sites = new LruMap<Hash128, std::shared_ptr<const Site>>(1024);
  std::string_view name = pjrt::ffi::text(frame, ops::kHostOp);
  auto words = pjrt::ffi::integers(frame, ops::kHostWords);
  auto python = pjrt::ffi::integers(frame, ops::kHostPython);
  if (auto inputs = pjrt::ffi::integers(frame, ops::kHostInputs); !inputs.empty())
    return decode(name, given_words(frame, inputs), python);
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
    Stack stack = site_.call.stack([this](int64_t i) { return operand(i); });
    take_written(stack);
    if (site_.out && results_.size() == site_.call.op.schema().returns().size())
      write_into(std::move(stack));
    else
      copy_out(std::move(stack));
    check_results(site_.call, results_);
  }

 private:
  at::Tensor operand(int64_t i) const {
    at::Tensor t = view_of(frame_.argument(i));
    for (int64_t p : site_.python)
      if (p == i) t.unsafeGetTensorImpl()->set_wrapped_number(true);
    return t;
  }

  // What the kernel writes it writes into the program's last results.
  void take_written(Stack& stack) {
    for (auto w = site_.writes.rbegin(); w != site_.writes.rend(); ++w) {
      if (!stack[*w].isTensor() || !stack[*w].toTensor().defined()) continue;
      check(!results_.empty(), "a host op gives the results that were recorded");
      results_.back().copy_(stack[*w].toTensor());
      stack[*w] = results_.back();
      results_.pop_back();
    }
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
    call_on_cpu(site_.call.op, &stack);
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
         cat(display(site_.call.op.operator_name()), ": its CPU kernel gave ",
             ir::make_type(to_dtype(got.scalar_type()), span_of(got.sizes())).text(), " where ",
             ir::make_type(to_dtype(recorded.scalar_type()), span_of(recorded.sizes())).text(),
             " was recorded"));
  }

  const Frame& frame_;
  const Site& site_;
  std::vector<at::Tensor> results_;
};

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
