#include "torch/autograd_threads.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/node.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <utility>

#include "torch/compat.h"

namespace tp::torch_room {
namespace {

namespace ag = torch::autograd;

std::atomic<int64_t> g_threads = 0;  // highest index given to a thread but the main one, plus 1
std::atomic<pid_t> g_process = 0;    // whose threads they are: a forked child has none

// Hands no gradient on to any of its next edges.
struct Nothing final : ag::Node {
  ag::variable_list apply(ag::variable_list&&) override { return ag::variable_list(num_outputs()); }
};

c10::intrusive_ptr<Nothing> node_on(c10::Device device) {
  auto node = c10::make_intrusive<Nothing>();
  auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  node->add_input_metadata(options, /*shape=*/{}, /*is_tensor_subclass=*/false,
                           /*is_nested=*/false, /*grad_dtype=*/std::nullopt);
  return node;
}

// One node in each device thread's queue, without Python in it. A thread takes it once it has
// dropped what it had before.
void pass_through_device_threads(int64_t threads) {
  auto root = node_on(at::kCPU);
  for (int64_t i = 0; i < threads; ++i)
    root->add_next_edge({node_on({c10::kXLA, static_cast<c10::DeviceIndex>(i)}), 0});
  ag::Engine::get_default_engine().execute({{root, 0}}, {at::zeros({})}, /*keep_graph=*/false,
                                           /*create_graph=*/false, /*accumulate_grad=*/true);
}

std::mutex g_mu;
std::atomic<bool> g_may = false;    // a node was made
std::atomic<bool> g_ready = false;  // and the threads for it are there, or will be in time
bool g_refused = false;             // the engine asked before; under g_mu

}  // namespace

bool autograd_may_start_threads() {
  if (g_may || compat::other_devices(at::kXLA)) return true;
  std::lock_guard lock(g_mu);
  g_refused = !g_may;
  return g_may;
}

void note_device_node() {
  if (g_ready.load(std::memory_order_acquire)) [[likely]]
    return;
  std::lock_guard lock(g_mu);
  if (!g_may.exchange(true) && g_refused) compat::start_device_threads(at::kXLA);
  g_ready = true;
}

void note_device_thread(int64_t index) noexcept {
  static thread_local const bool main = gettid() == getpid();
  if (main || index < g_threads.load(std::memory_order_relaxed)) return;
  int64_t known = g_threads.load();
  while (index >= known && !g_threads.compare_exchange_weak(known, index + 1)) {
  }
  g_process = getpid();
}

struct AutogradRest::State {
  std::atomic<bool> reached = false;
};

AutogradRest::AutogradRest() {
  int64_t threads = g_threads.load();
  if (threads == 0 || g_process.load() != getpid()) return;
  state_ = std::make_shared<State>();
  // A thread that never comes back (a hook that sleeps) must not keep the process: hence detached.
  auto pass = [threads, state = state_] {
    try {
      pass_through_device_threads(threads);
    } catch (...) {  // the engine refuses: nothing to wait for then
    }
    state->reached = true;
  };
  try {
    std::thread(pass).detach();
  } catch (const std::system_error&) {  // the system gives no thread: likewise
    state_->reached = true;
  }
}

bool AutogradRest::reached() const { return !state_ || state_->reached; }

}  // namespace tp::torch_room
