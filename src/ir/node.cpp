// One malloc a node: [Node][operands][types][attr words]. Freed without recursion, so that a chain
// of a million nodes cannot overflow the stack.
#include "ir/node.h"

#include <cstring>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_local.h"

namespace tp::ir {
namespace {

std::atomic<uint64_t> g_sequence{1};

Hash128 attrs_hash(Hash128 h, std::span<const uint64_t> words) {
  for (uint64_t w : words) h = mix(h, w);
  return h;
}

}  // namespace

OpKind make_kind(const char* name, Role role) { return {name, hash_text(name), role}; }

const OpKind& data_kind() {
  static const OpKind k = make_kind("device_data", Role::kData);
  return k;
}
const OpKind& fill_kind() {
  // The hash is device_data's: which of the two a fill becomes is decided by the plan
  // (exec/plan.h).
  static const OpKind k = {"fill", data_kind().hash, Role::kFill};
  return k;
}
const OpKind& number_kind(bool wrapped) {
  static const OpKind plain = make_kind("number", Role::kNumber);
  static const OpKind python = make_kind("wrapped_number", Role::kNumber);
  return wrapped ? python : plain;
}

Value* Node::operands_begin() const {
  return reinterpret_cast<Value*>(const_cast<Node*>(this) + 1);
}
Type* Node::types_begin() const {
  return reinterpret_cast<Type*>(operands_begin() + num_operands_);
}
uint64_t* Node::words_begin() const {
  return reinterpret_cast<uint64_t*>(types_begin() + num_outputs_);
}

NodePtr allocate(const OpKind& kind, size_t operands, size_t outputs, size_t words) {
  size_t bytes =
      sizeof(Node) + operands * sizeof(Value) + outputs * sizeof(Type) + words * sizeof(uint64_t);
  void* p = std::malloc(bytes);
  if (!p) throw std::bad_alloc();
  Node* n = new (p) Node;
  n->num_operands_ = static_cast<uint16_t>(operands);
  n->num_outputs_ = static_cast<uint16_t>(outputs);
  n->num_words_ = static_cast<uint32_t>(words);
  n->kind_ = &kind;
  n->sequence_ = g_sequence.fetch_add(1, std::memory_order_relaxed);
  return NodePtr(n);
}

NodePtr Node::make(const OpKind& kind, std::span<const Value> operands, std::span<const Type> types,
                   std::span<const uint64_t> attrs, ShardingPtr sharding) {
  check(operands.size() < 65536 && types.size() < 65536,
        "a node has fewer than 65536 operands and outputs");
  NodePtr p = allocate(kind, operands.size(), types.size(), attrs.size());
  Node* n = p.get();
  n->node_hash_ = attrs_hash(kind.hash, attrs);
  Hash128 h = n->node_hash_;
  Value* to = n->operands_begin();
  for (const Value& v : operands) {
    new (to++) Value(v);
    h = mix(mix(h, v.node->dag_hash_), v.index);
  }
  n->dag_hash_ = h;
  std::uninitialized_copy(types.begin(), types.end(), n->types_begin());
  if (!attrs.empty()) std::memcpy(n->words_begin(), attrs.data(), attrs.size_bytes());
  n->shard(std::move(sharding));
  return p;
}

NodePtr Node::with_operands(std::span<const Value> operands) const {
  NodePtr p = make(kind(), operands, types(), attrs().words(), sharding_);
  p->payload_ = payload_;
  p->location_ = location_;
  return p;
}

NodePtr Node::make_data(Type type, std::shared_ptr<Leaf> payload, ShardingPtr sharding) {
  NodePtr p = allocate(data_kind(), 0, 1, 0);
  new (p->types_begin()) Type(type);
  p->node_hash_ = p->dag_hash_ = mix(data_kind().hash, type.hash());
  p->payload_ = std::move(payload);
  p->shard(std::move(sharding));
  return p;
}

NodePtr Node::make_fill(Type type, const Scalar& value) {
  NodePtr p = allocate(fill_kind(), 0, 1, 0);
  new (p->types_begin()) Type(type);
  p->node_hash_ = p->dag_hash_ = mix(fill_kind().hash, type.hash());
  p->scalar_ = value;
  return p;
}

NodePtr Node::make_number(const Scalar& value, bool wrapped) {
  static const Type kTypes[] = {scalar_type(DType::kPred), scalar_type(DType::kS64),
                                scalar_type(DType::kF64), scalar_type(DType::kC128)};
  const OpKind& kind = number_kind(wrapped);
  NodePtr p = allocate(kind, 0, 1, 0);
  Type type = kTypes[static_cast<int>(value.kind)];
  new (p->types_begin()) Type(type);
  p->node_hash_ = p->dag_hash_ = mix(kind.hash, type.hash());
  p->scalar_ = value;
  return p;
}

void Node::shard(ShardingPtr sharding) {
  if (!sharding) return;
  dag_hash_ = mix(dag_hash_, hash_text(*sharding));
  sharding_ = std::move(sharding);
}

void Node::destroy(Node* n) {
  // Doomed nodes wait in a list through their own walk scratch: nothing to allocate, and nothing
  // that a thread's exit could destroy before the last node goes.
  struct Doomed {
    Node* first;
    bool busy;
  };
  static thread_local constinit Doomed of_thread{nullptr, false};
  auto& [doomed, busy] = address_once(of_thread);
  n->mark = reinterpret_cast<uintptr_t>(doomed);
  doomed = n;
  if (busy) return;  // the loop below, further up this thread's stack, takes it
  busy = true;
  while (Node* d = doomed) {
    doomed = reinterpret_cast<Node*>(d->mark);
    std::destroy_n(d->operands_begin(), d->num_operands_);
    std::destroy_n(d->types_begin(), d->num_outputs_);
    d->~Node();
    std::free(static_cast<void*>(d));
  }
  busy = false;
}

std::string scalar_text(const Scalar& s) {
  switch (s.kind) {
    case Scalar::Kind::kBool:
      return s.integer ? "true" : "false";
    case Scalar::Kind::kInt:
      return cat(s.integer);
    case Scalar::Kind::kFloat:
      return cat(s.re);
    case Scalar::Kind::kComplex:
      return cat("(", s.re, ",", s.im, ")");
  }
  return "?";
}

}  // namespace tp::ir
