// Shardings of tensors: how a tensor is put on a mesh, and where it is. Any thread; callers may
// hold the GIL.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "shard/boxes.h"
#include "shard/sharding.h"
#include "torch/tensor.h"

namespace tp::torch_room {

// Puts the tensor on the sharding's devices, in place. Bytes on the host are cut before they go up;
// bytes on one device are cut by way of the host; bytes that are sharded already move by a program
// (counted: "Reshard"); a pending value gets a constraint, which a later value does not inherit.
void mark_sharding(const at::Tensor& t, const shard::Ref& sharding);
// The value with a constraint, as a new tensor.
at::Tensor constrained(const at::Tensor& t, const shard::Ref& sharding);
// The value computed, its bytes on the mesh as `sharding` says, in a tensor of its own.
at::Tensor on_mesh(const at::Tensor& t, const shard::Ref& sharding);
// The same values, dense: none of them before all are there (StableHLO's optimization_barrier).
std::vector<at::Tensor> optimization_barrier(const std::vector<at::Tensor>& tensors);

// Inside a manual region: what devices tell each other (ops/view/manual_collective.h).
struct ManualCollective {
  std::string kind;
  std::vector<int64_t> shape, parameters, groups;
  int64_t group_size = 1;
  bool replicas = false;  // the region is a program of replicas, not of partitions
};
at::Tensor manual_collective(const at::Tensor& t, const ManualCollective& c);

// Where a tensor is (`real`), or where it was asked to be. No sharding: on its one device, or
// wherever the program that computes it puts it.
struct Whereabouts {
  shard::Ref sharding;
  bool real = false;
};
Whereabouts sharding_of(const at::Tensor& t);

// What a device holds of a tensor, as a CPU tensor of its own. A pending value is computed first.
struct Shard {
  int device;
  shard::Box box;
  size_t replica;  // 0 for the first holder of this part
  at::Tensor data;
};
// `only`: that partition's alone; -1: all.
std::vector<Shard> local_shards(const at::Tensor& t, int only = -1);
// Makes these parts the tensor's value: CPU tensors by partition of its sharding, which stays. They
// are taken over: nobody may write them any more.
void put_shards(const at::Tensor& t, const std::vector<at::Tensor>& parts);

// Tensors whose buffers are on meshes, by the line that made them.
struct ShardedLine {
  ir::LocationId where;
  ir::Type type;
  shard::Ref sharding;
  int64_t count;
};
std::vector<ShardedLine> sharded_lines();

// The sharding that a tensor made like t starts with; null: none.
shard::Ref layout_like(const Impl& t);
void inherit_layout(const at::Tensor& fresh, const at::Tensor& like);

}  // namespace tp::torch_room
