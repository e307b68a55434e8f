// The harness's half that needs a plugin.
#include <cstdlib>

#include "client/registry.h"
#include "harness.h"

namespace tp::test {
namespace {

std::string plugin_path() {
  const char* set = std::getenv("TORCH_PJRT_TEST_PLUGIN");
  return set ? set : TP_CPU_PLUGIN_PATH;
}

std::unique_ptr<client::ComputationClient> g_client;

}  // namespace

client::PluginSpec tried_plugin() {
  client::PluginSpec spec;
  spec.name = "CPU";
  spec.library_path = plugin_path();
  spec.compile_options = {{"xla_cpu_enable_fast_min_max", false},
                          {"xla_allow_excess_precision", false}};
  return spec;
}

void use_plugin(const client::PluginSpec& spec) { g_client = client::make_pjrt_client(spec); }

client::ComputationClient& cpu_client() {
  if (!g_client) use_plugin(tried_plugin());
  return *g_client;
}

std::vector<Tensor> run_module(const std::string& text, const std::vector<Tensor>& in,
                               const std::vector<ir::Type>& out) {
  client::ComputationClient& c = cpu_client();
  client::CompileRequest request;
  request.module = text;
  request.outputs = out;
  client::ExecutablePtr program = c.compile(request);
  std::vector<client::DataPtr> args;
  for (const Tensor& t : in) {
    auto bytes = std::make_shared<std::string>(t.bytes);
    args.push_back(c.transfer_to_device({bytes->data(), t.type, bytes}, 0));
  }
  std::vector<uint8_t> donated(args.size(), 0);
  std::vector<Tensor> results;
  for (const client::DataPtr& d : c.execute(*program, args, donated, 0)) {
    d->await();
    Tensor t{d->type(), std::string(static_cast<size_t>(d->type().bytes()), '\0')};
    c.transfer_from_device(*d, t.bytes.data());
    results.push_back(std::move(t));
  }
  return results;
}

}  // namespace tp::test
