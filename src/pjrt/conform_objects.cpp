// The calls that make and ask clients, devices, events and buffers.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "base/text.h"
#include "pjrt/conform_rows.h"

namespace tp::pjrt::conform {
namespace {

template <class Args>
Args sized(Args args) {
  args.struct_size = sizeof(args);
  return args;
}

// ---- the plugin and its errors

std::string initialize(Rig& rig) {  // loading the library has called it
  return cat("API ", rig.plugin().api_major(), ".", rig.plugin().api_minor());
}

std::string attributes(Rig& rig) {
  auto a = call<&PJRT_Api::PJRT_Plugin_Attributes>(rig.api(), {});
  std::vector<std::string> all;
  for (const auto& [name, value] : rig.plugin().attributes()) all.push_back(cat(name, " ", value));
  expect(all.size() == a.num_attributes, "it gives another number of attributes each time");
  return join(all, ", ");
}

// Frees the error where a probe has looked at it.
struct Owned {
  const PJRT_Api* api;
  PJRT_Error* error;
  ~Owned() { take(api, error); }
};

std::string error_code(Rig& rig) {
  Owned e{rig.api(), rig.error()};
  auto args = sized(PJRT_Error_GetCode_Args{.error = e.error});
  expect(!rig.api()->PJRT_Error_GetCode(&args), "it fails for an error of PJRT_Client_Compile");
  int code = static_cast<int>(args.code);
  expect(code > 0 && code <= 16, cat("code ", code, " is none of 1 to 16"));
  return cat("a bad module is ", code_name(args.code), " [", code, "]");
}

std::string error_message(Rig& rig) {
  Owned e{rig.api(), rig.error()};
  auto args = sized(PJRT_Error_Message_Args{.error = e.error});
  rig.api()->PJRT_Error_Message(&args);
  expect(args.message && args.message_size > 0, "a bad module fails without words");
  std::string words(args.message, args.message_size);
  return words.substr(0, words.find('\n'));
}

std::string error_destroy(Rig& rig) {
  auto args = sized(PJRT_Error_Destroy_Args{.error = rig.error()});
  rig.api()->PJRT_Error_Destroy(&args);
  return {};
}

// ---- client and devices

PJRT_Client* create(Rig& rig) {
  std::vector<PJRT_NamedValue> values = named_values(rig.setting().options);
  auto r = call<&PJRT_Api::PJRT_Client_Create>(
      rig.api(), {.create_options = values.data(), .num_options = values.size()});
  expect(r.client != nullptr, "it gives no client and no error");
  return r.client;
}

std::string client_create(Rig& rig) {
  destroy<&PJRT_Api::PJRT_Client_Destroy>(rig.api(), {.client = create(rig)});
  return {};
}

std::string client_destroy(Rig& rig) {
  call<&PJRT_Api::PJRT_Client_Destroy>(rig.api(), {.client = create(rig)});
  return {};
}

std::string platform_name(Rig& rig) {
  expect(!rig.client().platform_name().empty(), "the name is empty");
  return rig.client().platform_name();
}

std::string platform_version(Rig& rig) {
  const std::string& text = rig.client().platform_version();
  expect(!text.empty(), "the version is empty");
  return text.substr(0, text.find('\n'));
}

std::string addressable_devices(Rig& rig) {
  std::set<PJRT_Device*> all;
  for (const Device& d : rig.client().devices()) {
    expect(d.raw() != nullptr, "a device is null");
    expect(all.insert(d.raw()).second, "a device is listed twice");
  }
  return cat(all.size(), all.size() == 1 ? " device" : " devices");
}

std::string get_description(Rig& rig) {
  expect(rig.description() != nullptr, "the description is null");
  return {};
}

std::string local_hardware_id(Rig& rig) {
  auto r = call<&PJRT_Api::PJRT_Device_LocalHardwareId>(rig.api(), {.device = rig.device().raw()});
  expect(r.local_hardware_id >= 0, cat("device 0 has number ", r.local_hardware_id));
  return cat(r.local_hardware_id);
}

std::string memory_stats(Rig& rig) {
  constexpr int64_t kBytes = int64_t{1} << 20;
  auto in_use = [&] {
    auto args = call<&PJRT_Api::PJRT_Device_MemoryStats>(rig.api(), {.device = rig.device().raw()});
    expect(args.bytes_in_use >= 0, cat(args.bytes_in_use, " bytes in use"));
    return args.bytes_in_use;
  };
  int64_t before = in_use();
  Buffer held = rig.upload(Floats(kBytes / 4), {kBytes / 4});
  held.ready_event().await();
  int64_t grown = in_use() - before;
  expect(grown >= kBytes, cat("a buffer of ", kBytes, " bytes adds ", grown));
  auto stats = rig.device().memory_stats();
  return cat(before, " bytes in use, limit ",
             stats->limit_bytes ? cat(*stats->limit_bytes) : std::string("not told"));
}

std::string description_id(Rig& rig) {
  std::set<int> all;
  for (const Device& d : rig.client().devices())
    expect(all.insert(d.id()).second, cat("two devices have id ", d.id()));
  return join(all, ", ");
}

std::string description_kind(Rig& rig) {
  expect(!rig.device().kind().empty(), "the kind is empty");
  return rig.device().kind();
}

std::string description_debug_string(Rig& rig) {
  expect(!rig.device().debug_string().empty(), "the text is empty");
  return rig.device().debug_string();
}

// ---- events

PJRT_Event* ready_event(Rig& rig, const Buffer& b) {
  auto r = call<&PJRT_Api::PJRT_Buffer_ReadyEvent>(rig.api(), {.buffer = b.raw()});
  expect(r.event != nullptr, "it gives no event and no error");
  return r.event;
}

std::string event_destroy(Rig& rig) {
  Buffer b = rig.upload();
  call<&PJRT_Api::PJRT_Event_Destroy>(rig.api(), {.event = ready_event(rig, b)});
  return {};
}

std::string event_await(Rig& rig) {
  Buffer b = rig.upload();
  Event e(rig.api(), ready_event(rig, b));
  call<&PJRT_Api::PJRT_Event_Await>(rig.api(), {.event = e.raw()});
  return {};
}

std::string event_is_ready(Rig& rig) {
  Buffer b = rig.upload();
  Event e(rig.api(), ready_event(rig, b));
  call<&PJRT_Api::PJRT_Event_Await>(rig.api(), {.event = e.raw()});
  expect(e.ready(), "an event that was awaited is not ready");
  return {};
}

std::string event_error(Rig& rig) {
  Buffer b = rig.upload();
  Event good(rig.api(), ready_event(rig, b));
  call<&PJRT_Api::PJRT_Event_Await>(rig.api(), {.event = good.raw()});
  call<&PJRT_Api::PJRT_Event_Error>(rig.api(), {.event = good.raw()});
  return {};
}

std::string event_on_ready(Rig& rig) {
  struct Gate {
    std::mutex mu;
    std::condition_variable changed;
    int calls = 0;
  } static gate;  // outlives the probe, as a late callback may
  Buffer b = rig.upload();
  Event e(rig.api(), ready_event(rig, b));
  auto args = sized(PJRT_Event_OnReady_Args{.event = e.raw()});
  args.callback = [](PJRT_Error*, void*) {
    std::lock_guard lock(gate.mu);
    ++gate.calls;
    gate.changed.notify_all();
  };
  call<&PJRT_Api::PJRT_Event_OnReady>(rig.api(), args);
  std::unique_lock lock(gate.mu);
  gate.changed.wait_for(lock, std::chrono::seconds(5), [] { return gate.calls > 0; });
  expect(gate.calls == 1, cat("the callback ran ", gate.calls, " times in 5 seconds, expected 1"));
  return {};
}

// ---- buffers

std::string from_host(Rig& rig) {
  const Floats& values = Rig::input();
  std::array<int64_t, 2> dims{2, 3};
  auto r = call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(
      rig.api(), {.client = rig.client().raw(),
                  .data = values.data(),
                  .type = PJRT_Buffer_Type_F32,
                  .dims = dims.data(),
                  .num_dims = dims.size(),
                  .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
                  .device = rig.device().raw()});
  Buffer buffer(rig.api(), r.buffer);
  Event done(rig.api(), r.done_with_host_buffer);
  expect(buffer.raw() != nullptr, "it gives no buffer and no error");
  expect(bool(done), "done_with_host_buffer is null");
  done.await();
  return {};
}

std::string to_host(Rig& rig) {
  Buffer b = rig.upload();
  expect_floats("what came back of an upload", Rig::download(b, 6), Rig::input());
  return {};
}

std::string buffer_ready_event(Rig& rig) {
  Buffer b = rig.upload();
  Event e(rig.api(), ready_event(rig, b));
  e.await();
  return {};
}

std::string buffer_destroy(Rig& rig) {
  std::array<int64_t, 1> dims{6};
  auto r = call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(
      rig.api(), {.client = rig.client().raw(),
                  .data = Rig::input().data(),
                  .type = PJRT_Buffer_Type_F32,
                  .dims = dims.data(),
                  .num_dims = dims.size(),
                  .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
                  .device = rig.device().raw()});
  Event(rig.api(), r.done_with_host_buffer).await();
  call<&PJRT_Api::PJRT_Buffer_Destroy>(rig.api(), {.buffer = r.buffer});
  return {};
}

std::string buffer_delete(Rig& rig) {
  Buffer b = rig.upload();
  b.erase();
  expect(b.is_deleted(), "PJRT_Buffer_IsDeleted says that it is still there");
  return {};
}

std::string buffer_is_deleted(Rig& rig) {
  Buffer b = rig.upload();
  expect(!b.is_deleted(), "a new buffer is deleted already");
  return {};
}

std::string buffer_is_on_cpu(Rig& rig) {
  Buffer b = rig.upload();
  auto r = call<&PJRT_Api::PJRT_Buffer_IsOnCpu>(rig.api(), {.buffer = b.raw()});
  return r.is_on_cpu ? "device memory is this process's" : "device memory is the device's own";
}

std::string buffer_element_type(Rig& rig) {
  Buffer b = rig.upload();
  int type = static_cast<int>(b.element_type());
  expect(type == PJRT_Buffer_Type_F32,
         cat("f32 is type ", type, ", expected ", static_cast<int>(PJRT_Buffer_Type_F32)));
  return {};
}

std::string buffer_dimensions(Rig& rig) {
  Buffer b = rig.upload();
  std::vector<int64_t> dims(b.dims().begin(), b.dims().end());
  expect(dims == std::vector<int64_t>{2, 3}, cat("expected 2, 3, found ", join(dims, ", ")));
  return {};
}

void expect_bytes(const void* at, const Buffer& b) {
  if (!b.is_on_cpu()) throw NotTried{"device memory is not the host's"};
  expect(at != nullptr, "the pointer is null");
  expect(std::memcmp(at, Rig::input().data(), Rig::input().size() * sizeof(float)) == 0,
         "other bytes stand there than were uploaded");
}

std::string opaque_pointer(Rig& rig) {
  Buffer b = rig.upload();
  b.ready_event().await();
  auto r =
      call<&PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer>(rig.api(), {.buffer = b.raw()});
  expect_bytes(r.device_memory_ptr, b);
  return {};
}

std::string unsafe_pointer(Rig& rig) {
  Buffer b = rig.upload();
  b.ready_event().await();
  auto r = call<&PJRT_Api::PJRT_Buffer_UnsafePointer>(rig.api(), {.buffer = b.raw()});
  expect_bytes(reinterpret_cast<const void*>(r.buffer_pointer), b);
  return {};
}

std::string increase_references(Rig& rig) {
  Executable program = rig.compile(kDoubleInPlace);
  Buffer b = rig.upload();
  b.ready_event().await();
  call<&PJRT_Api::PJRT_Buffer_IncreaseExternalReferenceCount>(rig.api(), {.buffer = b.raw()});
  Buffer result = rig.run(program, {b.raw()});
  expect_floats("twice the buffer", Rig::download(result, 6), Rig::doubled());
  expect(!b.is_deleted(), "a program was given a buffer that is held from outside");
  destroy<&PJRT_Api::PJRT_Buffer_DecreaseExternalReferenceCount>(rig.api(), {.buffer = b.raw()});
  return {};
}

std::string decrease_references(Rig& rig) {
  Buffer b = rig.upload();
  call<&PJRT_Api::PJRT_Buffer_IncreaseExternalReferenceCount>(rig.api(), {.buffer = b.raw()});
  call<&PJRT_Api::PJRT_Buffer_DecreaseExternalReferenceCount>(rig.api(), {.buffer = b.raw()});
  return {};
}

constexpr const char* kErrors = "errors have no words or codes: out of memory looks like a bug";
constexpr const char* kReads = "values are read by a copy, not in place";

constexpr Row kRows[] = {
    ROW(PJRT_Plugin_Initialize, kExtra, "nothing, if the plugin needs no start", initialize),
    ROW(PJRT_Plugin_Attributes, kExtra,
        "stored programs outlive an update that keeps the file's name", attributes),
    ROW(PJRT_Error_GetCode, kNeeded, kErrors, error_code),
    ROW(PJRT_Error_Message, kNeeded, kErrors, error_message),
    ROW(PJRT_Error_Destroy, kNeeded, "memory leaks", error_destroy),
    ROW(PJRT_Client_Create, kNeeded, kNothing, client_create),
    ROW(PJRT_Client_Destroy, kNeeded, "memory leaks", client_destroy),
    ROW(PJRT_Client_PlatformName, kNeeded, kNothing, platform_name),
    ROW(PJRT_Client_PlatformVersion, kNeeded, kNothing, platform_version),
    ROW(PJRT_Client_AddressableDevices, kNeeded, kNothing, addressable_devices),
    ROW(PJRT_Device_GetDescription, kNeeded, kNothing, get_description),
    ROW(PJRT_Device_LocalHardwareId, kExtra, "devices of a host have no numbers",
        local_hardware_id),
    ROW(PJRT_Device_MemoryStats, kExtra,
        "torch.xla.memory_stats() and mem_get_info() do not know the device's memory",
        memory_stats),
    ROW(PJRT_DeviceDescription_Id, kNeeded, kNothing, description_id),
    ROW(PJRT_DeviceDescription_Kind, kNeeded, kNothing, description_kind),
    ROW(PJRT_DeviceDescription_DebugString, kNeeded, kNothing, description_debug_string),
    ROW(PJRT_Event_Destroy, kNeeded, "memory leaks", event_destroy),
    ROW(PJRT_Event_IsReady, kNeeded, kNothing, event_is_ready),
    ROW(PJRT_Event_Error, kNeeded, "failures of running programs go unseen", event_error),
    ROW(PJRT_Event_Await, kNeeded, kNothing, event_await),
    ROW(PJRT_Event_OnReady, kExtra, "waits block; Ctrl-C does not end them", event_on_ready),
    ROW(PJRT_Client_BufferFromHostBuffer, kNeeded, kNothing, from_host),
    ROW(PJRT_Buffer_ToHostBuffer, kNeeded, "no value can be read", to_host),
    ROW(PJRT_Buffer_ReadyEvent, kNeeded, kNothing, buffer_ready_event),
    ROW(PJRT_Buffer_Destroy, kNeeded, "memory leaks", buffer_destroy),
    ROW(PJRT_Buffer_Delete, kNeeded, "memory is freed later than asked", buffer_delete),
    ROW(PJRT_Buffer_IsDeleted, kNeeded, "updates in place are not seen", buffer_is_deleted),
    ROW(PJRT_Buffer_IsOnCpu, kExtra, kReads, buffer_is_on_cpu),
    ROW(PJRT_Buffer_ElementType, kNeeded, kNothing, buffer_element_type),
    ROW(PJRT_Buffer_Dimensions, kNeeded, kNothing, buffer_dimensions),
    ROW(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, kExtra, kReads, opaque_pointer),
    ROW(PJRT_Buffer_UnsafePointer, kExtra, kReads, unsafe_pointer),
    ROW(PJRT_Buffer_IncreaseExternalReferenceCount, kExtra,
        "a value that is being read may be overwritten by another thread's program",
        increase_references),
    ROW(PJRT_Buffer_DecreaseExternalReferenceCount, kExtra, "memory leaks", decrease_references),
};

}  // namespace

std::span<const Row> object_calls() { return kRows; }

}  // namespace tp::pjrt::conform
