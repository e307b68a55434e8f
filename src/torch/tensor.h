// Tensors of device `xla`. An Impl (the c10::TensorImpl that Python holds) is a window onto an
// Alias, its storage; all tensors that eager would give one storage share one Alias. Sizes, strides
// and offset stand on the Impl and are exactly eager's; the IR knows values, not strides.
//
// An Impl is what any c10::TensorImpl with an Alias for storage is: it adds neither fields nor
// virtual functions. So PyTorch's own `p.data = q` makes a tensor of device xla of a CPU one where
// it stands, and back, and all who hold p (Python, autograd, optimizers, scripts) see it.
//
// An Alias holds one root value: a dense logical tensor (`type`) laid out in memory with `strides`.
// `state` says which it is: to be computed, taken by a launch, a buffer, or a CPU tensor that is
// not uploaded yet. A tensor whose window is not the whole alias is in state `view`. Asking an
// alias on the device for its IR value mints a leaf and keeps it: asking twice gives the same node.
//
// Threads: every field of an Alias is guarded by state_lock(), a spin lock held for a few words of
// work: under it nothing is asked of PyTorch, PJRT or Python, nothing is destroyed, and nothing
// allocated but the slot of a memo (`gathers`). Impl fields follow PyTorch's own rule: one thread
// at a time may change a tensor.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "client/computation_client.h"
#include "ir/node.h"

namespace tp::torch_room {

// Held for a few words of work; yields when another thread has it.
class SpinLock {
 public:
  void lock();
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};
SpinLock& state_lock();

// What an alias holds: one of these.
struct AliasState {
  struct Pending {
    ir::Value value;
    bool raised = false;  // it needs a host op that raised: computed only when read itself
  };
  // A launch has the value, or the buffer, and puts a buffer here: whoever needs it waits
  // (wait_while_taken).
  struct Taken {};
  struct OnDevice {
    client::DataPtr data;
    ir::Value leaf = {};       // the node minted for it, if any
    at::Tensor uploaded = {};  // what it was uploaded from, where it may index (index_check.h)
  };
  struct OnHost {
    at::Tensor host;
  };
};

class Alias final : public c10::StorageImpl {
 public:
  // Null strides: row-major.
  Alias(ir::Value value, std::unique_ptr<Dims> strides, c10::Device device);
  ~Alias() override;
  void release_resources() override;  // nobody but weak references is left

  ir::Type type;                  // element type and logical sizes of the root value
  std::unique_ptr<Dims> strides;  // null: row-major
  c10::Device device;
  uint64_t id = 0;               // ascends in the arena; never reused; constant once it is there
  const ir::LocationId made_at;  // the user's line, for messages

  using Pending = AliasState::Pending;
  using Taken = AliasState::Taken;
  using OnDevice = AliasState::OnDevice;
  using OnHost = AliasState::OnHost;
  using State = std::variant<Pending, Taken, OnDevice, OnHost>;
  State state;
  // What it held, which must not be dropped before state_lock() is released.
  [[nodiscard]] State exchange(State to) { return std::exchange(state, std::move(to)); }

  bool pending() const {
    auto* p = std::get_if<Pending>(&state);
    return p && p->value;
  }
  bool raised() const {
    auto* p = std::get_if<Pending>(&state);
    return p && p->raised;
  }
  bool taken() const { return std::holds_alternative<Taken>(state); }
  // The pending value, or the buffer's leaf, if any.
  const ir::Value& value() const {
    if (auto* p = std::get_if<Pending>(&state)) return p->value;
    auto* d = std::get_if<OnDevice>(&state);
    return d ? d->leaf : kNoValue;
  }
  const client::DataPtr& buffer() const {  // null in other states
    auto* d = std::get_if<OnDevice>(&state);
    return d ? d->data : kNoData;
  }
  const at::Tensor& host() const {  // undefined in other states
    auto* h = std::get_if<OnHost>(&state);
    return h ? h->host : kNoTensor;
  }
  const at::Tensor& uploaded() const {
    auto* d = std::get_if<OnDevice>(&state);
    return d ? d->uploaded : kNoTensor;
  }

  const void* previous =
      nullptr;           // buffer of the last sync, since overwritten; a tag, never followed
  ir::NodePtr initial;   // the fill this alias started as, until its first sync
  const bool traced;     // made while its thread traced (trace.h): no sync computes it
  uint64_t version = 0;  // bumped by each write
  bool grown = false;    // `type` is another one than at first
  // Values gathered through views of the current version, by hash of the view's arguments.
  std::vector<std::pair<Hash128, ir::Value>> gathers;

  bool untyped = false;  // made as bytes: takes the type of the first tensor that is set to it

  Alias *prev = nullptr, *next = nullptr;  // the arena: live aliases in creation order

 private:
  inline static const ir::Value kNoValue{};
  inline static const client::DataPtr kNoData{};
  inline static const at::Tensor kNoTensor{};
  void leave_arena();
  bool in_arena_ = true;

 public:
  // Where the buffer was that a pending value or host bytes took the place of (`placed`: there was
  // one, or it is known where it is to be): they go there too. Null: to one device, or to all.
  bool placed = false;
  shard::Ref layout;
};
using AliasPtr = c10::intrusive_ptr<Alias>;

// The Alias that a storage is, or null.
inline Alias* alias_or_null(const c10::Storage& s) {
  c10::StorageImpl* p = s.unsafeGetStorageImpl();
  return p && typeid(*p) == typeid(Alias) ? static_cast<Alias*>(p) : nullptr;
}

// What aliases (at most `count`) let go of, kept until state_lock() is released: dropping a node
// may free buffers. Declare it before the lock.
class Dropped {
 public:
  explicit Dropped(size_t count) {
    states_.reserve(count);
    gathers_.reserve(count);
  }
  void state(Alias& a, Alias::State to) { states_.push_back(a.exchange(std::move(to))); }
  void gathers(Alias& a) {
    if (!a.gathers.empty()) gathers_.push_back(std::exchange(a.gathers, {}));
  }

 private:
  std::vector<Alias::State> states_;
  std::vector<decltype(Alias::gathers)> gathers_;
};

// The alias has its value as a buffer now. Under state_lock().
inline void settle(Alias& a, client::DataPtr data, Dropped& old) {
  old.state(a, Alias::OnDevice{std::move(data)});
  a.previous = nullptr;
  old.gathers(a);
}

inline int device_index(const c10::Device& d) { return std::max<int>(d.index(), 0); }

class Impl final : public c10::TensorImpl {
 public:
  Impl(c10::Storage alias, caffe2::TypeMeta dtype);
  // For a view of `base`: an inference tensor, and lazily conjugated or negated, where base is so,
  // whatever mode is on.
  Impl(const Impl& base, caffe2::TypeMeta dtype);

  Alias* alias() const { return static_cast<Alias*>(storage_.unsafeGetStorageImpl()); }
  void set_alias(AliasPtr alias);
  // Whether the window is the whole alias in its own layout, so that its value is the root value.
  bool whole() const { return reserved_ && (!alias()->grown || fits()); }
  void refresh_whole() { reserved_ = fits(); }  // after sizes, strides or offset were set
  void mark_whole() { reserved_ = true; }

 private:
  bool fits() const;
  // TensorImpl::reserved_, which nothing else uses and every copy of a tensor copies, says "whole".
};
static_assert(sizeof(Impl) == sizeof(c10::TensorImpl));

ir::DType to_dtype(at::ScalarType t);  // throws TypeError for quantised and other foreign types
at::ScalarType to_scalar_type(ir::DType t);
inline Dims dims_of(at::IntArrayRef v) {
  return Dims(std::span<const int64_t>(v.data(), v.size()));
}
inline std::span<const int64_t> span_of(at::IntArrayRef v) { return {v.data(), v.size()}; }
inline at::IntArrayRef ref_of(std::span<const int64_t> v) { return {v.data(), v.size()}; }

// Exactly row-major, size-1 dims included: then strides say nothing that the type does not.
inline bool plain_strides(const c10::TensorImpl& t) {
  if (!t.is_contiguous()) return false;
  int64_t want = 1;
  for (int64_t d = t.dim() - 1; d >= 0; --d) {
    if (t.strides()[d] != want) return false;
    want *= std::max<int64_t>(t.sizes()[d], 1);
  }
  return true;
}

// Strides of a new tensor laid out like t: t's own, made dense where it has gaps or overlaps.
std::vector<int64_t> dense_strides(const c10::TensorImpl& t);

// The Impl behind t, or null where t is undefined, of another device, or a foreign TensorImpl with
// the XLA key (FakeTensor's elem): a vtable compare, never a blind cast.
Impl* impl_or_null(const at::Tensor& t);
Impl& impl_of(const at::Tensor& t);  // throws where impl_or_null gives null

// A new tensor over a new alias that holds `v`. Empty strides: row-major.
at::Tensor make_tensor(ir::Value v, std::span<const int64_t> strides, c10::Device device);
// A new tensor over t's alias with another window.
at::Tensor make_view(const Impl& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);
at::Tensor make_view(const Impl& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset,
                     caffe2::TypeMeta dtype);

// Gives a full sync in another thread a moment to put the results of its launch in place. Releases
// the GIL. No lock of ours may be held.
void wait_while_taken();

// The IR value of the tensor's window (GetIrValue). Uploads a host-state alias.
ir::Value value_of(Impl& t);
// `v` conjugated and negated where tensor `of` is so lazily: its value seen through the bits, or
// back.
ir::Value with_lazy_bits(ir::Value v, const at::Tensor& of);
// value_of with the lazy bits applied.
ir::Value resolved_value(const at::Tensor& t);
// The type of value_of(t), without making it.
ir::Type type_of(const Impl& t);
// Makes `v` (of t's dtype and sizes) the tensor's value: replaces the root, or scatters into it.
void write(Impl& t, ir::Value v);
// The same, in memory laid out by `strides` (dense).
void adopt(Impl& t, ir::Value v, std::span<const int64_t> strides);
// The same for a CPU tensor of t's dtype and sizes, which this takes over.
void write_host(Impl& t, at::Tensor host);
// Makes `v`, of whatever type, the alias's row-major root; a fill stays its initial value where it
// still has that.
void replace_root(Alias& a, ir::Value v);
// Gives the alias of t a fresh fill, as its initial value where it has none yet.
void write_fill(Impl& t, const ir::Scalar& s);

// The same for a buffer of t's dtype and sizes.
void write_data(Impl& t, client::DataPtr data);
// A new tensor over a new alias that holds `data`. Empty strides: row-major.
at::Tensor make_device_tensor(client::DataPtr data, std::span<const int64_t> strides,
                              c10::Device device);
// Takes the alias's buffer out of it for a launch that may consume it, where nobody but the alias
// and the caller's `buffer` owns it; else null. Whoever asks for the alias's value waits.
client::DataPtr take_data(Alias& a, const client::DataPtr& buffer);
// Puts it back, unless the alias was written meanwhile.
void give_back_data(Alias& a, client::DataPtr data);
// The bytes of a dense CPU tensor as a buffer that may go on using them: nobody may change them.
client::DataPtr send(const at::Tensor& host, ir::Type type, int device);
// Makes `v` what the window of the alias's present value reads as: a constraint of that value.
void constrain_view(const Impl& t, ir::Value v);
// Uploads an alias in state host.
void upload_host(Alias& a);
// The leaf that stands for the buffer of an alias in state device.
ir::NodePtr leaf_of(Alias& a);
// The alias of any window gets another buffer for its root value.
void replace_data(Alias& a, client::DataPtr data);
inline AliasPtr alias_ptr(const Impl& t) { return AliasPtr::reclaim_copy(t.alias()); }

// "device", "ir", "host" or "view".
const char* state_of(const Impl& t);

ir::Scalar to_scalar(const at::Scalar& s);
ir::Value cast(ir::Value v, ir::DType to);  // the value itself where nothing changes
ir::Value expand(ir::Value v, std::span<const int64_t> sizes);  // likewise
ir::Value fill_value(const ir::Scalar& s, ir::Type type);

// Runs f on each live alias in creation order, under state_lock(); f must not drop references.
void for_each_alias(const std::function<void(Alias&)>& f);
size_t live_aliases();
// Those that `wanted` chooses under state_lock(), kept alive; without those that are dying.
std::vector<AliasPtr> aliases_where(const std::function<bool(const Alias&)>& wanted);
// Room for what a walk gathers, since it may not allocate: of what other threads make meanwhile,
// more than that is left out.
inline size_t room_for_aliases() { return live_aliases() + 64; }

}  // namespace tp::torch_room
