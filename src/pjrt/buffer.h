// Buffer: bytes on a device, perhaps of a program that still runs. Owns the PJRT_Buffer; move-only;
// must not outlive its client. Any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "pjrt/api.h"
#include "pjrt/event.h"

namespace tp::pjrt {

class Buffer {
 public:
  Buffer() = default;
  Buffer(const PJRT_Api* api, PJRT_Buffer* buffer) : api_(api), buffer_(buffer) {}
  Buffer(Buffer&& o) noexcept : api_(o.api_), buffer_(std::exchange(o.buffer_, nullptr)) {}
  Buffer& operator=(Buffer&& o) noexcept {
    std::swap(api_, o.api_);
    std::swap(buffer_, o.buffer_);
    return *this;
  }
  ~Buffer() {
    if (buffer_) destroy<&PJRT_Api::PJRT_Buffer_Destroy>(api_, {.buffer = buffer_});
  }
  PJRT_Buffer* raw() const { return buffer_; }

  PJRT_Buffer_Type element_type() const;
  std::span<const int64_t> dims() const;  // valid while the buffer lives
  bool is_on_cpu() const;
  bool is_deleted() const;
  // Drops the device memory; the buffer can then only be asked whether it is deleted.
  void erase();
  // Ready, or failed, when the producing work is done. A deleted buffer's event fails.
  Event ready_event() const;
  // The address of the bytes on the host; only where is_on_cpu(). Throws for a deleted buffer.
  const void* host_pointer() const;
  // Starts a copy to `to`, row-major; `to` must stay valid until the event is ready. kDevice: of a
  // plugin that takes no layout, whose own is row-major.
  enum class Layout : unsigned char { kRowMajor, kDevice };
  Event copy_to_host(void* to, size_t size, Layout layout = Layout::kRowMajor) const;
  // While a hold lives the memory stays: not freed, not donated. Empty where the plugin has no such
  // count.
  class Hold {
   public:
    Hold() = default;
    Hold(const PJRT_Api* api, PJRT_Buffer* buffer) : api_(api), buffer_(buffer) {}
    Hold(Hold&& o) noexcept : api_(o.api_), buffer_(std::exchange(o.buffer_, nullptr)) {}
    ~Hold();

   private:
    const PJRT_Api* api_ = nullptr;
    PJRT_Buffer* buffer_ = nullptr;
  };
  Hold hold() const;

 private:
  const PJRT_Api* api_ = nullptr;
  PJRT_Buffer* buffer_ = nullptr;
};

// Dense row-major bytes on the host. Where `owner` is set the plugin may read them until the owner
// is let go (and alias them, given 64-byte alignment); without one they are copied during the call.
struct HostBytes {
  const void* data;
  PJRT_Buffer_Type type;
  std::span<const int64_t> dims;
  std::shared_ptr<void> owner;
};

Buffer buffer_from_host(const PJRT_Api* api, PJRT_Client* client, PJRT_Device* device,
                        const HostBytes& from);

}  // namespace tp::pjrt
