#include "pjrt/executable.h"

#include "pjrt/unloaded.h"

namespace tp::pjrt {
namespace {

// The program behind a loaded one, for the end of the scope.
Unloaded unloaded(const PJRT_Api* api, PJRT_LoadedExecutable* loaded) {
  return {api,
          call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(api, {.loaded_executable = loaded})
              .executable};
}

}  // namespace

std::optional<std::vector<OutputType>> Executable::output_types() const {
  if (!has<&PJRT_Api::PJRT_Executable_OutputElementTypes>(api_) ||
      !has<&PJRT_Api::PJRT_Executable_OutputDimensions>(api_))
    return std::nullopt;
  Unloaded e = unloaded(api_, loaded_);
  auto types = call<&PJRT_Api::PJRT_Executable_OutputElementTypes>(api_, {.executable = e.raw()});
  auto dims = call<&PJRT_Api::PJRT_Executable_OutputDimensions>(api_, {.executable = e.raw()});
  std::vector<OutputType> out;
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < types.num_output_types; ++i) {
    out.push_back({types.output_types[i], {next, next + dims.dim_sizes[i]}});
    next += dims.dim_sizes[i];
  }
  return out;
}

std::vector<Device> Executable::devices() const {
  auto r = call<&PJRT_Api::PJRT_LoadedExecutable_AddressableDevices>(api_, {.executable = loaded_});
  std::vector<Device> out;
  for (size_t i = 0; i < r.num_addressable_devices; ++i)
    out.emplace_back(api_, r.addressable_devices[i]);
  return out;
}

std::string Executable::serialize() const {
  Unloaded e = unloaded(api_, loaded_);
  return e.serialize();
}

Inspection Executable::inspect(bool optimized) const {
  Unloaded e = unloaded(api_, loaded_);
  return e.inspect(optimized);
}

void Executable::execute(std::span<PJRT_Buffer* const* const> arguments, size_t num_arguments,
                         std::span<PJRT_Buffer** const> outputs,
                         std::span<const int64_t> keep) const {
  PJRT_ExecuteOptions options{};
  options.struct_size = sizeof(options);
  options.non_donatable_input_indices = keep.data();
  options.num_non_donatable_input_indices = keep.size();
  // No completion events: each output has its own, made only when somebody waits.
  call<&PJRT_Api::PJRT_LoadedExecutable_Execute>(api_, {.executable = loaded_,
                                                        .options = &options,
                                                        .argument_lists = arguments.data(),
                                                        .num_devices = arguments.size(),
                                                        .num_args = num_arguments,
                                                        .output_lists = outputs.data()});
}

Executable compile(const PJRT_Api* api, PJRT_Client* client, std::string_view module,
                   std::string_view options) {
  constexpr std::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = sizeof(program);
  program.code = const_cast<char*>(module.data());  // read only, by contract
  program.code_size = module.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  auto r = call<&PJRT_Api::PJRT_Client_Compile>(api, {.client = client,
                                                      .program = &program,
                                                      .compile_options = options.data(),
                                                      .compile_options_size = options.size()});
  return Executable(api, r.executable);
}

Executable deserialize(const PJRT_Api* api, PJRT_Client* client, std::string_view bytes) {
  auto r = call<&PJRT_Api::PJRT_Executable_DeserializeAndLoad>(
      api, {.client = client,
            .serialized_executable = bytes.data(),
            .serialized_executable_size = bytes.size()});
  return Executable(api, r.loaded_executable);
}

}  // namespace tp::pjrt
