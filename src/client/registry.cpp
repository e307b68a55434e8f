#include "client/registry.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/flags.h"
#include "base/lock_order.h"
#include "base/text.h"
#include "client/platforms.h"
#include "client/registry_table.h"
#include "pjrt/api.h"

namespace tp::client {
namespace {

struct Registry {
  RankedMutex<LockRank::kRegistry> mu;
  Table table;
  std::unique_ptr<ComputationClient> client;
  Processes processes;
  bool wanted_store = false;  // of the client: its plugin wants the key-value store
};

// Never destroyed: tensors may die after static destructors.
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

std::atomic<ComputationClient*> g_client{nullptr};
// This process, and the one that made the client. Kept up to date by a fork handler: asking the
// system each time would cost more than the check is worth.
std::atomic<pid_t> g_pid{getpid()};
std::atomic<pid_t> g_owner{0};

void after_fork_in_child() {
  g_pid = getpid();
  if (g_owner != 0) pjrt::lose_plugins();
}

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, after_fork_in_child); });
}

// The caller holds the lock.
void install(Registry& r, std::unique_ptr<ComputationClient> client) {
  watch_forks();
  g_pid.store(getpid());  // forks before the watch began went unseen
  g_client.store(nullptr);
  r.client = std::move(client);
  g_owner.store(r.client ? getpid() : 0);
  g_client.store(r.client.get(), std::memory_order_release);
}

std::atomic<void (*)()> g_discovery{nullptr};

std::string asked_device() {
  const char* name = std::getenv("PJRT_DEVICE");
  return name && *name ? name : std::string(kDefaultDevice);
}

void discover(Registry& r, const std::string& name) {
  if (flag_text(Flag::kPlugin).starts_with(name + ":")) return;
  {
    std::lock_guard lock(r.mu);
    if (r.client || r.table.has(name)) return;
  }
  if (auto* look = g_discovery.load()) look();
}

// A plugin that is being started has threads already, which no child has.
class Starting {
 public:
  Starting() {
    watch_forks();
    g_pid.store(getpid());  // forks before the watch began went unseen
    g_owner.store(getpid());
  }
  ~Starting() {
    if (!g_client.load()) g_owner.store(0);
  }
  Starting(const Starting&) = delete;
};

ComputationClient& start() {
  check_not_forked();
  Registry& r = registry();
  std::string asked = asked_device();
  discover(r, asked);
  std::lock_guard lock(r.mu);
  if (r.client) return *r.client;
  PluginSpec spec = r.table.find(asked, flag_text(Flag::kPlugin));
  Starting starting;
  r.wanted_store = spec.wants_key_value_store;
  install(r, start_plugin(spec, r.processes));
  return *r.client;
}

}  // namespace

void set_processes(Processes p) {
  Registry& r = registry();
  std::lock_guard lock(r.mu);
  if (r.client && r.wanted_store)
    fail(Code::kRuntime,
         "the process group came after the device's first use: this plugin's processes have to "
         "know each other when it starts",
         "torch.distributed.init_process_group(\"xla\") before the first tensor on the device");
  r.processes = std::move(p);
}

void register_plugin(PluginSpec spec) {
  check_not_forked();
  capabilities_of(spec, {});  // throws for words that nobody knows
  Registry& r = registry();
  std::lock_guard lock(r.mu);
  if (r.client && r.table.has(spec.name))
    fail(Code::kRuntime,
         cat("plugin '", spec.name, "' cannot be replaced: the process already has its client"),
         "register plugins before the first use of the device");
  r.table.put(std::move(spec));
}

void set_discovery(void (*look)()) { g_discovery = look; }

std::vector<std::string> registered() {
  if (forked()) return {};  // none that this process could use
  Registry& r = registry();
  std::lock_guard lock(r.mu);
  return r.table.names(flag_text(Flag::kPlugin));
}

ComputationClient& client() {
  ComputationClient* c = g_client.load(std::memory_order_acquire);
  if (!c) return start();
  check_not_forked();
  return *c;
}

int promised_devices() {
  Registry& r = registry();
  std::string name = asked_device();
  std::lock_guard lock(r.mu);
  return r.table.has(name) ? r.table.find(name).device_count : 0;
}

bool client_exists() { return g_client.load(std::memory_order_acquire) != nullptr; }

bool forked() {
  pid_t owner = g_owner.load(std::memory_order_relaxed);
  return owner != 0 && owner != g_pid.load(std::memory_order_relaxed);
}

void check_not_forked() {
  if (forked()) [[unlikely]]
    fail(Code::kRuntime,
         cat("the device cannot be used in this process (", g_pid.load(),
             "): it was forked from process ", g_owner.load(),
             " after that one had started the device, and the plugin's threads did not come along"),
         "start workers with the 'spawn' or 'forkserver' method, or fork before the first use of "
         "the device");
}

void set_client_for_testing(std::unique_ptr<ComputationClient> c) {
  Registry& r = registry();
  std::lock_guard lock(r.mu);
  install(r, std::move(c));
}

}  // namespace tp::client
