#include "faults.h"

#include <cstdlib>
#include <string>
#include <string_view>

namespace fake {
namespace {

template <class T>
struct Entry;
template <class Args>
struct Entry<PJRT_Error* (*PJRT_Api::*)(Args*)> {
  using args = Args;
};

// Destroy calls do their work first: a plugin that fails there has still let go.
constexpr bool frees(std::string_view name) { return name.ends_with("_Destroy"); }

template <auto Fn>
struct Wrapped {
  using Args = typename Entry<decltype(Fn)>::args;
  static inline PJRT_Error* (*original)(Args*) = nullptr;
  static inline std::string_view name;

  static PJRT_Error* call(Args* a) {
    if (frees(name)) {
      PJRT_Error* first = original(a);
      auto fault = next(name);
      return first || !fault ? first : error(fault);
    }
    if (auto fault = next(name)) return error(fault);
    return original(a);
  }
};

template <auto Fn>
void wrap(PJRT_Api& api, std::string_view name) {
  if (!(api.*Fn)) return;
  const char* without = std::getenv("TORCH_PJRT_FAKE_WITHOUT");
  if (without &&
      ("," + std::string(without) + ",").find("," + std::string(name) + ",") != std::string::npos) {
    api.*Fn = nullptr;
    return;
  }
  Wrapped<Fn>::original = api.*Fn;
  Wrapped<Fn>::name = name;
  api.*Fn = Wrapped<Fn>::call;
}

}  // namespace

#define WRAP(entry) wrap<&PJRT_Api::entry>(api, #entry)

void wrap_for_faults(PJRT_Api& api) {
  WRAP(PJRT_Plugin_Initialize);
  WRAP(PJRT_Client_Create);
  WRAP(PJRT_Client_Destroy);
  WRAP(PJRT_Client_PlatformName);
  WRAP(PJRT_Client_PlatformVersion);
  WRAP(PJRT_Client_AddressableDevices);
  WRAP(PJRT_Client_Compile);
  WRAP(PJRT_Client_BufferFromHostBuffer);
  WRAP(PJRT_Device_GetDescription);
  WRAP(PJRT_Device_LocalHardwareId);
  WRAP(PJRT_Device_MemoryStats);
  WRAP(PJRT_DeviceDescription_Id);
  WRAP(PJRT_DeviceDescription_Kind);
  WRAP(PJRT_DeviceDescription_DebugString);
  WRAP(PJRT_Event_Destroy);
  WRAP(PJRT_Event_IsReady);
  WRAP(PJRT_Event_Error);
  WRAP(PJRT_Event_Await);
  WRAP(PJRT_Event_OnReady);
  WRAP(PJRT_Buffer_ToHostBuffer);
  WRAP(PJRT_Buffer_ReadyEvent);
  WRAP(PJRT_Buffer_UnsafePointer);
  WRAP(PJRT_Buffer_Destroy);
  WRAP(PJRT_Buffer_Delete);
  WRAP(PJRT_Buffer_IsDeleted);
  WRAP(PJRT_Buffer_IsOnCpu);
  WRAP(PJRT_Buffer_ElementType);
  WRAP(PJRT_Buffer_Dimensions);
  WRAP(PJRT_Buffer_IncreaseExternalReferenceCount);
  WRAP(PJRT_Buffer_DecreaseExternalReferenceCount);
  WRAP(PJRT_Executable_DeserializeAndLoad);
  WRAP(PJRT_Executable_Serialize);
  WRAP(PJRT_Executable_Destroy);
  WRAP(PJRT_Executable_NumOutputs);
  WRAP(PJRT_Executable_OutputElementTypes);
  WRAP(PJRT_Executable_OutputDimensions);
  WRAP(PJRT_LoadedExecutable_GetExecutable);
  WRAP(PJRT_LoadedExecutable_Execute);
  WRAP(PJRT_LoadedExecutable_AddressableDevices);
  WRAP(PJRT_LoadedExecutable_Destroy);
  WRAP(PJRT_Executable_GetCompiledMemoryStats);
  WRAP(PJRT_TopologyDescription_Create);
  WRAP(PJRT_TopologyDescription_Destroy);
  WRAP(PJRT_TopologyDescription_PlatformName);
  WRAP(PJRT_TopologyDescription_GetDeviceDescriptions);
  WRAP(PJRT_Compile);
}

}  // namespace fake
