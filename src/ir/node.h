// Node: one recorded operation, immutable and hashed once it is made.
//   node_hash = op kind + attrs;   dag_hash = node_hash folded with every operand's (dag_hash,
//   output), and with the sharding's hash where the node has one
// An interior hash holds no shape; leaves hash op kind + type text, so shapes enter there and
// nowhere else.
//
// Reference counts are atomic: values may be shared and dropped by any thread. The walk scratch
// (`mark`, `slot`) belongs to whoever holds the graph lock (ir/graph.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/hash.h"
#include "ir/attrs.h"
#include "ir/location.h"
#include "ir/type.h"

namespace tp::ir {

enum class Role : uint8_t {
  kInterior,
  kData,    // DeviceData: a device buffer (payload)
  kNumber,  // a run-time scalar: value on the node, not in the hash
  kFill,    // a tensor of one value: hashes like kData, so that state born as zeros costs no second
            // program
};

// Identity of an operation; rows of the op table derive from it. Lives for the process.
struct OpKind {
  const char* name;
  Hash128 hash;
  Role role = Role::kInterior;
  bool host = false;  // its program calls back into this process (ops/host/host.h)
};
OpKind make_kind(const char* name, Role role = Role::kInterior);

const OpKind& data_kind();
const OpKind& fill_kind();
const OpKind& number_kind(bool wrapped);  // wrapped: a Python number (weakest in type promotion)

// What a leaf holds on to; client::Data is one.
class Leaf {
 public:
  virtual ~Leaf() = default;
};

// The value of a number or fill leaf.
struct Scalar {
  double re = 0, im = 0;
  int64_t integer = 0;
  enum class Kind : uint8_t { kBool, kInt, kFloat, kComplex } kind = Kind::kInt;
  double real() const {
    return kind == Kind::kInt || kind == Kind::kBool ? static_cast<double>(integer) : re;
  }
};

using ShardingPtr = std::shared_ptr<const std::string>;

class Node;

class NodePtr {
 public:
  NodePtr() = default;
  NodePtr(const NodePtr& o) : p_(o.p_) { retain(); }
  NodePtr(NodePtr&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  explicit NodePtr(Node* adopted) : p_(adopted) {}
  NodePtr& operator=(NodePtr o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~NodePtr() { release(); }
  Node* get() const { return p_; }
  Node* operator->() const { return p_; }
  Node& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const NodePtr& a, const NodePtr& b) { return a.p_ == b.p_; }
  static NodePtr share(Node* p);

 private:
  inline void retain();
  inline void release();
  Node* p_ = nullptr;
};

// One output of a node.
struct Value {
  NodePtr node;
  uint32_t index = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
  inline Type type() const;
  friend bool operator==(const Value&, const Value&) = default;
};

class Node {
 public:
  // An interior node. `operands` are copied (counts go up); `types` has one entry an output, null
  // for absent.
  static NodePtr make(const OpKind& kind, std::span<const Value> operands,
                      std::span<const Type> types, std::span<const uint64_t> attrs,
                      ShardingPtr sharding = nullptr);
  static NodePtr make_data(Type type, std::shared_ptr<Leaf> payload,
                           ShardingPtr sharding = nullptr);
  static NodePtr make_fill(Type type, const Scalar& value);
  // dtype is the scalar's own: pred, s64, f64 or c128.
  static NodePtr make_number(const Scalar& value, bool wrapped);

  // The same computation of other operands: kind, types, attributes, regions, sharding and line of
  // this interior node.
  NodePtr with_operands(std::span<const Value> operands) const;

  const OpKind& kind() const { return *kind_; }
  Role role() const { return kind_->role; }
  const Hash128& node_hash() const { return node_hash_; }
  const Hash128& dag_hash() const { return dag_hash_; }
  std::span<const Value> operands() const { return {operands_begin(), num_operands_}; }
  std::span<const Type> types() const { return {types_begin(), num_outputs_}; }
  AttrsView attrs() const { return AttrsView({words_begin(), num_words_}); }
  const std::shared_ptr<Leaf>& payload() const { return payload_; }
  const Scalar& scalar() const { return scalar_; }
  uint32_t references() const { return refs_.load(std::memory_order_acquire); }
  uint64_t sequence() const { return sequence_; }  // creation order in the process
  // The user's line, for people: no part of any hash. Set right after the node is made, or never.
  LocationId location() const { return location_; }
  void set_location(LocationId id) { location_ = id; }

  // As the module's text has it; null where none was asked for.
  const ShardingPtr& sharding() const { return sharding_; }

  mutable uint64_t mark = 0;  // walk scratch, see above
  mutable uint32_t slot = 0;

 private:
  friend class NodePtr;
  friend NodePtr allocate(const OpKind&, size_t, size_t, size_t);
  void shard(
      ShardingPtr sharding);  // right after the node is made, once the hashes without it are made
  Node() = default;
  ~Node() = default;
  static void destroy(Node* n);
  Value* operands_begin() const;
  Type* types_begin() const;
  uint64_t* words_begin() const;

  std::atomic<uint32_t> refs_{1};
  uint16_t num_operands_ = 0, num_outputs_ = 0;
  uint32_t num_words_ = 0;
  LocationId location_ = 0;
  const OpKind* kind_ = nullptr;
  Hash128 node_hash_, dag_hash_;
  uint64_t sequence_ = 0;
  std::shared_ptr<Leaf> payload_;
  Scalar scalar_;
  ShardingPtr sharding_;
};

inline void NodePtr::retain() {
  if (p_) p_->refs_.fetch_add(1, std::memory_order_relaxed);
}
inline void NodePtr::release() {
  if (p_ && p_->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) Node::destroy(p_);
}
inline NodePtr NodePtr::share(Node* p) {
  NodePtr r(p);
  r.retain();
  return r;
}
inline Type Value::type() const { return node->types()[index]; }

std::string scalar_text(const Scalar& s);

}  // namespace tp::ir
