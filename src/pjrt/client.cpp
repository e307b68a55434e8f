#include "pjrt/client.h"

#include "pjrt/named_value.h"

namespace tp::pjrt {
Client::Client(const Plugin& plugin, std::span<const std::pair<std::string, OptionValue>> options,
               KeyValueStore* store)
    : plugin_(plugin) {
  std::vector<PJRT_NamedValue> values = named_values(options);
  PJRT_Client_Create_Args args{.create_options = values.data(), .num_options = values.size()};
  if (store) offer(*store, args);
  client_ = call<&PJRT_Api::PJRT_Client_Create>(api(), args).client;
  try {
    read_names_and_devices();
  } catch (...) {
    destroy<&PJRT_Api::PJRT_Client_Destroy>(api(), {.client = client_});
    throw;
  }
}

Client::~Client() { destroy<&PJRT_Api::PJRT_Client_Destroy>(api(), {.client = client_}); }

void Client::read_names_and_devices() {
  auto name = call<&PJRT_Api::PJRT_Client_PlatformName>(api(), {.client = client_});
  platform_name_.assign(name.platform_name, name.platform_name_size);
  auto version = call<&PJRT_Api::PJRT_Client_PlatformVersion>(api(), {.client = client_});
  platform_version_.assign(version.platform_version, version.platform_version_size);
  auto all = call<&PJRT_Api::PJRT_Client_AddressableDevices>(api(), {.client = client_});
  for (size_t i = 0; i < all.num_addressable_devices; ++i)
    devices_.emplace_back(api(), all.addressable_devices[i]);
}

}  // namespace tp::pjrt
