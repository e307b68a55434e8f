#include "torch/tensor.h"

#include <ATen/ExpandUtils.h>
#include <c10/util/Type.h>
#include <c10/util/strides.h>

#include "base/error.h"
#include "base/text.h"
#include "client/registry.h"
#include "client/sharded_data.h"
#include "ops/core/row.h"
#include "torch/argument.h"
#include "torch/errors.h"
#include "torch/frames.h"
#include "torch/runtime.h"
#include "torch/trace.h"

namespace tp::torch_room {

using ir::DType;
using ir::Value;

namespace {

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
  auto* d = std::get_if<Alias::OnDevice>(&a.state);
  if (!d || d->data != data) return {};
  if (!d->leaf) d->leaf = std::move(made);
  return d->leaf;
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
  Alias::State old;
  std::lock_guard lock(state_lock());
  if (!a.host().is_same(host)) return;  // somebody wrote meanwhile
  old = a.exchange(Alias::OnDevice{std::move(data), {}, indices ? host : at::Tensor()});
}

}  // namespace

Value root_value(Alias& a) {
  for (bool taken;;) {
    client::DataPtr data;
    at::Tensor host;
    {
      std::lock_guard lock(state_lock());
      if (a.value()) return a.value();
      data = a.buffer();
      host = a.host();
      taken = a.taken();
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

namespace {

// A function that is traced may write what it was given, and what it made.
void check_traced(const Alias& a) {
  if (tracing() && !t_trace->owns(a)) [[unlikely]]
    t_trace->refuse(cat("it writes a tensor ", a.type.text(), " that is not among its arguments"));
}

// What the alias held, dropped after the lock is released.
struct Old {
  Alias::State state;
  std::vector<std::pair<Hash128, Value>> gathers;
  ir::NodePtr initial;
};

Old replace_locked(Alias& a, Alias::State to) {
  Old old{a.exchange(std::move(to)), std::move(a.gathers), ir::NodePtr()};
  if (auto* d = std::get_if<Alias::OnDevice>(&old.state)) {
    a.previous = d->data.get();
    a.layout = d->data->sharding();
    a.placed = true;
  }
  a.gathers.clear();
  ++a.version;
  return old;
}
Old replace_locked(Alias& a, Value v) { return replace_locked(a, Alias::Pending{std::move(v)}); }

// By what is no node: it is not the alias's initial value either.
Old replace_all_locked(Alias& a, Alias::State to) {
  Old old = replace_locked(a, std::move(to));
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
  if (!(a.value() == root)) return made;
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
  old = replace_all_locked(a, Alias::OnHost{std::move(host)});
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
  bool fresh = a.initial && a.value().node == a.initial;
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
  old = replace_all_locked(a, Alias::OnDevice{std::move(data)});
  a.previous = nullptr;
}

ir::NodePtr leaf_of(Alias& a) {
  client::DataPtr data;
  {
    std::lock_guard lock(state_lock());
    if (a.value()) return a.value().node;
    data = a.buffer();
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
  auto* d = std::get_if<Alias::OnDevice>(&a.state);
  if (!d || d->data != buffer || !a.gathers.empty()) return nullptr;
  long owners = 2;  // the alias's handle and the caller's
  if (d->leaf) {
    if (d->leaf.node->references() > 1) return nullptr;
    ++owners;
  }
  if (buffer.use_count() != owners) return nullptr;
  client::DataPtr data = std::move(d->data);
  old.state(a, Alias::Taken());
  return data;
}

void give_back_data(Alias& a, client::DataPtr data) {
  std::lock_guard lock(state_lock());
  if (a.taken()) a.state = Alias::OnDevice{std::move(data)};
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
  return a.buffer() ? "device" : a.host().defined() ? "host" : "ir";
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
