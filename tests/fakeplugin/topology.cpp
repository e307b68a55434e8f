// The fake plugin's devices that are not there: a topology by name, and programs compiled for it.
// Their memory is counted from the types: arguments, outputs, as temporaries the largest result,
// and a byte of code a character of text.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "objects.h"

namespace fake {
namespace {

constexpr std::string_view kName = "fake:";

PJRT_Error* create(PJRT_TopologyDescription_Create_Args* a) {
  if (auto wrong = read_script(); !wrong.empty())
    return error(PJRT_Error_Code_INVALID_ARGUMENT, wrong);
  if (auto fault = next("topology")) return error(fault);
  std::string name(a->topology_name, a->topology_name_size);
  long count = name.starts_with(kName) ? std::strtol(name.c_str() + kName.size(), nullptr, 10) : 0;
  if (count < 1) return error(PJRT_Error_Code_INVALID_ARGUMENT, "Invalid fake topology: " + name);
  auto made = std::make_unique<PJRT_TopologyDescription>();
  for (int i = 0; i < count; ++i) {
    made->devices.push_back(std::make_unique<PJRT_DeviceDescription>());
    *made->devices.back() = {i, "fake", "FakeDevice(id=" + std::to_string(i) + ")"};
    made->device_list.push_back(made->devices.back().get());
  }
  a->topology = made.release();
  return nullptr;
}

PJRT_Error* compile(PJRT_Compile_Args* a) {
  if (auto fault = next("ahead")) return error(fault);
  auto program = std::make_shared<Program>();
  auto reason = parse_module({a->program->code, a->program->code_size}, *program);
  if (!reason.empty()) return error(PJRT_Error_Code_INVALID_ARGUMENT, reason);
  program->device_ids = parse_device_ids({a->compile_options, a->compile_options_size});
  a->executable = make_executable(std::move(program));
  a->executable->ahead = true;
  return nullptr;
}

int64_t bytes_of(const std::vector<TensorType>& types) {
  int64_t sum = 0;
  for (const TensorType& t : types) sum += static_cast<int64_t>(t.bytes());
  return sum;
}

PJRT_Error* memory(PJRT_Executable_GetCompiledMemoryStats_Args* a) {
  if (!a->executable->ahead)
    return error(PJRT_Error_Code_UNIMPLEMENTED, "the fake plugin keeps no statistics");
  const Program& p = *a->executable->program;
  a->argument_size_in_bytes = bytes_of(p.parameters);
  a->output_size_in_bytes = bytes_of(p.results);
  a->generated_code_size_in_bytes = static_cast<int64_t>(p.text.size());
  for (const TensorType& t : p.results)
    a->temp_size_in_bytes = std::max(a->temp_size_in_bytes, static_cast<int64_t>(t.bytes()));
  return nullptr;
}

}  // namespace

void fill_topologies(PJRT_Api& api) {
  api.PJRT_TopologyDescription_Create = create;
  api.PJRT_Compile = compile;
  api.PJRT_Executable_GetCompiledMemoryStats = memory;
  api.PJRT_TopologyDescription_Destroy =
      [](PJRT_TopologyDescription_Destroy_Args* a) -> PJRT_Error* {
    delete a->topology;
    return nullptr;
  };
  api.PJRT_TopologyDescription_PlatformName =
      [](PJRT_TopologyDescription_PlatformName_Args* a) -> PJRT_Error* {
    a->platform_name = "fake";
    a->platform_name_size = 4;
    return nullptr;
  };
  api.PJRT_TopologyDescription_GetDeviceDescriptions =
      [](PJRT_TopologyDescription_GetDeviceDescriptions_Args* a) -> PJRT_Error* {
    a->descriptions = a->topology->device_list.data();
    a->num_descriptions = a->topology->device_list.size();
    return nullptr;
  };
}

}  // namespace fake
