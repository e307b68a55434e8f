// A PJRT plugin that computes nothing: buffers are host memory, programs give zeros, faults come by
// script (script.h). Use it as TORCH_PJRT_PLUGIN=FAKE:/path/libfakeplugin.so PJRT_DEVICE=FAKE;
// TORCH_PJRT_FAKE_SCRIPT is read when a client or a topology is made, TORCH_PJRT_FAKE_DEVICES says
// how many devices it has (1), TORCH_PJRT_FAKE_WITHOUT which entries it lacks. Entries that it
// lacks are null, as in real plugins of other versions.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "faults.h"
#include "objects.h"

namespace fake {
namespace {

// ---- errors and events

void error_destroy(PJRT_Error_Destroy_Args* a) { delete a->error; }
void error_message(PJRT_Error_Message_Args* a) {
  a->message = a->error->words.data();
  a->message_size = a->error->words.size();
}
PJRT_Error* error_code(PJRT_Error_GetCode_Args* a) {
  a->code = a->error->code;
  return nullptr;
}

void fill_events(PJRT_Api& api) {
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Event_Destroy = [](PJRT_Event_Destroy_Args* a) -> PJRT_Error* {
    delete a->event;
    return nullptr;
  };
  api.PJRT_Event_IsReady = [](PJRT_Event_IsReady_Args* a) -> PJRT_Error* {
    a->is_ready = a->event->work->done();
    return nullptr;
  };
  api.PJRT_Event_Error = [](PJRT_Event_Error_Args* a) { return error(a->event->work->wait()); };
  api.PJRT_Event_Await = [](PJRT_Event_Await_Args* a) { return error(a->event->work->wait()); };
  api.PJRT_Event_OnReady = [](PJRT_Event_OnReady_Args* a) -> PJRT_Error* {
    a->event->work->on_done([callback = a->callback, user = a->user_arg](std::optional<Fault> f) {
      callback(error(f), user);
    });
    return nullptr;
  };
}

// ---- client and devices

int64_t option(const PJRT_Client_Create_Args& a, std::string_view name, int64_t otherwise) {
  for (size_t i = 0; i < a.num_options; ++i)
    if (std::string_view(a.create_options[i].name, a.create_options[i].name_size) == name)
      return a.create_options[i].int64_value;
  return otherwise;
}

int64_t device_count(const PJRT_Client_Create_Args& a) {
  const char* env = std::getenv("TORCH_PJRT_FAKE_DEVICES");
  return option(a, "device_count", env ? std::strtol(env, nullptr, 10) : 1);
}

PJRT_Error* callback_error(PJRT_Error_Code code, const char* message, size_t size) {
  return error(code, std::string(message, size));
}

// As plugins of several processes do: each node puts its name and gets those of all others.
PJRT_Error* meet(const PJRT_Client_Create_Args& a) {
  int64_t node = option(a, "node_id", -1), nodes = option(a, "num_nodes", 0);
  PJRT_CallbackError fail = &callback_error;
  std::string key = "node" + std::to_string(node), value = "I am " + std::to_string(node);
  PJRT_KeyValuePutCallback_Args put{.key = key.data(),
                                    .key_size = key.size(),
                                    .value = value.data(),
                                    .value_size = value.size(),
                                    .callback_error = &fail,
                                    .user_arg = a.kv_put_user_arg};
  if (auto* e = a.kv_put_callback(&put)) return e;
  for (int64_t i = 0; i < nodes; ++i) {
    std::string other = "node" + std::to_string(i);
    PJRT_KeyValueGetCallback_Args get{.key = other.data(),
                                      .key_size = other.size(),
                                      .timeout_in_ms = 5000,
                                      .callback_error = &fail,
                                      .user_arg = a.kv_get_user_arg};
    if (auto* e = a.kv_get_callback(&get)) return e;
    std::string got(get.value, get.value_size);
    get.value_deleter_callback(get.value);
    if (got != "I am " + std::to_string(i))
      return error(PJRT_Error_Code_INTERNAL, "node " + std::to_string(i) + " said " + got);
  }
  std::string none = "nobody";
  PJRT_KeyValueTryGetCallback_Args attempt{.key = none.data(),
                                           .key_size = none.size(),
                                           .callback_error = &fail,
                                           .user_arg = a.kv_try_get_user_arg};
  if (!a.kv_try_get_callback(&attempt))
    return error(PJRT_Error_Code_INTERNAL, "a key that nobody put was found");
  return nullptr;
}

PJRT_Error* client_create(PJRT_Client_Create_Args* a) {
  if (auto wrong = read_script(); !wrong.empty())
    return error(PJRT_Error_Code_INVALID_ARGUMENT, wrong);
  if (auto fault = next("client")) return error(fault);
  if (a->kv_get_callback)
    if (auto* e = meet(*a)) return e;
  auto client = std::make_unique<PJRT_Client>();
  for (int64_t i = 0; i < device_count(*a); ++i) {
    auto device = std::make_unique<PJRT_Device>();
    device->description = {static_cast<int>(i), "fake", "FakeDevice(id=" + std::to_string(i) + ")"};
    client->device_list.push_back(device.get());
    client->devices.push_back(std::move(device));
  }
  a->client = client.release();
  return nullptr;
}

void fill_client(PJRT_Api& api) {
  api.PJRT_Plugin_Initialize = [](PJRT_Plugin_Initialize_Args*) -> PJRT_Error* { return nullptr; };
  api.PJRT_Client_Create = client_create;
  api.PJRT_Client_Destroy = [](PJRT_Client_Destroy_Args* a) -> PJRT_Error* {
    delete a->client;
    return nullptr;
  };
  api.PJRT_Client_PlatformName = [](PJRT_Client_PlatformName_Args* a) -> PJRT_Error* {
    a->platform_name = "fake";
    a->platform_name_size = 4;
    return nullptr;
  };
  api.PJRT_Client_PlatformVersion = [](PJRT_Client_PlatformVersion_Args* a) -> PJRT_Error* {
    a->platform_version = "1";
    a->platform_version_size = 1;
    return nullptr;
  };
  api.PJRT_Client_AddressableDevices = [](PJRT_Client_AddressableDevices_Args* a) -> PJRT_Error* {
    a->addressable_devices = a->client->device_list.data();
    a->num_addressable_devices = a->client->device_list.size();
    return nullptr;
  };
}

void fill_devices(PJRT_Api& api) {
  api.PJRT_Device_GetDescription = [](PJRT_Device_GetDescription_Args* a) -> PJRT_Error* {
    a->device_description = &a->device->description;
    return nullptr;
  };
  api.PJRT_Device_LocalHardwareId = [](PJRT_Device_LocalHardwareId_Args* a) -> PJRT_Error* {
    a->local_hardware_id = a->device->description.id;
    return nullptr;
  };
  api.PJRT_Device_MemoryStats = [](PJRT_Device_MemoryStats_Args*) {
    return error(PJRT_Error_Code_UNIMPLEMENTED, "the fake plugin keeps no statistics");
  };
  api.PJRT_DeviceDescription_Id = [](PJRT_DeviceDescription_Id_Args* a) -> PJRT_Error* {
    a->id = a->device_description->id;
    return nullptr;
  };
  api.PJRT_DeviceDescription_Kind = [](PJRT_DeviceDescription_Kind_Args* a) -> PJRT_Error* {
    a->device_kind = a->device_description->kind.data();
    a->device_kind_size = a->device_description->kind.size();
    return nullptr;
  };
  api.PJRT_DeviceDescription_DebugString =
      [](PJRT_DeviceDescription_DebugString_Args* a) -> PJRT_Error* {
    a->debug_string = a->device_description->text.data();
    a->debug_string_size = a->device_description->text.size();
    return nullptr;
  };
}

// ---- buffers

PJRT_Error* upload(PJRT_Client_BufferFromHostBuffer_Args* a) {
  if (auto fault = next("upload")) return error(fault);
  auto b = std::make_unique<PJRT_Buffer>();
  b->device = a->device;
  b->type = {a->type, {a->dims, a->dims + a->num_dims}};
  b->work = finished();
  bool alias = a->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy &&
               reinterpret_cast<uintptr_t>(a->data) % 64 == 0;
  auto done = alias ? std::make_shared<Work>() : finished();
  if (alias) {
    b->bytes =
        std::shared_ptr<void>(const_cast<void*>(a->data), [done](void*) { done->finish({}); });
  } else {
    b->bytes = zeros(b->type.bytes());
    std::memcpy(b->bytes.get(), a->data, b->type.bytes());
  }
  a->done_with_host_buffer = new PJRT_Event{done};
  a->buffer = b.release();
  return nullptr;
}

PJRT_Error* download(PJRT_Buffer_ToHostBuffer_Args* a) {
  if (auto fault = next("download")) return error(fault);
  auto slow = next("slow_download");
  std::optional<Fault> fault = a->src->work->wait();
  if (a->src->deleted) fault = Fault{PJRT_Error_Code_INVALID_ARGUMENT, kGone};
  if (!fault) std::memcpy(a->dst, a->src->bytes.get(), a->src->type.bytes());
  auto work = std::make_shared<Work>();
  a->event = new PJRT_Event{work};
  finish_later(work, fault, slow);
  return nullptr;
}

PJRT_Error* ready_event(PJRT_Buffer_ReadyEvent_Args* a) {
  auto work = a->buffer->work;
  if (a->buffer->deleted) work = finished(Fault{PJRT_Error_Code_INVALID_ARGUMENT, kGone});
  a->event = new PJRT_Event{work};
  return nullptr;
}

PJRT_Error* unsafe_pointer(PJRT_Buffer_UnsafePointer_Args* a) {
  if (a->buffer->deleted) return error(PJRT_Error_Code_INVALID_ARGUMENT, kGone);
  a->buffer_pointer = reinterpret_cast<uintptr_t>(a->buffer->bytes.get());
  return nullptr;
}

void fill_buffers(PJRT_Api& api) {
  api.PJRT_Client_BufferFromHostBuffer = upload;
  api.PJRT_Buffer_ToHostBuffer = download;
  api.PJRT_Buffer_ReadyEvent = ready_event;
  api.PJRT_Buffer_UnsafePointer = unsafe_pointer;
  api.PJRT_Buffer_Destroy = [](PJRT_Buffer_Destroy_Args* a) -> PJRT_Error* {
    delete a->buffer;
    return nullptr;
  };
  api.PJRT_Buffer_Delete = [](PJRT_Buffer_Delete_Args* a) -> PJRT_Error* {
    a->buffer->deleted = true;
    return nullptr;
  };
  api.PJRT_Buffer_IsDeleted = [](PJRT_Buffer_IsDeleted_Args* a) -> PJRT_Error* {
    a->is_deleted = a->buffer->deleted;
    return nullptr;
  };
  api.PJRT_Buffer_IsOnCpu = [](PJRT_Buffer_IsOnCpu_Args* a) -> PJRT_Error* {
    // TORCH_PJRT_FAKE_OFF_HOST makes the client copy as from a real accelerator.
    a->is_on_cpu = std::getenv("TORCH_PJRT_FAKE_OFF_HOST") == nullptr;
    return nullptr;
  };
  api.PJRT_Buffer_ElementType = [](PJRT_Buffer_ElementType_Args* a) -> PJRT_Error* {
    a->type = a->buffer->type.type;
    return nullptr;
  };
  api.PJRT_Buffer_Dimensions = [](PJRT_Buffer_Dimensions_Args* a) -> PJRT_Error* {
    a->dims = a->buffer->type.dims.data();
    a->num_dims = a->buffer->type.dims.size();
    return nullptr;
  };
  api.PJRT_Buffer_IncreaseExternalReferenceCount =
      [](PJRT_Buffer_IncreaseExternalReferenceCount_Args* a) -> PJRT_Error* {
    if (a->buffer->deleted) return error(PJRT_Error_Code_INVALID_ARGUMENT, kGone);
    ++a->buffer->holds;
    return nullptr;
  };
  api.PJRT_Buffer_DecreaseExternalReferenceCount =
      [](PJRT_Buffer_DecreaseExternalReferenceCount_Args* a) -> PJRT_Error* {
    --a->buffer->holds;
    return nullptr;
  };
}

PJRT_Api make_api() {
  PJRT_Api api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version = {PJRT_Api_Version_STRUCT_SIZE, nullptr, PJRT_API_MAJOR, PJRT_API_MINOR};
  fill_events(api);
  fill_client(api);
  fill_devices(api);
  fill_buffers(api);
  fill_programs(api);
  fill_topologies(api);
  wrap_for_faults(api);
  return api;
}

}  // namespace
}  // namespace fake

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = fake::make_api();
  return &api;
}

// Sets the fault script; 0 where it cannot be read (the old one stays).
FAKE_EXPORT int fake_plugin_script(const char* script) { return fake::set_script(script) ? 1 : 0; }

// Calls of a kind since the script was set ("execute"), or how many buffers are alive now
// ("buffers").
FAKE_EXPORT long fake_plugin_count(const char* what) {
  return std::string_view(what) == "buffers" ? PJRT_Buffer::alive.load() : fake::calls(what);
}
