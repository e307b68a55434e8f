#include "torch/tensor.h"

#include <ATen/ExpandUtils.h>
#include <c10/util/Type.h>
#include <c10/util/strides.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "client/registry.h"
#include "client/sharded_data.h"
#include "ops/core/row.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/runtime.h"
#include "torch/storage.h"
#include "torch/trace.h"

namespace tp::torch_room {

using ir::DType;
using ir::Value;

namespace {

// The arena: a ring through one sentinel.
struct Arena {
  Alias* first = nullptr;
  Alias* last = nullptr;
  size_t count = 0;
};
Arena g_arena;

uint64_t next_id() {
  static std::atomic<uint64_t> id{1};
  return id.fetch_add(1, std::memory_order_relaxed);
}

const ir::OpKind& kind_of_row(const char* name) {
  const ops::Row* row = ops::find_row(name);
  check(row != nullptr, cat("the op table has ", name));
  return ops::kind_of(*row);
}

bool row_major(std::span<const int64_t> dims, std::span<const int64_t> strides) {
  int64_t want = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != want) return false;
    want *= std::max<int64_t>(dims[i], 1);
  }
  return true;
}

// Arguments of the view rows (ops/view/view.cpp): the alias's layout and the tensor's window.
struct ViewArgs {
  ir::AttrsBuilder attrs;
  ir::Type type;
};

ViewArgs view_args(const Impl& t, bool scatter) {
  static const ir::Symbol kSelf = ir::symbol("self"), kSrc = ir::symbol("src"),
                          kBase = ir::symbol("base_stride"), kSize = ir::symbol("size"),
                          kStride = ir::symbol("stride"), kOffset = ir::symbol("storage_offset"),
                          kDtype = ir::symbol("dtype");
  ViewArgs v;
  const Alias& a = *t.alias();
  v.type = type_of(t);
  v.attrs.operand(kSelf, 0);
  if (scatter) v.attrs.operand(kSrc, 1);
  if (a.strides)
    v.attrs.ints(kBase, *a.strides);
  else
    v.attrs.ints(kBase, span_of(c10::contiguous_strides(ref_of(a.type.dims()))));
  v.attrs.ints(kSize, span_of(t.sizes()));
  v.attrs.ints(kStride, span_of(t.strides()));
  v.attrs.integer(kOffset, t.storage_offset());
  v.attrs.dtype(kDtype, v.type.dtype());
  return v;
}

Value make_one(const ir::OpKind& kind, std::span<const Value> operands, ir::Type type,
               const ir::AttrsBuilder& attrs) {
  ir::NodePtr made = ir::Node::make(kind, operands, std::span(&type, 1), attrs.words());
  made->set_location(here());
  return {std::move(made), 0};
}

// The node of the alias's buffer, the same each time; null where it has another state by now.
Value node_of(Alias& a, const client::DataPtr& data) {
  Value made{ir::Node::make_data(data->type(), data), 0};
  made.node->set_location(a.made_at);
  std::lock_guard lock(state_lock());
  if (!a.value && a.data == data) a.value = std::move(made);
  return a.data == data ? a.value : Value();
}

// The bytes where the alias's last buffer was.
client::DataPtr send_placed(Alias& a, const at::Tensor& host) {
  shard::Ref layout;
  {
    std::lock_guard lock(state_lock());
    if (a.placed) layout = a.layout;
  }
  int device = device_index(a.device);
  if (!layout) return send(host, a.type, device);
  auto owner = std::make_shared<at::Tensor>(host);
  const void* bytes = host.const_data_ptr();
  GilRelease no_gil;
  client::check_not_forked();
  return client::upload_parts(client::client(), {bytes, a.type, std::move(owner)}, layout, device);
}

void upload(Alias& a, at::Tensor host) {
  client::DataPtr data = send_placed(a, host);
  constexpr size_t kMost = 4 << 20;
  bool indices = at::isIntegralType(host.scalar_type(), false) && host.nbytes() <= kMost;
  std::lock_guard lock(state_lock());
  if (!a.host.is_same(host)) return;  // somebody wrote meanwhile
  a.data = std::move(data);
  if (indices) a.uploaded = std::move(a.host);
  a.host.reset();
}

Value root_value(Alias& a) {
  for (bool taken;;) {
    client::DataPtr data;
    at::Tensor host;
    {
      std::lock_guard lock(state_lock());
      if (a.value) return a.value;
      data = a.data;
      host = a.host;
      taken = a.taken;
    }
    if (data) {
      if (Value v = node_of(a, data)) return v;
      continue;
    }
    if (taken) {
      wait_while_taken();
      continue;
    }
    check(host.defined(), "an alias is in one of its states");
    upload(a, host);
  }
}

// A function that is traced may write what it was given, and what it made.
void check_traced(const Alias& a) {
  if (tracing() && !t_trace->owns(a)) [[unlikely]]
    t_trace->refuse(cat("it writes a tensor ", a.type.text(), " that is not among its arguments"));
}

// What the alias held, dropped after the lock is released.
struct Old {
  Value value;
  client::DataPtr data;
  at::Tensor host, uploaded;
  std::vector<std::pair<Hash128, Value>> gathers;
  ir::NodePtr initial;
};

Old replace_locked(Alias& a, Value v) {
  Old old{std::move(a.value),    std::move(a.data),    std::move(a.host),
          std::move(a.uploaded), std::move(a.gathers), ir::NodePtr()};
  if (old.data) {
    a.previous = old.data.get();
    a.layout = old.data->sharding();
    a.placed = true;
  }
  a.value = std::move(v);
  a.data = nullptr;
  a.taken = false;
  a.host = at::Tensor();
  a.uploaded = at::Tensor();
  a.gathers.clear();
  a.raised = false;
  ++a.version;
  return old;
}

// For a root value that is no node: it is not the alias's initial one either.
Old empty_locked(Alias& a) {
  Old old = replace_locked(a, Value());
  old.initial = std::exchange(a.initial, ir::NodePtr());
  return old;
}

}  // namespace

client::DataPtr send(const at::Tensor& host, ir::Type type, int device) {
  auto owner = std::make_shared<at::Tensor>(host);
  const void* bytes = host.const_data_ptr();
  GilRelease no_gil;
  client::check_not_forked();
  return client::client().transfer_to_device({bytes, type, std::move(owner)}, device);
}

void SpinLock::lock() {
  for (int spins = 0; flag_.test_and_set(std::memory_order_acquire); ++spins)
    if (spins > 64) std::this_thread::yield();
}

SpinLock& state_lock() {
  static SpinLock lock;
  return lock;
}

// Its address, which identifies it and leads nowhere, is made when somebody asks (storage.h).
Alias::Alias(Value v, std::unique_ptr<Dims> s, c10::Device d)
    : c10::StorageImpl(use_byte_size_t(), v.type().bytes(), c10::DataPtr(nullptr, d), nullptr,
                       /*resizable=*/false),
      type(v.type()),
      strides(std::move(s)),
      device(d),
      id(next_id()),
      made_at(v.node->location()),
      value(std::move(v)),
      traced(tracing()) {
  set_materializer(give_address);
  std::lock_guard lock(state_lock());
  prev = g_arena.last;
  (prev ? prev->next : g_arena.first) = this;
  g_arena.last = this;
  ++g_arena.count;
}

Alias::~Alias() { leave_arena(); }

void Alias::leave_arena() {
  std::lock_guard lock(state_lock());
  if (!std::exchange(in_arena_, false)) return;
  (prev ? prev->next : g_arena.first) = next;
  (next ? next->prev : g_arena.last) = prev;
  --g_arena.count;
}

void Alias::release_resources() {
  leave_arena();
  value = Value();
  data = nullptr;
  host = uploaded = at::Tensor();
  initial = ir::NodePtr();
  gathers.clear();
  c10::StorageImpl::release_resources();
}

void for_each_alias(const std::function<void(Alias&)>& f) {
  std::lock_guard lock(state_lock());
  for (Alias* a = g_arena.first; a; a = a->next) f(*a);
}

std::vector<AliasPtr> aliases_where(const std::function<bool(const Alias&)>& wanted) {
  std::vector<AliasPtr> found;
  found.reserve(room_for_aliases());
  for_each_alias([&](Alias& a) {
    if (found.size() == found.capacity() || !wanted(a)) return;
    c10::raw::weak_intrusive_ptr::incref(&a);
    AliasPtr alive = c10::weak_intrusive_ptr<Alias>::reclaim(&a).lock();
    if (alive) found.push_back(std::move(alive));
  });
  return found;
}

size_t live_aliases() {
  std::lock_guard lock(state_lock());
  return g_arena.count;
}

void wait_while_taken() {
  client::check_not_forked();  // the thread that would put the value back is not in a child
  GilRelease no_gil;
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  thread_local unsigned waits = 0;
  if (hears_interrupts() && ++waits % 512 == 0) look_for_interrupt();
}

Impl::Impl(c10::Storage alias, caffe2::TypeMeta dtype)
    : c10::TensorImpl(std::move(alias), c10::DispatchKeySet(c10::DispatchKey::XLA), dtype) {}

Impl::Impl(const Impl& base, caffe2::TypeMeta dtype) : Impl(base.storage_, dtype) {
  c10::DispatchKeySet keys = base.key_set_ - c10::python_ks;
  if (keys == key_set_) [[likely]]
    return;
  key_set_ = keys;
  if (is_inference())
    version_counter_ = c10::VariableVersion(c10::VariableVersion::DISABLED);
  else if (!version_counter_.enabled())
    version_counter_ = c10::VariableVersion(0);
}

void Impl::set_alias(AliasPtr alias) {
  storage_ = c10::Storage(std::move(alias));
  device_opt_ = storage_.device();
  reserved_ = false;
}

bool Impl::fits() const {
  const Alias& a = *alias();
  if (storage_offset() != 0 || sizes() != ref_of(a.type.dims()) ||
      to_dtype(dtype().toScalarType()) != a.type.dtype())
    return false;
  return numel() == 0 || (a.strides ? strides() == ref_of(*a.strides)
                                    : row_major(span_of(sizes()), span_of(strides())));
}

DType to_dtype(at::ScalarType t) {
  switch (t) {
    case at::kBool:
      return DType::kPred;
    case at::kByte:
      return DType::kU8;
    case at::kChar:
      return DType::kS8;
    case at::kShort:
      return DType::kS16;
    case at::kInt:
      return DType::kS32;
    case at::kLong:
      return DType::kS64;
    case at::kUInt16:
      return DType::kU16;
    case at::kUInt32:
      return DType::kU32;
    case at::kUInt64:
      return DType::kU64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kComplexFloat:
      return DType::kC64;
    case at::kComplexDouble:
      return DType::kC128;
    case at::kFloat8_e4m3fn:
      return DType::kF8E4M3FN;
    case at::kFloat8_e5m2:
      return DType::kF8E5M2;
    default:
      break;
  }
  fail(Code::kType, cat("device xla has no tensors of dtype ", c10::toString(t)),
       "convert it on the CPU first");
}

at::ScalarType to_scalar_type(DType t) {
  static constexpr at::ScalarType kTypes[] = {
      at::kBool,          at::kByte,       at::kChar,   at::kShort,        at::kInt,
      at::kLong,          at::kUInt16,     at::kUInt32, at::kUInt64,       at::kHalf,
      at::kBFloat16,      at::kFloat,      at::kDouble, at::kComplexFloat, at::kComplexDouble,
      at::kFloat8_e4m3fn, at::kFloat8_e5m2};
  static_assert(std::size(kTypes) == static_cast<size_t>(DType::kCount));
  return kTypes[static_cast<int>(t)];
}

Impl* impl_or_null(const at::Tensor& t) {
  c10::TensorImpl* p = t.unsafeGetTensorImpl();
  return alias_or_null(p->unsafe_storage()) ? static_cast<Impl*>(p) : nullptr;
}

Impl& impl_of(const at::Tensor& t) {
  Impl* p = t.defined() ? impl_or_null(t) : nullptr;
  if (!p)
    fail(Code::kRuntime,
         cat("expected a tensor of device xla, found ",
             t.defined() ? cat("one of device ", t.device().str()) : "an undefined one"));
  return *p;
}

at::Tensor make_tensor(Value v, std::span<const int64_t> strides, c10::Device device) {
  ir::Type type = v.type();
  bool plain = strides.empty() || row_major(type.dims(), strides);
  auto alias = c10::make_intrusive<Alias>(
      std::move(v), plain ? nullptr : std::make_unique<Dims>(strides), device);
  auto impl =
      c10::make_intrusive<Impl>(c10::Storage(std::move(alias)),
                                caffe2::TypeMeta::fromScalarType(to_scalar_type(type.dtype())));
  // Strides of size-1 dims move no byte, so the alias is row-major; but eager shows them, so the
  // tensor does.
  if (eager_mode() && !tracing()) touch(*impl->alias());
  if (strides.empty())
    impl->set_sizes_contiguous(ref_of(type.dims()));
  else
    impl->set_sizes_and_strides(ref_of(type.dims()), ref_of(strides));
  impl->mark_whole();
  return at::Tensor(std::move(impl));
}

std::vector<int64_t> dense_strides(const c10::TensorImpl& t) {
  return t.is_non_overlapping_and_dense() ? t.strides().vec()
                                          : at::infer_dense_strides(t.sizes(), t.strides());
}

at::Tensor make_view(const Impl& t, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset) {
  return make_view(t, sizes, strides, offset, t.dtype());
}

at::Tensor make_view(const Impl& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset,
                     caffe2::TypeMeta dtype) {
  auto impl = c10::make_intrusive<Impl>(t, dtype);
  impl->set_sizes_and_strides(sizes, strides, offset);
  impl->refresh_whole();
  return at::Tensor(std::move(impl));
}

ir::Type type_of(const Impl& t) {
  if (t.whole()) return t.alias()->type;
  return ir::make_type(to_dtype(t.dtype().toScalarType()), span_of(t.sizes()));
}

// A tensor that nobody writes may be read through ever other windows.
constexpr size_t kMostGathers = 64;

Value value_of(Impl& t) {
  static const ir::OpKind& kView = kind_of_row("torch_pjrt::view");
  Alias& a = *t.alias();
  Value root = root_value(a);
  if (t.whole()) return root;
  ViewArgs v = view_args(t, false);
  Hash128 key = hash_bytes(v.attrs.words().data(), v.attrs.words().size_bytes());
  {
    std::lock_guard lock(state_lock());
    for (auto& [k, value] : a.gathers)
      if (k == key) return value;
  }
  Value made = make_one(kView, std::span(&root, 1), v.type, v.attrs);
  decltype(Alias::gathers) old;  // goes without the lock: dropping a node may free buffers
  std::lock_guard lock(state_lock());
  if (a.value != root) return made;
  if (a.gathers.size() >= kMostGathers) old.swap(a.gathers);
  a.gathers.emplace_back(key, made);
  return made;
}

Value with_lazy_bits(Value v, const at::Tensor& of) {
  auto apply = [&v](const char* name) {
    ir::AttrsBuilder attrs;
    attrs.operand(ir::symbol("self"), 0);
    v = make_one(kind_of_row(name), std::span(&v, 1), v.type(), attrs);
  };
  if (of.is_conj()) apply("aten::_conj_physical");
  if (of.is_neg()) apply("aten::neg");
  return v;
}

Value resolved_value(const at::Tensor& t) { return with_lazy_bits(value_of(impl_of(t)), t); }

void write(Impl& t, Value v) {
  static const ir::OpKind& kScatter = kind_of_row("torch_pjrt::view_scatter");
  check(v.type() == type_of(t),
        cat("a write of ", v.type().text(), " fits the tensor ", type_of(t).text()));
  Alias& a = *t.alias();
  check_traced(a);
  if (eager_mode() && !a.traced) touch(a);
  Old old;
  if (t.whole()) {
    std::lock_guard lock(state_lock());
    old = replace_locked(a, std::move(v));
    return;
  }
  Value both[2] = {root_value(a), v};
  ViewArgs args = view_args(t, true);
  Value made = make_one(kScatter, both, a.type, args.attrs);
  ViewArgs read = view_args(t, false);
  std::lock_guard lock(state_lock());
  old = replace_locked(a, std::move(made));
  // Reading the same window back gives what was just written, without a gather.
  a.gathers.emplace_back(hash_bytes(read.attrs.words().data(), read.attrs.words().size_bytes()),
                         std::move(v));
}

void adopt(Impl& t, Value v, std::span<const int64_t> strides) {
  check_traced(*t.alias());
  t.set_sizes_and_strides(t.sizes(), ref_of(strides));
  if (t.unsafe_storage().use_count() > 1) {  // other tensors see the memory: they keep it
    t.refresh_whole();
    return write(t, std::move(v));
  }
  bool plain = row_major(v.type().dims(), strides);
  t.set_alias(c10::make_intrusive<Alias>(
      std::move(v), plain ? nullptr : std::make_unique<Dims>(strides), t.device()));
  t.mark_whole();
  if (eager_mode() && !t.alias()->traced) touch(*t.alias());
}

void write_host(Impl& t, at::Tensor host) {
  Alias& a = *t.alias();
  check_traced(a);
  if (!t.whole()) {
    // Through a view: the bytes go up as a buffer of their own and are scattered.
    ir::Type type = type_of(t);
    auto data = send(host, type, device_index(a.device));
    return write(t, {ir::Node::make_data(type, std::move(data)), 0});
  }
  Old old;
  std::lock_guard lock(state_lock());
  old = empty_locked(a);
  a.host = std::move(host);
}

void replace_root(Alias& a, Value v) {
  Old old;
  ir::NodePtr old_initial;
  std::unique_ptr<Dims> old_strides;
  std::lock_guard lock(state_lock());
  if (a.initial && v.node->role() == ir::Role::kFill) {
    old_initial = std::move(a.initial);
    a.initial = v.node;
  }
  bool other = !(a.type == v.type());
  a.type = v.type();
  a.strides.swap(old_strides);
  old = replace_locked(a, std::move(v));
  if (other) a.placed = false;
}

void write_fill(Impl& t, const ir::Scalar& s) {
  Alias& a = *t.alias();
  check_traced(a);
  if (!t.whole()) {
    // A window's fill is never an initial value: a number, spread over the window.
    Value n{ir::Node::make_number(s, false), 0};
    return write(t, expand(cast(n, type_of(t).dtype()), span_of(t.sizes())));
  }
  if (eager_mode() && !a.traced) touch(a);
  Value v = fill_value(s, a.type);
  Old old;
  ir::NodePtr old_initial;
  std::lock_guard lock(state_lock());
  bool fresh = a.initial && a.value.node == a.initial;
  old = replace_locked(a, v);
  if (fresh) {
    old_initial = std::move(a.initial);
    a.initial = v.node;
  }
}

void write_data(Impl& t, client::DataPtr data) {
  Alias& a = *t.alias();
  if (!t.whole()) {
    ir::Type type = type_of(t);
    return write(t, {ir::Node::make_data(type, std::move(data)), 0});
  }
  replace_data(a, std::move(data));
}

void replace_data(Alias& a, client::DataPtr data) {
  Old old;
  std::lock_guard lock(state_lock());
  old = empty_locked(a);
  a.data = std::move(data);
  a.previous = nullptr;
}

ir::NodePtr leaf_of(Alias& a) {
  client::DataPtr data;
  {
    std::lock_guard lock(state_lock());
    if (a.value) return a.value.node;
    data = a.data;
  }
  return node_of(a, data).node;
}

at::Tensor make_device_tensor(client::DataPtr data, std::span<const int64_t> strides,
                              c10::Device device) {
  ir::NodePtr leaf = ir::Node::make_data(data->type(), data);
  leaf->set_location(here());
  at::Tensor t = make_tensor({std::move(leaf), 0}, strides, device);
  Alias& a = *impl_of(t).alias();
  Dropped old(1);
  std::lock_guard lock(state_lock());
  settle(a, std::move(data), old);
  return t;
}

client::DataPtr take_data(Alias& a, const client::DataPtr& buffer) {
  Dropped old(1);
  std::lock_guard lock(state_lock());
  if (a.data != buffer || a.taken || !a.gathers.empty()) return nullptr;
  long owners = 2;  // the alias's handle and the caller's
  if (a.value) {
    if (a.value.node->references() > 1) return nullptr;
    ++owners;
  }
  if (buffer.use_count() != owners) return nullptr;
  old.value(a);
  a.taken = true;
  return std::move(a.data);
}

void give_back_data(Alias& a, client::DataPtr data) {
  std::lock_guard lock(state_lock());
  if (!std::exchange(a.taken, false)) return;
  a.data = std::move(data);
}

void constrain_view(const Impl& t, Value v) {
  ViewArgs args = view_args(t, false);
  Alias& a = *t.alias();
  Hash128 key = hash_bytes(args.attrs.words().data(), args.attrs.words().size_bytes());
  std::lock_guard lock(state_lock());
  for (auto& [k, value] : a.gathers)
    if (k == key) std::swap(value, v);
}

void upload_host(Alias& a) { root_value(a); }

const char* state_of(const Impl& t) {
  if (!t.whole()) return "view";
  std::lock_guard lock(state_lock());
  const Alias& a = *t.alias();
  return a.data ? "device" : a.host.defined() ? "host" : "ir";
}

ir::Scalar to_scalar(const at::Scalar& s) {
  ir::Scalar r;
  if (s.isComplex()) {
    r.kind = ir::Scalar::Kind::kComplex;
    r.re = s.toComplexDouble().real();
    r.im = s.toComplexDouble().imag();
  } else if (s.isFloatingPoint()) {
    r.kind = ir::Scalar::Kind::kFloat;
    r.re = s.toDouble();
  } else if (s.isBoolean()) {
    r.kind = ir::Scalar::Kind::kBool;
    r.integer = s.toBool();
  } else {
    r.kind = ir::Scalar::Kind::kInt;
    r.integer = s.isUnsigned() ? static_cast<int64_t>(s.toUInt64()) : s.toLong();
  }
  return r;
}

Value cast(Value v, DType to) {
  if (v.type().dtype() == to) return v;
  static const ir::OpKind& kCast = kind_of_row("torch_pjrt::cast");
  static const ir::Symbol kSelf = ir::symbol("self"), kDtype = ir::symbol("dtype");
  ir::AttrsBuilder attrs;
  attrs.operand(kSelf, 0);
  attrs.dtype(kDtype, to);
  return make_one(kCast, std::span(&v, 1), v.type().with(to), attrs);
}

Value expand(Value v, std::span<const int64_t> sizes) {
  if (ref_of(v.type().dims()) == ref_of(sizes)) return v;
  static const ir::OpKind& kExpand = kind_of_row("torch_pjrt::expand");
  static const ir::Symbol kSelf = ir::symbol("self"), kSize = ir::symbol("size");
  ir::AttrsBuilder attrs;
  attrs.operand(kSelf, 0);
  attrs.ints(kSize, sizes);
  return make_one(kExpand, std::span(&v, 1), v.type().with(sizes), attrs);
}

Value fill_value(const ir::Scalar& s, ir::Type type) {
  ir::NodePtr made = ir::Node::make_fill(type, s);
  made->set_location(here());
  return {std::move(made), 0};
}

}  // namespace tp::torch_room
