#include "pjrt/client.h"

namespace tp::pjrt {
namespace {

PJRT_NamedValue named_value(const std::string& name, const OptionValue& value) {
  PJRT_NamedValue v{};
  v.struct_size = sizeof(v);
  v.name = name.data();
  v.name_size = name.size();
  v.value_size = 1;
  if (auto* s = std::get_if<std::string>(&value)) {
    v.type = PJRT_NamedValue_kString;
    v.string_value = s->data();
    v.value_size = s->size();
  } else if (auto* i = std::get_if<int64_t>(&value)) {
    v.type = PJRT_NamedValue_kInt64;
    v.int64_value = *i;
  } else if (auto* b = std::get_if<bool>(&value)) {
    v.type = PJRT_NamedValue_kBool;
    v.bool_value = *b;
  } else {
    v.type = PJRT_NamedValue_kFloat;
    v.float_value = static_cast<float>(std::get<double>(value));
  }
  return v;
}

}  // namespace

Client::Client(const Plugin& plugin, std::span<const std::pair<std::string, OptionValue>> options,
               KeyValueStore* store)
    : plugin_(plugin) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, value] : options) values.push_back(named_value(name, value));
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
