#include "ir/type.h"

#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/forks.h"
#include "base/sizes.h"
#include "base/text.h"

namespace tp::ir {
namespace {

struct Table {
  TableMutex mu;
  std::unordered_map<Hash128, std::unique_ptr<Type::Rep>> reps;
};

Table& table() {
  static Table* t = new Table;  // never destroyed: types outlive static destructors
  return *t;
}

Hash128 key_of(DType dtype, std::span<const int64_t> dims) {
  return mix(hash_bytes(dims.data(), dims.size_bytes()), static_cast<uint64_t>(dtype));
}

std::unique_ptr<Type::Rep> make_rep(DType dtype, std::span<const int64_t> dims, bool forever) {
  auto rep = std::make_unique<Type::Rep>();
  rep->dtype = dtype;
  rep->forever = forever;
  rep->dims = Dims(dims);
  // Eager's words. Bytes, too, must fit: every type is one that a buffer may have.
  if (!product_of(dims, dtype_size(dtype)))
    fail(Code::kRuntime,
         cat("Storage size calculation overflowed with sizes=[", join(dims, ", "), "]"));
  rep->numel = *product_of(dims);
  rep->text = cat(dtype_name(dtype), "[", join(dims, ","), "]");
  rep->mlir = cat("tensor<", join(dims, "x"), dims.empty() ? "" : "x", dtype_mlir(dtype), ">");
  rep->hash = hash_text(rep->text);
  return rep;
}

}  // namespace

Type make_type(DType dtype, std::span<const int64_t> dims) {
  Hash128 key = key_of(dtype, dims);
  Table& t = table();
  std::lock_guard lock(t.mu);
  auto it = t.reps.find(key);
  if (it == t.reps.end())
    it = t.reps.emplace(key, make_rep(dtype, dims, t.reps.size() < Type::kForever)).first;
  Type::Rep* rep = it->second.get();
  auto bits = reinterpret_cast<uintptr_t>(rep);
  if (rep->forever) return Type(bits);
  rep->references.fetch_add(1, std::memory_order_relaxed);
  return Type(bits | Type::kCounted);
}

// The last reference goes under the lock, so that nobody finds a type in the table that is going.
void Type::drop(Rep* rep) noexcept {
  uint32_t n = rep->references.load(std::memory_order_relaxed);
  while (n > 1)
    if (rep->references.compare_exchange_weak(n, n - 1, std::memory_order_acq_rel)) return;
  std::unique_ptr<Rep> gone;
  Table& t = table();
  std::lock_guard lock(t.mu);
  if (rep->references.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  auto it = t.reps.find(key_of(rep->dtype, rep->dims));
  gone = std::move(it->second);
  t.reps.erase(it);
}

size_t live_types() {
  Table& t = table();
  std::lock_guard lock(t.mu);
  return t.reps.size();
}

Type Type::with(DType t) const { return t == dtype() ? *this : make_type(t, dims()); }
Type Type::with(std::span<const int64_t> d) const { return make_type(dtype(), d); }

}  // namespace tp::ir
