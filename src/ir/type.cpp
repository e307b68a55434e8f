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

std::unique_ptr<Type::Rep> make_rep(DType dtype, std::span<const int64_t> dims) {
  auto rep = std::make_unique<Type::Rep>();
  rep->dtype = dtype;
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
  Hash128 key = mix(hash_bytes(dims.data(), dims.size_bytes()), static_cast<uint64_t>(dtype));
  Table& t = table();
  std::lock_guard lock(t.mu);
  auto it = t.reps.find(key);
  if (it == t.reps.end()) it = t.reps.emplace(key, make_rep(dtype, dims)).first;
  return Type(it->second.get());
}

Type Type::with(DType t) const { return t == dtype() ? *this : make_type(t, dims()); }
Type Type::with(std::span<const int64_t> d) const { return make_type(dtype(), d); }

}  // namespace tp::ir
