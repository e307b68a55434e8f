// The calls that compile, run, store and inspect programs, here and for devices that are not there.
#include <cstring>

#include "base/text.h"
#include "pjrt/conform_rows.h"
#include "pjrt/custom_call.h"
#include "pjrt/unloaded.h"

namespace tp::pjrt::conform {
namespace {

Unloaded unloaded(Rig& rig, const Executable& program) {
  auto r = call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(
      rig.api(), {.loaded_executable = program.raw()});
  expect(r.executable != nullptr, "it gives no program and no error");
  return {rig.api(), r.executable};
}

std::string compile(Rig& rig) {
  Executable program = rig.doubling();
  expect(program.raw() != nullptr, "it gives no program and no error");
  return {};
}

void expect_doubles(Rig& rig, const Executable& program) {
  Buffer in = rig.upload();
  Buffer out = rig.run(program, {in.raw()});
  expect_floats("twice the argument", Rig::download(out, 6), Rig::doubled());
}

std::string execute(Rig& rig) {
  expect_doubles(rig, rig.doubling());
  return {};
}

std::string loaded_destroy(Rig& rig) {
  call<&PJRT_Api::PJRT_LoadedExecutable_Destroy>(rig.api(),
                                                 {.executable = rig.doubling().release()});
  return {};
}

std::string loaded_devices(Rig& rig) {
  Executable program = rig.doubling();
  auto devices = program.devices();
  expect(devices.size() == 1, cat("a program of one device has ", devices.size()));
  expect(devices[0].raw() == rig.device().raw(),
         "without an assignment the program is not on the client's first device");
  return {};
}

std::string get_executable(Rig& rig) {
  Executable program = rig.doubling();
  unloaded(rig, program);
  return {};
}

std::string executable_destroy(Rig& rig) {
  Executable program = rig.doubling();
  auto r = call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(
      rig.api(), {.loaded_executable = program.raw()});
  call<&PJRT_Api::PJRT_Executable_Destroy>(rig.api(), {.executable = r.executable});
  execute(rig);  // the loaded program does not depend on it
  return {};
}

std::string output_types(Rig& rig) {
  Executable program = rig.doubling();
  Unloaded e = unloaded(rig, program);
  auto r = call<&PJRT_Api::PJRT_Executable_OutputElementTypes>(rig.api(), {.executable = e.raw()});
  expect(r.num_output_types == 1, cat("a program of one result has ", r.num_output_types));
  int type = static_cast<int>(r.output_types[0]);
  expect(type == PJRT_Buffer_Type_F32, cat("its f32 result is type ", type));
  return {};
}

std::string output_dimensions(Rig& rig) {
  Executable program = rig.doubling();
  Unloaded e = unloaded(rig, program);
  auto r = call<&PJRT_Api::PJRT_Executable_OutputDimensions>(rig.api(), {.executable = e.raw()});
  expect(r.num_outputs == 1, cat("a program of one result has ", r.num_outputs));
  std::vector<int64_t> dims(r.dims, r.dims + r.dim_sizes[0]);
  expect(dims == std::vector<int64_t>{2, 3}, cat("expected 2, 3, found ", join(dims, ", ")));
  return {};
}

std::string serialize(Rig& rig) {
  size_t size = rig.doubling().serialize().size();
  expect(size > 0, "the bytes are none");
  return cat(size, " bytes");
}

std::string deserialize_and_load(Rig& rig) {
  Executable loaded = rig.client().deserialize(rig.doubling().serialize());
  expect_doubles(rig, loaded);
  return {};
}

std::string compiled_memory(Rig& rig) {
  constexpr int64_t kBytes = 24;  // of the argument, and of the result
  Executable program = rig.doubling();
  Unloaded e = unloaded(rig, program);
  auto r =
      call<&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats>(rig.api(), {.executable = e.raw()});
  for (int64_t found : {r.argument_size_in_bytes, r.output_size_in_bytes})
    expect(found >= kBytes, cat(found, " bytes, expected at least ", kBytes));
  return cat("temporaries ", r.temp_size_in_bytes, " bytes, code ", r.generated_code_size_in_bytes);
}

std::string cost_analysis(Rig& rig) {
  Executable program = rig.doubling();
  Unloaded e = unloaded(rig, program);
  call<&PJRT_Api::PJRT_Executable_GetCostAnalysis>(rig.api(), {.executable = e.raw()});
  std::vector<std::string> words;
  for (const auto& [name, value] : e.inspect(false).costs)
    if (name == "flops" || name == "bytes accessed") words.push_back(cat(name, " ", value));
  expect(!words.empty(), "it tells neither flops nor bytes accessed");
  return join(words, ", ");
}

std::string optimized_program(Rig& rig) {
  Executable program = rig.doubling();
  Unloaded e = unloaded(rig, program);
  PJRT_Program out{};
  out.struct_size = sizeof(out);
  call<&PJRT_Api::PJRT_Executable_OptimizedProgram>(rig.api(),
                                                    {.executable = e.raw(), .program = &out});
  Inspection told = e.inspect(true);
  expect(!told.optimized.empty(), "the text is empty");
  expect(told.optimized_format == "hlo" || told.optimized_format == "hlo_with_config",
         cat("format '", told.optimized_format, "', expected hlo or hlo_with_config"));
  return told.optimized_format;
}

// ---- devices that are not there

// Without a name a plugin can only say that it has none at all.
std::unique_ptr<Topology> topology(Rig& rig) {
  const Setting& s = rig.setting();
  try {
    return std::make_unique<Topology>(rig.plugin(), s.topology, s.topology_options);
  } catch (const Error& e) {
    bool unnamed = s.topology.empty() && s.topology_options.empty();
    if (!unnamed || e.code() == Code::kNotImplemented) throw;
    throw NotTried{
        cat("name devices that it compiles for: --topology NAME; without one: ", e.message())};
  }
}

std::string topology_create(Rig& rig) {
  size_t count = topology(rig)->kinds().size();
  expect(count > 0, "it has no device");
  return cat(count, count == 1 ? " device" : " devices");
}

std::string topology_destroy(Rig& rig) {
  topology(rig);  // says what is wrong with the name
  std::vector<PJRT_NamedValue> values = named_values(rig.setting().topology_options);
  const std::string& name = rig.setting().topology;
  auto r = call<&PJRT_Api::PJRT_TopologyDescription_Create>(rig.api(),
                                                            {.topology_name = name.data(),
                                                             .topology_name_size = name.size(),
                                                             .create_options = values.data(),
                                                             .num_options = values.size()});
  call<&PJRT_Api::PJRT_TopologyDescription_Destroy>(rig.api(), {.topology = r.topology});
  return {};
}

std::string topology_platform(Rig& rig) {
  std::string name = topology(rig)->platform();
  expect(!name.empty(), "the name is empty");
  return name;
}

std::string topology_descriptions(Rig& rig) {
  auto kinds = topology(rig)->kinds();
  expect(!kinds.empty() && !kinds[0].empty(), "the kind is empty");
  return kinds[0];
}

std::string compile_ahead(Rig& rig) {
  auto there = topology(rig);
  CompileOptions options;
  options.overrides = rig.setting().topology_compile_options;
  size_t size = there->compile(kDouble, options).serialize().size();
  expect(size > 0, "the program's bytes are none");
  return cat(size, " bytes");
}

// ---- host calls

constexpr const char* kCall = R"(
module @host_call {
  func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = "stablehlo.custom_call"(%arg0) {api_version = 4 : i32,
      call_target_name = "torch_pjrt_conform_double", backend_config = {}}
      : (tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%0) : (tensor<2x3xf32>) -> ()
  }
})";

ffi::Error* double_on_host(ffi::Frame* frame) {
  if (ffi::answered_version(frame)) return nullptr;
  auto* from = static_cast<const float*>(frame->argument(0).data);
  auto* to = static_cast<float*>(frame->result(0).data);
  for (size_t i = 0; i < Rig::input().size(); ++i) to[i] = 2 * from[i];
  return nullptr;
}

std::string register_handler(Rig& rig) {
  Buffer in = rig.upload();
  if (!in.is_on_cpu())
    throw NotTried{"device memory is not the host's, so that no host call is registered"};
  register_custom_call(rig.plugin(), "torch_pjrt_conform_double", "Host", double_on_host);
  expect_doubles(rig, rig.compile(kCall));
  return {};
}

constexpr const char* kStored = "no program is kept on disk: each process compiles anew";
constexpr const char* kShapes = "results are taken to be of the module's types, unchecked";
constexpr const char* kAhead =
    "torch_pjrt.aot and `fit` cannot compile for hardware that is not here";

constexpr Row kRows[] = {
    ROW(PJRT_Client_Compile, kNeeded, kNothing, compile),
    ROW(PJRT_LoadedExecutable_Execute, kNeeded, kNothing, execute),
    ROW(PJRT_LoadedExecutable_Destroy, kNeeded, "memory leaks", loaded_destroy),
    ROW(PJRT_LoadedExecutable_AddressableDevices, kNeeded, kNothing, loaded_devices),
    ROW(PJRT_LoadedExecutable_GetExecutable, kNeeded, kStored, get_executable),
    ROW(PJRT_Executable_Destroy, kNeeded, "memory leaks", executable_destroy),
    ROW(PJRT_Executable_OutputElementTypes, kExtra, kShapes, output_types),
    ROW(PJRT_Executable_OutputDimensions, kExtra, kShapes, output_dimensions),
    ROW(PJRT_Executable_Serialize, kExtra, kStored, serialize),
    ROW(PJRT_Executable_DeserializeAndLoad, kExtra, kStored, deserialize_and_load),
    ROW(PJRT_Executable_GetCompiledMemoryStats, kExtra,
        "reports and aot do not say what a program's memory is", compiled_memory),
    ROW(PJRT_Executable_GetCostAnalysis, kExtra, "reports have no flops", cost_analysis),
    ROW(PJRT_Executable_OptimizedProgram, kExtra,
        "outputs of SPMD programs that were left open are whole; no optimized text to read",
        optimized_program),
    ROW(PJRT_TopologyDescription_Create, kExtra, kAhead, topology_create),
    ROW(PJRT_TopologyDescription_Destroy, kExtra, kAhead, topology_destroy),
    ROW(PJRT_TopologyDescription_PlatformName, kExtra, kAhead, topology_platform),
    ROW(PJRT_TopologyDescription_GetDeviceDescriptions, kExtra, kAhead, topology_descriptions),
    ROW(PJRT_Compile, kExtra, kAhead, compile_ahead),
    // An entry of the extension PJRT_Extension_Type_FFI.
    {"PJRT_FFI_Register_Handler", false,
     "an op without a lowering cuts the graph; elsewhere it is a host op inside the program",
     has_custom_calls, register_handler},
};

}  // namespace

std::span<const Row> program_calls() { return kRows; }

}  // namespace tp::pjrt::conform
