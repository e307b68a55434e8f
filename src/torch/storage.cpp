#include "torch/storage.h"

#include <ATen/ops/empty.h>
#include <c10/util/strides.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "torch/checks.h"
#include "torch/kernels.h"

namespace tp::torch_room {
namespace {

using at::IntArrayRef;
using at::Tensor;
using ir::Value;

// Addresses that nothing else in the process has and that no access survives. One mapping serves
// many storages: a process may have few tens of thousands.
struct Addresses {
  explicit Addresses(size_t least) : bytes(std::max(least, size_t{1} << 36)) {
    if (reserve()) return;
    bytes = least;
    if (reserve()) return;
    fail(Code::kRuntime,
         cat("no addresses for a storage of ", least, " bytes: ", std::strerror(errno)),
         "raise the limit of this process's address space (ulimit -v)");
  }
  ~Addresses() { munmap(first, bytes); }
  Addresses(const Addresses&) = delete;

  bool reserve() {
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    first = static_cast<char*>(at);
    return at != MAP_FAILED;
  }
  size_t left() const { return bytes - used; }

  size_t bytes, used = 0;
  char* first = nullptr;
};

// A storage's share of them; none for one without bytes.
struct Place {
  explicit Place(size_t bytes) {
    static auto& current = *new std::shared_ptr<Addresses>;  // under state_lock()
    size_t room = (bytes / 64 + 1) * 64;                     // so that no two touch
    std::shared_ptr<Addresses> fresh;
    while (bytes) {
      {
        std::lock_guard lock(state_lock());
        if (fresh && (!current || current->left() < room)) current.swap(fresh);
        if (current && current->left() >= room) {
          range = current;
          at = range->first + std::exchange(range->used, range->used + room);
          return;
        }
      }
      fresh = std::make_shared<Addresses>(room);
    }
  }

  std::shared_ptr<Addresses> range;
  void* at = nullptr;
};

// What stands behind a storage's pointer.
struct Memory {
  Place place;
  AliasPtr made;  // of a storage that was made as bytes: the memory that tensors set to it share
};
void drop(void* memory) { delete static_cast<Memory*>(memory); }

c10::DataPtr pointer_to(size_t bytes, c10::Device device, AliasPtr made = {}) {
  auto* m = new Memory{Place(bytes), std::move(made)};
  return {m->place.at, m, &drop, device};
}

// Null where the storage is no memory of ours: a slice of one, or another device's.
AliasPtr alias_behind(const at::Storage& s) {
  if (Alias* a = alias_or_null(s)) return AliasPtr::reclaim_copy(a);
  if (!s || s.device_type() != c10::kXLA) return {};
  const c10::DataPtr& p = s.data_ptr();
  return p.get_deleter() == &drop ? static_cast<Memory*>(p.get_context())->made : AliasPtr();
}

bool covers(const Impl& t) {
  return t.storage_offset() == 0 && t.is_non_overlapping_and_dense() &&
         t.numel() * static_cast<int64_t>(t.itemsize()) == t.alias()->type.bytes();
}

bool sees_bytes(const Impl& t) {
  return t.dtype() == caffe2::TypeMeta::Make<uint8_t>() && t.dim() == 1 && covers(t);
}

bool same_layout(const Alias& a, const Alias& b) {
  bool strides = a.strides && b.strides ? *a.strides == *b.strides : !a.strides && !b.strides;
  return a.type == b.type && strides;
}

// The alias holds `host` (of that type), or zeros, and is laid out by `strides` (null: row-major).
void become(Alias& a, ir::Type type, std::unique_ptr<Dims> strides, Tensor host) {
  Value zeros = host.defined() ? Value() : fill_value({}, type);
  ir::NodePtr initial = a.initial ? zeros.node : ir::NodePtr();
  Alias::State state = Alias::Pending{std::move(zeros)};
  if (host.defined()) state = Alias::OnHost{std::move(host)};
  std::vector<std::pair<Hash128, Value>> gathers;
  std::lock_guard lock(state_lock());
  a.type = type;
  std::swap(a.strides, strides);
  std::swap(a.state, state);
  std::swap(a.initial, initial);
  std::swap(a.gathers, gathers);
  a.untyped = false;
  a.grown = true;
  ++a.version;
}

// Memory made as bytes that no op has written takes the type and, where t covers it, the shape of
// t, which was just set to it.
void take_type(const Impl& t) {
  Alias& a = *t.alias();
  Tensor host;
  {
    std::lock_guard lock(state_lock());
    host = a.host();
    if (!a.untyped || (!host.defined() && a.value().node != a.initial)) return;
  }
  auto item = static_cast<int64_t>(t.itemsize());
  int64_t flat = a.type.bytes() / item;
  if (t.numel() == 0 || a.type.bytes() % item || sees_bytes(t)) return;
  bool whole = covers(t);
  IntArrayRef sizes = whole ? t.sizes() : IntArrayRef(flat);
  std::unique_ptr<Dims> strides;
  if (whole && !t.is_contiguous()) strides = std::make_unique<Dims>(span_of(t.strides()));
  if (host.defined()) {
    host = host.view(t.dtype().toScalarType());
    host = whole ? host.as_strided(sizes, t.strides()).contiguous() : host;
  }
  become(a, ir::make_type(to_dtype(t.dtype().toScalarType()), span_of(sizes)), std::move(strides),
         std::move(host));
}

// --- set_
// ------------------------------------------------------------------------------------------------

// Points self at another alias through a new window. Empty strides: row-major.
Tensor& set_window(Tensor& self, AliasPtr alias, int64_t offset, IntArrayRef size,
                   IntArrayRef stride) {
  Impl& to = impl_of(self);
  c10::DimVector row_major =
      stride.empty() ? c10::contiguous_strides(size) : c10::DimVector(stride);
  check_window(*alias, to.itemsize(), size, row_major, offset);
  to.set_alias(std::move(alias));
  if (stride.empty()) {
    to.set_sizes_contiguous(size);
    to.set_storage_offset(offset);
  } else {
    to.set_sizes_and_strides(size, stride, offset);
  }
  take_type(to);
  to.refresh_whole();
  return self;
}

Tensor& set_tensor_at(Tensor& self, const Tensor& source, int64_t offset, IntArrayRef size,
                      IntArrayRef stride) {
  return set_window(self, alias_ptr(impl_of(source)), offset, size, stride);
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  if (!self.is_same(source))
    set_tensor_at(self, source, source.storage_offset(), source.sizes(), source.strides());
  return self;
}

Tensor& set_nothing(Tensor& self) { return set_tensor(self, at::empty({0}, self.options())); }

Tensor& set_storage_at(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size,
                       IntArrayRef stride) {
  AliasPtr alias = alias_behind(source);
  TORCH_CHECK(alias,
              "set_: this storage is not all of a memory of device xla but a slice of one, or a "
              "foreign one. try: slice the tensor instead of its storage");
  return set_window(self, std::move(alias), offset, size, stride);
}

Tensor& set_storage(Tensor& self, at::Storage source) {
  auto size = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_at(self, std::move(source), 0, size, {});
}

bool is_set_to(const Tensor& a, const Tensor& b) {
  return impl_of(a).alias() == impl_of(b).alias() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.storage_offset() == b.storage_offset();
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    auto size = static_cast<int64_t>(n);
    Value v = fill_value({}, ir::make_type(ir::DType::kU8, std::span(&size, 1)));
    auto alias = c10::make_intrusive<Alias>(
        v, nullptr, c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(current_device())));
    {
      std::lock_guard lock(state_lock());
      alias->initial = v.node;
      alias->untyped = true;
    }
    return pointer_to(n, alias->device, alias);
  }
  void copy_data(void*, const void*, size_t) const override {
    fail(Code::kRuntime, "storages of device xla have no bytes to copy from address to address",
         "copy the tensors, or storage.copy_()");
  }
};

}  // namespace

void give_address(c10::StorageImpl* s) {
  s->set_data_ptr_noswap(pointer_to(s->nbytes(), s->device()));
}

std::optional<uintptr_t> address_of(const Tensor& t) {
  Impl* p = t.defined() ? impl_or_null(t) : nullptr;
  if (!p) return std::nullopt;
  auto base = reinterpret_cast<uintptr_t>(p->alias()->mutable_data());
  if (t.numel() == 0) return 0;
  return base + static_cast<uintptr_t>(t.storage_offset() * t.element_size());
}

void resize_storage(Alias& alias) {
  auto bytes = static_cast<size_t>(alias.type.bytes());
  bool had_address = alias.data_ptr().get() != nullptr;
  {
    std::lock_guard lock(state_lock());
    alias.grown = true;
    alias.set_nbytes(bytes);
  }
  if (had_address) alias.set_data_ptr_noswap(pointer_to(bytes, alias.device));
}

Tensor all_of(const Impl& t) {
  const Alias& a = *t.alias();
  at::IntArrayRef sizes = ref_of(a.type.dims());
  return make_view(t, sizes,
                   a.strides ? ref_of(*a.strides) : IntArrayRef(c10::contiguous_strides(sizes)), 0,
                   c10::scalarTypeToTypeMeta(to_scalar_type(a.type.dtype())));
}

std::optional<std::pair<Tensor, Tensor>> as_memory(const Tensor& dst, const Tensor& src) {
  Impl &to = impl_of(dst), &from = impl_of(src);
  Alias &a = *to.alias(), &b = *from.alias();
  if (from.whole() || &a == &b || !sees_bytes(to) || !sees_bytes(from)) return std::nullopt;
  if (a.untyped && a.type.bytes() == b.type.bytes())
    become(a, b.type, b.strides ? std::make_unique<Dims>(*b.strides) : nullptr, Tensor());
  if (!same_layout(a, b)) return std::nullopt;
  return std::pair(all_of(to), all_of(from));
}

bool write_memory(Impl& t, const Tensor& host) {
  if (t.whole() || !sees_bytes(t)) return false;
  Tensor all = all_of(t);
  write_host(impl_of(all),
             host.view(all.scalar_type()).as_strided(all.sizes(), all.strides()).contiguous());
  return true;
}

c10::Allocator& storage_allocator() {
  static Allocator allocator;
  return allocator;
}

void register_storages(torch::Library& m) {
  m.impl("set_.source_Tensor", TP_FN(set_tensor));
  m.impl("set_.source_Tensor_storage_offset", TP_FN(set_tensor_at));
  m.impl("set_.source_Storage", TP_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TP_FN(set_storage_at));
  m.impl("set_", TP_FN(set_nothing));
  m.impl("is_set_to", TP_FN(is_set_to));
}

}  // namespace tp::torch_room
