#include "torch/asserts.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/is_nonzero_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <pthread.h>

#include <array>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/lru.h"
#include "base/text.h"
#include "client/registry.h"
#include "torch/cuts.h"
#include "torch/eager.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/runtime.h"
#include "torch/trace.h"

namespace tp::torch_room {
namespace {

struct Recorded {
  std::string words;
  ir::Site where;
};

// By number, from 1 on. Words that are made anew at each call are forgotten in the end.
class Numbers {
 public:
  int of(const Recorded& r) {
    std::string key = cat(r.where.at, " ", r.where.own, " ", r.words);
    if (int* known = numbers_.get(key)) {
      recorded_.get(*known);
      return *known;
    }
    recorded_.put(++last_, r);
    numbers_.put(key, last_);
    return last_;
  }
  Recorded recorded(int number) {
    Recorded* r = recorded_.get(number);
    return r ? *r : Recorded{"an assertion failed", {}};
  }

 private:
  static constexpr size_t kMost = 4096;
  LruMap<std::string, int> numbers_{kMost};
  LruMap<int, Recorded> recorded_{kMost};
  int last_ = 0;
};

constexpr size_t kDevices = 128;  // c10::DeviceIndex counts as far

struct All {
  // Held around recording, so never waited for with the GIL. A child has one of its own: this one
  // may be held by a thread that it does not have.
  std::atomic<std::mutex*> mu{new std::mutex};
  Numbers numbers;
  std::array<at::Tensor, kDevices> failed;  // by device: the number of the first one; or undefined
};
All& all() {
  static All* a = [] {
    static auto* made = new All;
    pthread_atfork(nullptr, nullptr, [] { made->mu = new std::mutex; });
    return made;
  }();
  return *a;
}

// Below autograd, and no inference tensors: ours go from one mode to another.
struct Below {
  at::AutoDispatchBelowADInplaceOrView keys;
  c10::InferenceMode normal{false};
};

bool has_failed(const client::Data& d) { return d.ready() && !d.computed(); }

// The device's number, as a tensor. Its program may have failed as a whole, which is told where its
// results are read: then the number starts anew.
at::Tensor& number_of(All& a, c10::Device device) {
  at::Tensor& t = a.failed[static_cast<size_t>(device_index(device))];
  if (!t.defined()) t = at::zeros({}, at::TensorOptions(at::kInt).device(device));
  client::DataPtr data;
  {
    std::lock_guard lock(state_lock());
    data = impl_of(t).alias()->buffer();
  }
  if (data && !client::forked() && has_failed(*data)) t.zero_();
  return t;
}

void record(const at::Tensor& self, std::string words) {
  Recorded r{std::move(words), user_site()};
  GilRelease no_gil;
  All& a = all();
  std::lock_guard lock(*a.mu.load());
  Below below;
  at::Tensor& number = number_of(a, self.device());
  at::Tensor first = self.reshape({}).eq(0).logical_and(number.eq(0));
  number.masked_fill_(first, a.numbers.of(r));
  ++g_asserted;
}

// Where the value is there, or nothing may be recorded: as the CPU does it.
bool known_now(const at::Tensor& self) {
  return eager_here() || tracing() || std::string_view(state_of(impl_of(self))) == "host";
}

void check_now(const at::Tensor& self, const std::string& words) {
  ReadKind kind("_assert_async");
  if (!at::native::is_nonzero(self)) fail(Code::kRuntime, words);
}

void check_count(const at::Tensor& self) {
  if (self.numel() == 1) return;
  fail(Code::kRuntime, cat("Boolean value of Tensor with ",
                           self.numel() ? "more than one value" : "no values", " is ambiguous"));
}

void assert_words(const at::Tensor& self, std::string words) {
  guarded(
      [&] {
        check_count(self);
        if (known_now(self)) return check_now(self, words);
        record(self, std::move(words));
      },
      [] { return std::string("aten::_assert_async"); });
}

void assert_plain(const at::Tensor& self) {
  assert_words(self, "Expected Tensor with single nonzero value, but got zero");
}

void assert_message(const at::Tensor& self, c10::string_view message) {
  assert_words(self, message.empty() ? "Assertion is failed" : std::string(message));
}

// The token keeps the order of such calls in PyTorch's graphs. Either tensor may be the CPU's.
at::Tensor assert_functional(const at::Tensor& self, c10::string_view message,
                             const at::Tensor& token) {
  if (impl_or_null(self)) {
    assert_message(self, message);
  } else if (!at::native::is_nonzero(self)) {
    TORCH_CHECK(false, message.empty() ? "Assertion is failed" : std::string(message));
  }
  return token.clone();
}

// The number where it is there: nothing while it is pending, runs (and is not to be waited for) or
// is nobody's because its program failed.
std::optional<int> number_there(const at::Tensor& t, Look how) {
  client::DataPtr data;
  {
    std::lock_guard lock(state_lock());
    const Alias& a = *impl_of(t).alias();
    data = a.buffer();
    if (!data) return std::nullopt;
  }
  if (how == Look::kWhatIsReady && !data->ready()) return std::nullopt;
  try {
    GilRelease no_gil;
    data->await();
  } catch (const Error&) {
    return std::nullopt;
  }
  return to_host(data).item<int>();
}

[[noreturn]] void raise(const Recorded& r) {
  Error e(Code::kRuntime, r.words);
  std::string line = ir::site_text(r.where);
  if (line.empty()) throw e;
  throw std::move(e).at(line);
}

}  // namespace

void look_at_asserts(Look how) {
  uint64_t asserted = g_asserted;
  std::array<at::Tensor, kDevices> numbers;
  All& a = all();
  GilRelease no_gil;
  {
    std::lock_guard lock(*a.mu.load());
    numbers = a.failed;
  }
  bool all_known = true;
  for (const at::Tensor& t : numbers) {
    if (!t.defined()) continue;
    std::optional<int> number = number_there(t, how);
    all_known &= number.has_value();
    if (number.value_or(0) == 0) continue;
    std::lock_guard lock(*a.mu.load());
    Below below;
    t.zero_();
    raise(a.numbers.recorded(*number));
  }
  if (all_known) g_held = asserted;
}

void note_asserts_replayed() {
  if (g_asserted) ++g_asserted;
}

void register_asserts(torch::Library& m) {
  m.impl("_assert_async", TORCH_FN(assert_plain));
  m.impl("_assert_async.msg", TORCH_FN(assert_message));
  m.impl("_functional_assert_async.msg", TORCH_FN(assert_functional));
}

}  // namespace tp::torch_room
