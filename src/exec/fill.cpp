#include "exec/fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/host_memory.h"
#include "client/sharded_data.h"

namespace tp::exec {
namespace {

using ir::DType;

template <class T>
void put(unsigned char* to, T v) {
  std::memcpy(to, &v, sizeof v);
}

uint16_t bf16_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0;  // one NaN, as c10::BFloat16
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

uint16_t f16_bits(float f) {
  _Float16 h = static_cast<_Float16>(f);
  uint16_t u;
  std::memcpy(&u, &h, 2);
  return u;
}

// A byte float of `mantissa` bits; beyond `largest` (a code) it is `above`.
uint8_t f8_bits(double v, int mantissa, int bias, int largest, int above) {
  int sign = std::signbit(v) ? 0x80 : 0;
  if (std::isnan(v)) return static_cast<uint8_t>(sign | 0x7f);
  double size = std::abs(v);
  if (size >= 1e6) return static_cast<uint8_t>(sign | above);
  int least = 1 - bias, e = size == 0 ? least : std::max(std::ilogb(size), least);
  // Whole steps, to even; a carry moves into the exponent. Below 2^least there is no hidden bit.
  auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, mantissa - e)));
  int code = ((e - least) << mantissa) + steps;
  return static_cast<uint8_t>(sign | (code > largest ? above : code));
}

// The bytes of one element.
void encode(const ir::Scalar& s, DType t, unsigned char* to) {
  bool whole = s.kind == ir::Scalar::Kind::kBool || s.kind == ir::Scalar::Kind::kInt;
  double r = s.real();
  int64_t i = whole ? s.integer : static_cast<int64_t>(r);
  switch (t) {
    case DType::kPred:
      return put<uint8_t>(to, whole ? i != 0 : r != 0 || s.im != 0);
    case DType::kU8:
      return put(to, static_cast<uint8_t>(i));
    case DType::kS8:
      return put(to, static_cast<int8_t>(i));
    case DType::kS16:
    case DType::kU16:
      return put(to, static_cast<uint16_t>(i));
    case DType::kS32:
    case DType::kU32:
      return put(to, static_cast<uint32_t>(i));
    case DType::kS64:
    case DType::kU64:
      return put(to, i);
    case DType::kF16:
      return put(to, f16_bits(static_cast<float>(r)));
    case DType::kBF16:
      return put(to, bf16_bits(static_cast<float>(r)));
    case DType::kF32:
      return put(to, static_cast<float>(r));
    case DType::kF64:
      return put(to, r);
    case DType::kC64:
      put(to, static_cast<float>(r));
      return put(to + 4, static_cast<float>(s.im));
    case DType::kC128:
      put(to, r);
      return put(to + 8, s.im);
    case DType::kF8E4M3FN:  // saturates, as in eager
      return put(to, f8_bits(static_cast<float>(r), 3, 7, 0x7e, 0x7e));
    case DType::kF8E5M2:
      return put(to, f8_bits(static_cast<float>(r), 2, 15, 0x7b, 0x7c));
    case DType::kCount:
      break;
  }
  fail(Code::kInternal, "fill: no such dtype");
}

void repeat(unsigned char* bytes, size_t element, size_t total) {
  size_t done = element;
  while (done < total) {  // doubling: each copy is one memcpy of what is there already
    size_t n = std::min(done, total - done);
    std::memcpy(bytes + done, bytes, n);
    done += n;
  }
}

}  // namespace

client::DataPtr upload_fill(client::ComputationClient& client, const ir::Node& n, int device,
                            const shard::Ref& sharding) {
  ir::Type whole = n.types()[0], type = whole;
  if (sharding) type = whole.with(shard::shard_dims(*sharding, whole.dims()));
  size_t element = static_cast<size_t>(ir::dtype_size(type.dtype()));
  size_t total = static_cast<size_t>(type.bytes());
  std::shared_ptr<void> owner = host_memory(static_cast<int64_t>(std::max(total, element)));
  auto* bytes = static_cast<unsigned char*>(owner.get());
  encode(n.scalar(), type.dtype(), bytes);
  repeat(bytes, element, total);
  if (!sharding) return client.transfer_to_device({bytes, type, owner}, device);
  return client::upload_alike(client, {bytes, type, owner}, sharding, whole, device);
}

const client::DataPtr& upload_once(client::ComputationClient& client, const ir::Node& n, int device,
                                   Uploads& done, const shard::Ref& sharding) {
  client::DataPtr& up = done[&n];
  if (!up) up = upload_fill(client, n, device, sharding);
  return up;
}

bool Numbers64::put(const ir::Scalar& s, ir::Feed feed, uint32_t index) {
  // Bits, not values: nan is itself, and -0.0 is not 0.0.
  auto set = [](auto& to, auto v) { return std::memcmp(&to, &v, sizeof v) != 0 && (to = v, true); };
  if (feed == ir::Feed::kInteger) return set(integers[index], s.integer);
  bool other = set(reals[index], s.re);
  return s.kind == ir::Scalar::Kind::kComplex ? set(reals[index + 1], s.im) || other : other;
}

namespace {

void put_numbers(const General& g, Numbers64& to) {
  to.integers.resize(to.integers.size() + g.inputs.integers);
  to.reals.resize(to.reals.size() + g.inputs.reals);
  for (size_t i = 0; i < g.values.size(); ++i) {
    if (g.inputs.place[i] < 0) continue;
    auto at = static_cast<size_t>(g.inputs.place[i]);
    if (g.values[i].real)
      to.reals[at] = std::bit_cast<double>(g.values[i].bits);
    else
      to.integers[at] = g.values[i].bits;
  }
}

}  // namespace

Numbers64 numbers_of(const Plan& plan) {
  const ir::Graph& g = plan.graph;
  Numbers64 numbers{std::vector<int64_t>(g.num_integers), std::vector<double>(g.num_reals)};
  if (plan.general) put_numbers(*plan.general, numbers);
  for (const ir::LeafUse& use : g.leaves)
    if (use.feed != ir::Feed::kBuffer) numbers.put(use.node->scalar(), use.feed, use.index);
  return numbers;
}

size_t count_arguments(const Plan& plan) {
  const ir::Graph& g = plan.graph;
  uint32_t integers = g.num_integers, reals = g.num_reals;
  if (plan.general) integers += plan.general->inputs.integers, reals += plan.general->inputs.reals;
  return g.num_buffers + (integers > 0) + (reals > 0);
}

namespace {

template <class T>
client::DataPtr upload_vector(client::ComputationClient& client, std::vector<T> v, DType dtype,
                              int device, const std::vector<int>& mesh) {
  auto owner = std::make_shared<std::vector<T>>(std::move(v));
  auto n = static_cast<int64_t>(owner->size());
  ir::Type type = ir::make_type(dtype, std::span(&n, 1));
  client::HostBuffer bytes{owner->data(), type, owner, false};
  if (mesh.empty()) return client.transfer_to_device(bytes, device);
  return client::upload_alike(client, bytes, shard::replicated_over(mesh), type, device);
}

}  // namespace

client::DataPtr upload_numbers(client::ComputationClient& client, std::vector<int64_t> v,
                               int device, const std::vector<int>& mesh) {
  return upload_vector(client, std::move(v), DType::kS64, device, mesh);
}
client::DataPtr upload_numbers(client::ComputationClient& client, std::vector<double> v, int device,
                               const std::vector<int>& mesh) {
  return upload_vector(client, std::move(v), DType::kF64, device, mesh);
}

}  // namespace tp::exec
