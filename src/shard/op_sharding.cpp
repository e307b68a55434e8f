#include "shard/op_sharding.h"

#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace tp::shard {
namespace {

// Fields of a protobuf message, one after another.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}
  unsigned field = 0;
  uint64_t number = 0;     // of a varint field,
  std::string_view bytes;  // or of one with bytes
  bool packed = false;     // which of the two

  bool next() {
    if (rest_.empty()) return false;
    uint64_t tag = varint();
    field = static_cast<unsigned>(tag >> 3);
    packed = (tag & 7) == 2;
    switch (tag & 7) {
      case 0:
        number = varint();
        return true;
      case 1:
        return take(8);
      case 2:
        return take(varint());
      case 5:
        return take(4);
      default:
        fail(Code::kRuntime, cat("a plugin's protobuf has a field of unknown wire type ", tag & 7));
    }
  }
  // Whole numbers, packed or one.
  void numbers(std::vector<int64_t>& to) const {
    if (!packed) return to.push_back(static_cast<int64_t>(number));
    for (Wire w(bytes); !w.rest_.empty();) to.push_back(static_cast<int64_t>(w.varint()));
  }

 private:
  bool take(uint64_t n) {
    if (n > rest_.size()) fail(Code::kRuntime, "a plugin's protobuf is cut off");
    bytes = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return true;
  }
  uint64_t varint() {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) fail(Code::kRuntime, "a plugin's protobuf is cut off");
      auto b = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      v |= uint64_t{b & 0x7fu} << shift;
      if (!(b & 0x80)) break;
    }
    return v;
  }
  std::string_view rest_;
};

struct Fields {
  int64_t type = 0;
  std::vector<int64_t> dims, devices, iota, perm;
  bool replicate_last = false;
  std::vector<int64_t> last_dims;
};

Fields fields_of(std::string_view bytes) {
  Fields f;
  for (Wire w(bytes); w.next();) {
    if (w.field == 1) f.type = static_cast<int64_t>(w.number);
    if (w.field == 3) w.numbers(f.dims);
    if (w.field == 4) w.numbers(f.devices);
    if (w.field == 6) f.replicate_last = w.number != 0;
    if (w.field == 8) w.numbers(f.last_dims);
    if (w.field == 9) w.numbers(f.iota);
    if (w.field == 10) w.numbers(f.perm);
  }
  return f;
}

// 0..n-1 in a grid of `sizes`, walked with its axes in the order of `perm`.
std::vector<int64_t> walk_iota(const std::vector<int64_t>& sizes,
                               const std::vector<int64_t>& perm) {
  size_t rank = sizes.size();
  std::vector<int64_t> stride(rank, 1), out;
  for (size_t i = rank; i-- > 1;) stride[i - 1] = stride[i] * sizes[i];
  int64_t n = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0;
    for (size_t k = perm.size(); k-- > 0;) {
      auto axis = static_cast<size_t>(perm[k]);
      at += rest % sizes[axis] * stride[axis];
      rest /= sizes[axis];
    }
    out.push_back(at);
  }
  return out;
}

}  // namespace

Tiles read_op_sharding(std::string_view bytes, size_t partitions) {
  enum : int64_t { kReplicated = 0, kOther = 3 };
  Fields f = fields_of(bytes);
  Tiles t{{}, std::vector<int>(partitions), partitions};
  std::iota(t.order.begin(), t.order.end(), 0);
  if (f.type == kReplicated) return t;
  if (f.type != kOther)
    fail(Code::kRuntime, cat("the plugin gives a result a sharding of kind ", f.type,
                             ", which no tensor can have"));
  if (f.devices.empty()) f.devices = walk_iota(f.iota, f.perm);
  size_t behind = f.replicate_last ? 1 : f.last_dims.size();  // dims that are none of the tensor's
  if (f.devices.size() != partitions || f.dims.size() < behind)
    fail(Code::kRuntime,
         cat("the plugin's sharding is of ", f.devices.size(), " devices, expected ", partitions));
  t.replicas = 1;
  for (; behind > 0; --behind) {
    t.replicas *= static_cast<size_t>(f.dims.back());
    f.dims.pop_back();
  }
  t.counts = f.dims;
  t.order.assign(f.devices.begin(), f.devices.end());
  return canonical(std::move(t));
}

std::optional<std::vector<Tiles>> read_output_shardings(std::string_view program, size_t results,
                                                        size_t partitions) {
  constexpr unsigned kModule = 1, kOutput = 12, kType = 1, kParts = 5;
  constexpr uint64_t kTuple = 2;
  std::string_view module, output;
  for (Wire w(program); w.next();)
    if (w.field == kModule) module = w.bytes;
  for (Wire w(module); w.next();)
    if (w.field == kOutput) output = w.bytes;
  if (output.data() == nullptr) return std::nullopt;
  std::vector<Tiles> out;
  bool tuple = false;
  for (Wire w(output); w.next();) {
    if (w.field == kType) tuple = w.number == kTuple;
    if (w.field == kParts) out.push_back(read_op_sharding(w.bytes, partitions));
  }
  if (!tuple) out.assign(1, read_op_sharding(output, partitions));
  if (out.size() != results) return std::nullopt;
  return out;
}

}  // namespace tp::shard
