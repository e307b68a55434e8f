#include "pjrt/topology.h"

namespace tp::pjrt {

Topology::Topology(const Plugin& plugin, std::string_view name,
                   std::span<const NamedOption> options)
    : plugin_(plugin) {
  std::vector<PJRT_NamedValue> values = named_values(options);
  topology_ = call<&PJRT_Api::PJRT_TopologyDescription_Create>(plugin.api(),
                                                               {.topology_name = name.data(),
                                                                .topology_name_size = name.size(),
                                                                .create_options = values.data(),
                                                                .num_options = values.size()})
                  .topology;
}

Topology::~Topology() {
  destroy<&PJRT_Api::PJRT_TopologyDescription_Destroy>(plugin_.api(), {.topology = topology_});
}

std::string Topology::platform() const {
  auto r = call<&PJRT_Api::PJRT_TopologyDescription_PlatformName>(plugin_.api(),
                                                                  {.topology = topology_});
  return std::string(r.platform_name, r.platform_name_size);
}

std::vector<std::string> Topology::kinds() const {
  const PJRT_Api* api = plugin_.api();
  auto all =
      call<&PJRT_Api::PJRT_TopologyDescription_GetDeviceDescriptions>(api, {.topology = topology_});
  std::vector<std::string> kinds;
  for (size_t i = 0; i < all.num_descriptions; ++i) {
    auto r = call<&PJRT_Api::PJRT_DeviceDescription_Kind>(
        api, {.device_description = all.descriptions[i]});
    kinds.emplace_back(r.device_kind, r.device_kind_size);
  }
  return kinds;
}

Unloaded Topology::compile(std::string_view module, const CompileOptions& options) const {
  constexpr std::string_view kFormat = "mlir";
  std::string encoded = encode_compile_options(options);
  PJRT_Program program{};
  program.struct_size = sizeof(program);
  program.code = const_cast<char*>(module.data());  // read only, by contract
  program.code_size = module.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  auto r = call<&PJRT_Api::PJRT_Compile>(plugin_.api(), {.topology = topology_,
                                                         .program = &program,
                                                         .compile_options = encoded.data(),
                                                         .compile_options_size = encoded.size()});
  return {plugin_.api(), r.executable};
}

}  // namespace tp::pjrt
