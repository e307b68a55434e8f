#include "client/pjrt_client.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <typeinfo>

#include "base/flags.h"
#include "base/heap.h"
#include "base/lock_order.h"
#include "base/text.h"
#include "client/environment.h"
#include "client/pjrt_types.h"
#include "client/platforms.h"
#include "probe/probe.h"
#include "shard/op_sharding.h"

namespace tp::client {
namespace {

[[noreturn]] void wrong_argument(size_t i, ir::Type expected, const Data* found) {
  fail(Code::kRuntime, cat("execute: argument ", i, ": expected ", expected.text(), ", got ",
                           found ? found->type().text() : std::string("nothing")));
}

// The arguments that must survive: only those that the module lets the plugin consume need to be
// listed.
std::vector<int64_t> keep_list(const Signature& signature, std::span<const uint8_t> donated) {
  std::vector<int64_t> keep;
  for (int64_t i : signature.donatable)
    if (donated.empty() || !donated[static_cast<size_t>(i)]) keep.push_back(i);
  return keep;
}

// As they were when this process first loaded the library: it need not look a second time.
Variables variables_at_load(const PluginSpec& spec) {
  static auto* mu = new RankedMutex<LockRank::kVariables>;
  static auto* first = new std::map<std::string, Variables>;
  std::lock_guard lock(*mu);
  std::string name = cat(spec.library_path, " ", join(spec.variables, " "));
  return first->try_emplace(name, plugin_variables(spec)).first->second;
}

// Element types that the plugin does not take, among these.
void check_types(const Capabilities& c, std::span<const ir::Type> types,
                 const std::string& platform) {
  if (!c.missing_types) return;
  for (ir::Type t : types)
    if (c.missing_types >> static_cast<int>(t.dtype()) & 1)
      fail(Code::kNotImplemented,
           cat(platform, " has no element type ", ir::dtype_name(t.dtype()), ": found ", t.text()),
           "use another dtype there");
}

// Once a process: numbers come out different from the CPU's, though nothing fails.
void tell_paired_doubles(const Capabilities& c, std::span<const ir::Type> types,
                         const std::string& platform) {
  static std::atomic<bool> told{false};
  if (c.has(Fact::kDoubles)) return;
  auto is_wide = [](ir::Type t) { return ir::real_dtype(t.dtype()) == ir::DType::kF64; };
  if (!std::any_of(types.begin(), types.end(), is_wide) || told.exchange(true)) return;
  probe::say(0, cat("float64 is a pair of float32 numbers on ", platform,
                    ": about 48 bits instead of 53, and float32's range (1e-38 to 3e38)\n  try: "
                    "float32, which is several times faster there"));
}

}  // namespace

namespace {

// The rank is no part of `spec`: programs of all ranks have one key.
std::unique_ptr<pjrt::Client> connect(const PluginSpec& spec, const Processes& processes) {
  auto options = spec.options;
  bool several = spec.wants_key_value_store && processes.store;
  if (several) {
    options.emplace_back("node_id", int64_t{processes.rank});
    options.emplace_back("num_nodes", int64_t{processes.size});
  }
  return std::make_unique<pjrt::Client>(pjrt::Plugin::load(spec.library_path), options,
                                        several ? processes.store.get() : nullptr);
}

}  // namespace

PjrtClient::PjrtClient(const PluginSpec& spec, const Processes& processes)
    : spec_(spec),
      store_(processes.store),
      variables_(variables_at_load(spec)),
      client_(connect(spec, processes)),
      compile_options_(spec.compile_options),
      capabilities_(capabilities_of(spec, client_->platform_name())),
      environment_(hash_environment(*client_, spec, variables_, capabilities_)) {
  for (const pjrt::Device& d : client_->devices())
    devices_.push_back({d.id(), d.local_hardware_id(), d.kind(), d.debug_string()});
  for (size_t i = 0; i < devices_.size(); ++i) ledgers_.push_back(std::make_shared<Ledger>());
  if (devices_.empty())
    fail(Code::kRuntime, cat("PJRT plugin ", spec.library_path, " has no device for this process"));
}

std::string PjrtClient::variables_text() const {
  std::vector<std::string> words;
  for (const auto& [name, value] : variables_) words.push_back(cat(name, "=", value));
  return join(words, " ");
}

std::vector<std::string> PjrtClient::changed_variables() const {
  Variables now = plugin_variables(spec_), changed;
  std::set_symmetric_difference(variables_.begin(), variables_.end(), now.begin(), now.end(),
                                std::back_inserter(changed));
  std::vector<std::string> names;
  for (const auto& [name, value] : changed)
    if (names.empty() || names.back() != name) names.push_back(name);
  return names;
}

void PjrtClient::tell_changed_variables() {
  std::vector<std::string> names = changed_variables();
  if (names.empty() || reported_change_.exchange(true)) return;
  probe::say(0,
             cat(join(names, ", "), " changed after the device was started, which has no effect ",
                 "on programs; none are loaded or stored from now on\n  try: set it before the ",
                 "first use of the device"));
}

const pjrt::Device& PjrtClient::device_at(int device) const {
  auto all = client_->devices();
  if (device < 0 || static_cast<size_t>(device) >= all.size())
    fail(Code::kIndex,
         cat("device ", device, " is out of range: ", platform(), " has ", all.size()));
  return all[static_cast<size_t>(device)];
}

const PjrtExecutable& PjrtClient::ours(const Executable& program) const {
  // Exact type, not dynamic_cast: this runs once an argument in its other form, and the classes are
  // final.
  check(typeid(program) == typeid(PjrtExecutable), "a program runs on the client that compiled it");
  auto& p = static_cast<const PjrtExecutable&>(program);
  check(p.client() == client_.get(), "a program runs on the client that compiled it");
  return p;
}

const PjrtData& PjrtClient::ours(const Data& data) const {
  check(typeid(data) == typeid(PjrtData), "data is used on the client that made it");
  auto& d = static_cast<const PjrtData&>(data);
  check(d.client() == client_.get(), "data is used on the client that made it");
  return d;
}

namespace {
// Does the module narrow 64-bit integers to bytes?
bool narrows_to_bytes(std::string_view module) {
  constexpr std::string_view kConvert = "\"stablehlo.convert\"", kFrom = "64>) -> tensor<";
  for (size_t at = module.find(kConvert); at != module.npos; at = module.find(kConvert, at + 1)) {
    std::string_view line = module.substr(at, module.find('\n', at) - at);
    size_t from = line.find(kFrom);
    if (from == line.npos) continue;
    std::string_view to = line.substr(from + kFrom.size());
    if (to.substr(0, to.find('>')).ends_with("i8")) return true;
  }
  return false;
}
}  // namespace

int PjrtClient::level() const {
  static std::atomic<bool> told{false};
  const std::string& asked = flag_text(Flag::kOptimizationLevel);
  if (asked.empty() || capabilities_.has(Fact::kLevels)) return pjrt::level_number(asked);
  if (!told.exchange(true))
    probe::say(0, cat("TORCH_PJRT_OPTIMIZATION_LEVEL=", asked, ": ", platform(),
                      " plugins have no levels, so that it changes nothing"));
  return 0;
}

std::string PjrtClient::how_to_have(int devices) const {
  std::string text = spec_.more_devices;
  if (size_t at = text.find("{}"); at != text.npos) text.replace(at, 2, cat(devices));
  return text;
}

pjrt::CompileOptions PjrtClient::options_for(const CompileRequest& request,
                                             size_t num_parameters) const {
  pjrt::CompileOptions options;
  options.num_replicas = request.num_replicas;
  options.num_partitions = request.num_partitions;
  int count = request.num_replicas * request.num_partitions;
  for (int i = 0; i < count; ++i) {
    int at = request.devices.empty() ? request.device + i : request.devices[static_cast<size_t>(i)];
    options.device_ids.push_back(device_at(at).id());
  }
  options.use_spmd_partitioning = request.spmd;
  options.use_shardy_partitioner = request.shardy;
  if (!request.shardy) options.propagate_to_output = request.open_outputs;
  auto most = static_cast<size_t>(capabilities_.max_flat_parameters);
  options.tuple_parameters = most > 0 && num_parameters > most;
  options.optimization_level = level();
  options.overrides = compile_options_;
  // LLVM, with vectors of 256 bits on a machine that has AVX-512, forgets lanes of a constant mask
  // (tril) over what a loop narrows from 64 bits to 8: wrong numbers, without a word.
  if (capabilities_.makes(Mistake::kNarrowMasks) && narrows_to_bytes(request.module))
    options.overrides.emplace_back("xla_cpu_prefer_vector_width", int64_t{512});
  return options;
}

namespace {
// Where the plugin cannot say, open results are as it gives them: whole.
Partitioning partitioning_of(const pjrt::Executable& program, const CompileRequest& request) {
  Partitioning p{request.parameter_shardings, {}};
  p.parameters.resize(request.parameter_shardings.size());
  if (request.devices.empty()) return p;  // the module says all that is known
  shard::Ref whole = shard::replicated_over(request.devices);
  auto told = shard::read_output_shardings(program.inspect(true).optimized, request.outputs.size(),
                                           request.devices.size());
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const shard::Ref& asked = request.output_shardings[i];
    shard::Ref real = told ? shard::from_tiles(request.devices, (*told)[i])
                           : (request.open_outputs[i] || !asked ? whole : asked);
    p.outputs.push_back(asked && shard::same(*asked, *real) ? asked : std::move(real));
  }
  return p;
}
}  // namespace

ExecutablePtr PjrtClient::compile(const CompileRequest& request) {
  static probe::Timer& timer = probe::timer("Compile");
  CompileHeap heap;
  tell_changed_variables();
  auto start = std::chrono::steady_clock::now();
  Signature signature = parse_signature(request.module);
  check_types(capabilities_, signature.parameters, platform());
  check_types(capabilities_, signature.results, platform());
  tell_paired_doubles(capabilities_, signature.results,
                      spec_.recorded_for.empty() ? platform() : spec_.recorded_for);
  auto options = options_for(request, signature.parameters.size());
  if (signature.results.size() != request.outputs.size() ||
      !std::equal(request.outputs.begin(), request.outputs.end(), signature.results.begin()))
    fail(Code::kInternal,
         cat("compile: the module's results are not those asked for: ", to_text(signature)));
  pjrt::Executable program = client_->compile(request.module, options);
  // Only a real compile is counted: tests and users count programs by this timer.
  timer.record(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count());
  std::optional<Partitioning> partitioning;
  if (request.num_partitions > 1) partitioning = partitioning_of(program, request);
  return std::make_shared<PjrtExecutable>(client_, std::move(program), std::move(signature),
                                          std::move(partitioning));
}

void PjrtClient::gather(const PjrtExecutable& program, std::span<const DataPtr> arguments,
                        int device, Buffers& to) const {
  std::span<const ir::Type> parameters = program.device_parameters();
  if (arguments.size() != parameters.size())
    fail(Code::kRuntime, cat("execute: the program takes ", parameters.size(), " arguments, got ",
                             arguments.size()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Data* data = arguments[i].get();
    if (!data || !(parameters[i] == data->type())) [[unlikely]]
      wrong_argument(i, parameters[i], data);
    if (data->device() != device) [[unlikely]]
      fail(Code::kRuntime, cat("execute: argument ", i, ": expected data on device ", device,
                               ", got ", data->type().text(), " on device ", data->device()));
    to.push_back(ours(*data).buffer().raw());
  }
}

std::vector<DataPtr> PjrtClient::wrap(const PjrtExecutable& program,
                                      std::span<PJRT_Buffer* const> outputs, int device) const {
  std::vector<DataPtr> out;
  out.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    out.push_back(std::make_shared<PjrtData>(client_, pjrt::Buffer(client_->api(), outputs[i]),
                                             program.device_outputs()[i], device,
                                             ledgers_[static_cast<size_t>(device)]));
  return out;
}

std::vector<DataPtr> PjrtClient::execute(const Executable& program,
                                         std::span<const DataPtr> arguments,
                                         std::span<const uint8_t> donated, int device) {
  static probe::Timer& timer = probe::timer("Execute");
  probe::Span span(timer);
  const PjrtExecutable& p = ours(program);
  if (p.devices().size() != 1 || p.devices()[0] != device)
    fail(Code::kRuntime, cat("execute: the program was compiled for device(s) ",
                             join(p.devices(), ", "), ", asked to run on device ", device));
  check(donated.empty() || donated.size() == arguments.size(), "donated has one entry an argument");
  Buffers buffers, outputs;
  gather(p, arguments, device, buffers);
  std::vector<int64_t> keep = keep_list(p.signature(), donated);
  outputs.resize(p.device_outputs().size());
  PJRT_Buffer* const* argument_list = buffers.data();
  PJRT_Buffer** output_list = outputs.data();
  p.program().execute({&argument_list, 1}, buffers.size(), {&output_list, 1}, keep);
  // The program runs: until its outputs are owned nothing may throw.
  for (size_t i = 0; i < donated.size(); ++i)
    if (donated[i]) ours(*arguments[i]).given_away();
  return wrap(p, outputs, device);
}

std::vector<std::vector<DataPtr>> PjrtClient::execute_replicated(
    const Executable& program, std::span<const std::vector<DataPtr>> arguments,
    std::span<const int> devices, std::span<const uint8_t> donated) {
  static probe::Timer& timer = probe::timer("ExecuteReplicated");
  probe::Span span(timer);
  const PjrtExecutable& p = ours(program);
  size_t n = devices.size(), num_parameters = p.signature().parameters.size();
  size_t num_outputs = p.device_outputs().size();
  check(arguments.size() == n, "replicated execute gets one argument list a device");
  Buffers buffers, outputs;
  outputs.resize(n * num_outputs);
  std::vector<size_t> caller;  // launch slot -> the caller's position
  for (int device : p.devices()) {
    auto it = std::find(devices.begin(), devices.end(), device);
    if (it == devices.end() || p.devices().size() != n)
      fail(Code::kRuntime, cat("execute: the program was compiled for devices ",
                               join(p.devices(), ", "), ", asked to run on ", join(devices, ", ")));
    caller.push_back(static_cast<size_t>(it - devices.begin()));
    gather(p, arguments[caller.back()], device, buffers);
  }
  std::vector<PJRT_Buffer* const*> argument_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (size_t slot = 0; slot < n; ++slot) {
    argument_lists.push_back(buffers.data() + slot * num_parameters);
    output_lists.push_back(outputs.data() + slot * num_outputs);
  }
  check(donated.empty() || donated.size() == num_parameters, "donated has one entry an argument");
  std::vector<int64_t> keep = keep_list(p.signature(), donated);
  {
    std::lock_guard lock(device_lock_);
    p.program().execute(argument_lists, num_parameters, output_lists, keep);
  }
  for (const std::vector<DataPtr>& of_device : arguments)
    for (size_t i = 0; i < donated.size(); ++i)
      if (donated[i]) ours(*of_device[i]).given_away();
  std::vector<std::vector<DataPtr>> result(n);
  for (size_t slot = 0; slot < n; ++slot)
    result[caller[slot]] = wrap(p, {output_lists[slot], num_outputs}, p.devices()[slot]);
  return result;
}

MemoryInfo PjrtClient::memory_info(int device) const {
  auto stats = device_at(device).memory_stats();
  const Ledger& ours = *ledgers_[static_cast<size_t>(device)];
  MemoryInfo info{
      .live_bytes = ours.live(), .peak_live_bytes = ours.peak(), .donated_bytes = ours.donated()};
  if (!stats) return info;
  info.known = true;
  info.bytes_in_use = stats->bytes_in_use;
  info.peak_bytes = stats->peak_bytes.value_or(0);
  info.limit_bytes = stats->limit_bytes.value_or(0);
  return info;
}

void PjrtClient::reset_peak_memory(int device) {
  device_at(device);  // throws where there is none
  ledgers_[static_cast<size_t>(device)]->reset_peak();
}

ProgramInfo PjrtClient::inspect(const Executable& program, bool optimized) {
  pjrt::Inspection i = ours(program).program().inspect(optimized);
  ProgramInfo out;
  if (i.memory)
    out.memory = {true,
                  i.memory->arguments,
                  i.memory->outputs,
                  i.memory->temporaries,
                  i.memory->aliased,
                  i.memory->code,
                  i.memory->peak};
  out.costs = std::move(i.costs);
  out.optimized = std::move(i.optimized);
  out.optimized_format = std::move(i.optimized_format);
  return out;
}

std::unique_ptr<ComputationClient> make_pjrt_client(const PluginSpec& spec,
                                                    const Processes& processes) {
  return std::make_unique<PjrtClient>(spec, processes);
}

}  // namespace tp::client
