#include "pjrt/buffer.h"

#include "base/small_vector.h"

namespace tp::pjrt {

PJRT_Buffer_Type Buffer::element_type() const {
  return call<&PJRT_Api::PJRT_Buffer_ElementType>(api_, {.buffer = buffer_}).type;
}

std::span<const int64_t> Buffer::dims() const {
  auto r = call<&PJRT_Api::PJRT_Buffer_Dimensions>(api_, {.buffer = buffer_});
  return {r.dims, r.num_dims};
}

bool Buffer::is_on_cpu() const {
  PJRT_Buffer_IsOnCpu_Args args{};
  args.buffer = buffer_;
  return !try_call<&PJRT_Api::PJRT_Buffer_IsOnCpu>(api_, args) && args.is_on_cpu;
}

bool Buffer::is_deleted() const {
  return call<&PJRT_Api::PJRT_Buffer_IsDeleted>(api_, {.buffer = buffer_}).is_deleted;
}

void Buffer::erase() { call<&PJRT_Api::PJRT_Buffer_Delete>(api_, {.buffer = buffer_}); }

Event Buffer::ready_event() const {
  return Event(api_, call<&PJRT_Api::PJRT_Buffer_ReadyEvent>(api_, {.buffer = buffer_}).event);
}

const void* Buffer::host_pointer() const {
  if (has<&PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer>(api_)) {
    PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args args{};
    args.buffer = buffer_;
    auto failure = try_call<&PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer>(api_, args);
    if (!failure) return args.device_memory_ptr;
    if (failure->code != PJRT_Error_Code_UNIMPLEMENTED)
      throw to_error("PJRT_Buffer_OpaqueDeviceMemoryDataPointer", *failure);
  }
  auto r = call<&PJRT_Api::PJRT_Buffer_UnsafePointer>(api_, {.buffer = buffer_});
  return reinterpret_cast<const void*>(r.buffer_pointer);
}

Event Buffer::copy_to_host(void* to, size_t size, Layout order) const {
  // Ask for row-major order: the device's own layout may be another one.
  SmallVec<int64_t, 8> minor_to_major;
  for (size_t i = dims().size(); i > 0; --i) minor_to_major.push_back(static_cast<int64_t>(i) - 1);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = sizeof(layout);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = sizeof(layout.tiled);
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto r = call<&PJRT_Api::PJRT_Buffer_ToHostBuffer>(
      api_, {.src = buffer_,
             .host_layout = order == Layout::kRowMajor ? &layout : nullptr,
             .dst = to,
             .dst_size = size});
  return Event(api_, r.event);
}

Buffer::Hold Buffer::hold() const {
  PJRT_Buffer_IncreaseExternalReferenceCount_Args args{};
  args.buffer = buffer_;
  auto failure = try_call<&PJRT_Api::PJRT_Buffer_IncreaseExternalReferenceCount>(api_, args);
  if (!failure) return Hold(api_, buffer_);
  if (failure->code == PJRT_Error_Code_UNIMPLEMENTED) return {};
  throw to_error("PJRT_Buffer_IncreaseExternalReferenceCount", *failure);
}

Buffer::Hold::~Hold() {
  if (buffer_)
    destroy<&PJRT_Api::PJRT_Buffer_DecreaseExternalReferenceCount>(api_, {.buffer = buffer_});
}

Buffer buffer_from_host(const PJRT_Api* api, PJRT_Client* client, PJRT_Device* device,
                        const HostBytes& from) {
  auto semantics = from.owner ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                              : PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  auto r =
      call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(api, {.client = client,
                                                              .data = from.data,
                                                              .type = from.type,
                                                              .dims = from.dims.data(),
                                                              .num_dims = from.dims.size(),
                                                              .host_buffer_semantics = semantics,
                                                              .device = device});
  Buffer buffer(api, r.buffer);
  Event done(api, r.done_with_host_buffer);
  // The event also fires where nothing was aliased: then it means "copied".
  if (from.owner && done) done.on_ready([owner = from.owner](std::optional<Failure>) {});
  return buffer;
}

}  // namespace tp::pjrt
