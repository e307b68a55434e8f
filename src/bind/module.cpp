// The extension module torch_pjrt._C: names for Python, no logic. Importing it registers device
// `xla`.
#include <dlfcn.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/flags.h"
#include "bind/cache.h"
#include "bind/conform.h"
#include "bind/control.h"
#include "bind/options.h"
#include "bind/python.h"
#include "bind/spmd.h"
#include "bind/storage.h"
#include "bind/tensors.h"
#include "bind/topology.h"
#include "bind/trace.h"
#include "client/registry.h"
#include "gen/build_info.h"
#include "gen/torch_info.h"
#include "pjrt/compile_options.h"
#include "probe/probe.h"
#include "torch/checks.h"
#include "torch/eager.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/kernels.h"
#include "torch/named_tables.h"
#include "torch/random.h"
#include "torch/runtime.h"

namespace py = pybind11;
using namespace tp;
using tp::bind::to_options;
using tp::bind::to_tensor;
using namespace tp::torch_room;

namespace {

void register_plugin(std::string name, std::string path, const py::dict& options,
                     const py::dict& compile_options, bool wants_kv, std::string how_to_install,
                     std::vector<std::string> variables,
                     const std::map<std::string, std::string>& facts, std::string problem,
                     std::optional<std::vector<std::string>> mistakes, const py::dict& capabilities,
                     std::string recorded_for, int device_count, std::string more_devices) {
  client::register_plugin({std::move(name),
                           std::move(path),
                           to_options(options),
                           wants_kv,
                           to_options(compile_options),
                           std::move(how_to_install),
                           std::move(variables),
                           {facts.begin(), facts.end()},
                           std::move(problem),
                           std::move(mistakes),
                           to_options(capabilities),
                           std::move(recorded_for),
                           device_count,
                           std::move(more_devices)});
}

py::dict capabilities_of(const client::ComputationClient& client) {
  Capabilities c = client.capabilities();
  py::dict out;
  for (size_t i = 0; i < kFactNames.size(); ++i)
    out[py::str(kFactNames[i])] = c.has(static_cast<Fact>(i));
  out["flat parameters"] = c.max_flat_parameters;
  return out;
}

py::dict client_info() {
  client::ComputationClient* c;
  {
    GilRelease no_gil;
    c = &client::client();
  }
  py::list devices;
  for (const client::DeviceInfo& d : c->devices())
    devices.append(
        py::dict(py::arg("id") = d.id, py::arg("kind") = d.kind, py::arg("text") = d.text));
  return py::dict(py::arg("platform") = c->platform(),
                  py::arg("platform_version") = c->platform_version(),
                  py::arg("capabilities") = capabilities_of(*c), py::arg("devices") = devices);
}

py::tuple to_python(const exec::GraphRecord& r) {
  return py::make_tuple(r.nodes, r.text, r.module, r.dot, r.key.hex());
}

py::tuple graph_of(const py::sequence& tensors) {
  std::vector<at::Tensor> list;
  for (const py::handle& t : tensors) list.push_back(to_tensor(t));
  return to_python(describe(list));
}

py::object last_graph() {
  exec::GraphRecord r = executor().last();
  return r.nodes ? py::object(to_python(r)) : py::none();
}

py::dict counters() {
  py::dict d;
  for (const auto& c : probe::counters()) d[py::str(c.name)] = c.value;
  return d;
}

py::dict timers() {
  py::dict d;
  for (const auto& t : probe::timers()) d[py::str(t.name)] = py::make_tuple(t.count, t.seconds);
  return d;
}

py::list flags() {
  static const char* kTypes[] = {"bool", "int", "text"};
  py::list out;
  for (const FlagRow& r : flag_table()) {
    const char* now = r.in_key == InKey::kPlugin ? std::getenv(r.name) : nullptr;
    out.append(py::make_tuple(r.name, kTypes[static_cast<int>(r.type)], r.fallback,
                              now ? now : flag_text(r.flag), r.help, r.in_key != InKey::kNo,
                              allowed_values(r)));
  }
  return out;
}

std::string push_scope(const std::string& name) {
  std::string before = exchange_scope({});
  exchange_scope(before.empty() ? name : before + "/" + name);
  return before;
}

template <class T>
void take(const py::dict& d, const char* name, T& field) {
  if (d.contains(name)) field = d[name].cast<T>();
}

py::bytes encode_compile_options(const py::dict& d) {
  pjrt::CompileOptions o;
  take(d, "num_replicas", o.num_replicas);
  take(d, "num_partitions", o.num_partitions);
  take(d, "device_ids", o.device_ids);
  take(d, "use_spmd_partitioning", o.use_spmd_partitioning);
  take(d, "use_auto_spmd_partitioning", o.use_auto_spmd_partitioning);
  take(d, "use_shardy_partitioner", o.use_shardy_partitioner);
  take(d, "tuple_parameters", o.tuple_parameters);
  take(d, "optimization_level", o.optimization_level);
  take(d, "propagate_to_parameters", o.propagate_to_parameters);
  take(d, "propagate_to_output", o.propagate_to_output);
  if (d.contains("overrides")) o.overrides = to_options(d["overrides"]);
  return py::bytes(pjrt::encode_compile_options(o));
}

// This extension's own path: Python sets the module's __file__ only once its body has run.
std::string module_file() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&module_file), &info) && info.dli_fname
             ? info.dli_fname
             : "";
}

py::dict memory_info(int device) {
  check_device(device);
  client::MemoryInfo i;
  {
    GilRelease no_gil;
    i = client::client().memory_info(device);
  }
  py::dict d(py::arg("live_bytes") = i.live_bytes, py::arg("peak_live_bytes") = i.peak_live_bytes,
             py::arg("donated_bytes") = i.donated_bytes);
  if (!i.known) return d;
  d["bytes_in_use"] = i.bytes_in_use;
  d["peak_bytes"] = i.peak_bytes;
  d["limit_bytes"] = i.limit_bytes;
  return d;
}

void reset_peak_memory(int device) {
  check_device(device);
  GilRelease no_gil;
  client::client().reset_peak_memory(device);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  check_flags();  // pybind11 makes an ImportError of it; a second import looks anew
  bind::install_python_hooks(std::filesystem::path(module_file()).parent_path().string() + "/");
  bind::register_exceptions();
  register_all();
  install_profiler_spans();
  bind::define_explain(m);
  bind::define_distributed(m);
  m.attr("torch_version") = kTorchVersion;
  m.attr("revision") = kRevision;
  m.def("register_plugin", &register_plugin, py::arg("name"), py::arg("library_path"),
        py::arg("options"), py::arg("compile_options"), py::arg("wants_kv"),
        py::arg("how_to_install"), py::arg("variables") = std::vector<std::string>(),
        py::arg("facts") = std::map<std::string, std::string>(), py::arg("problem") = "",
        py::arg("mistakes") = py::none(), py::arg("capabilities") = py::dict(),
        py::arg("recorded_for") = "", py::arg("device_count") = 0, py::arg("more_devices") = "");
  m.def("registered", &client::registered);
  m.def("client_info", &client_info);
  m.def("client_exists", &client::client_exists);
  m.def("device_count", [] {
    GilRelease no_gil;
    return client::client().devices().size();
  });
  m.def("memory_info", &memory_info);
  m.def("reset_peak_memory", &reset_peak_memory);
  m.def("current_device", &current_device);
  m.def("exchange_device", &exchange_device);
  m.def("check_device", [](int index) { check_device(index); });
  m.def(
      "sync",
      [](bool wait) {
        sync_all();
        if (wait) wait_all();
      },
      py::arg("wait") = false);
  m.def("wait", &wait_all);
  m.def("set_eager_mode", &set_eager_mode);
  m.def("eager_mode_for_all", &eager_for_all);
  m.def("exchange_thread_eager_mode", &exchange_thread_eager_mode);
  m.def("eager_mode", &eager_here);
  m.def("state", [](const py::handle& t) { return state_of(impl_of(to_tensor(t))); });
  m.def("counters", &counters);
  m.def("timers", &timers);
  m.def("clear_metrics", &probe::clear);
  m.def("flags", &flags);
  m.def("graph_of", &graph_of);
  m.def("last_graph", &last_graph);
  m.def("default_generator",
        [] { return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator())); });
  m.def("encode_compile_options", &encode_compile_options);
  m.def("set_log", &bind::set_log);
  m.def("push_scope", &push_scope);
  m.def("set_scope", [](std::string scope) { exchange_scope(std::move(scope)); });
  m.def("user_frame", &tp::torch_room::user_frame);
  m.def("frames_on", &frames_on);
  m.def("set_frames_on", &set_frames_on);
  m.def("frames_direct", &frames_direct);
  m.def("set_frames_direct", &set_frames_direct);
  m.def("skip_frames_of", &add_library_directory);
  m.def("table_errors", &table_errors);
  m.def("named_tables", [] {
    std::vector<std::tuple<std::string_view, int, std::vector<std::string_view>>> tables;
    for (NamedTable& t : named_tables())
      tables.emplace_back(t.where, static_cast<int>(t.of), std::move(t.names));
    return tables;
  });
  m.def("unknown_names", [](int of, const std::vector<std::string>& names) {
    return unknown_names(static_cast<NameOf>(of), names);
  });
  m.def("live_aliases", &live_aliases);
  m.def("live_types", &ir::live_types);
  m.def("programs_cached", [] { return executor().cache().size(); });
  bind::add_trace(m);
  bind::add_control(m);
  bind::add_storage(m);
  bind::add_spmd(m);
  bind::add_cache(m);
  bind::add_conform(m);
  bind::add_topology(m);
  m.def("prepare_exit", &bind::prepare_exit);
  m.def("clear_programs", [] { executor().clear_programs(); });
}
