#include "ir/type.h"

#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/forks.h"
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
  rep->numel = 1;
  for (int64_t d : dims) rep->numel *= d;
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
  auto& slot = t.reps[key];
  if (!slot) slot = make_rep(dtype, dims);
  return Type(slot.get());
}

Type Type::with(DType t) const { return t == dtype() ? *this : make_type(t, dims()); }
Type Type::with(std::span<const int64_t> d) const { return make_type(dtype(), d); }

}  // namespace tp::ir
