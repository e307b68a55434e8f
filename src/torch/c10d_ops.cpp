// c10d's ops on tensors of device xla: each asks its group's backend (process_group.cpp).
#include <torch/library.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace tp::torch_room {
namespace {

using at::Tensor;
using c10::intrusive_ptr;
using c10d::ProcessGroup;
using c10d::ReduceOp;
using c10d::Work;
using Tensors = std::vector<Tensor>;
using Group = intrusive_ptr<ProcessGroup>;
using Op = intrusive_ptr<ReduceOp>;
using Given = at::TensorList;
using Lists = std::vector<Tensors>;

[[noreturn]] void refuse_group(const std::string& name) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "c10d: this process group (", name,
      ") has no device xla: gloo and its like carry CPU tensors only\n  try: "
      "torch.distributed.init_process_group(\"xla\"), or \"cpu:gloo,xla:xla\"; or give single "
      "calls CPU tensors (x.cpu()) and move the results");
}

c10d::Backend& backend(const Group& g) {
  bool serves = false;
  for (const c10::Device& d : g->getDeviceTypes()) serves |= d.type() == c10::kXLA;
  if (!serves) refuse_group(g->getBackendName());
  return *g->getBackend(c10::DeviceType::XLA);
}

template <class O>
O options(int64_t timeout, bool async) {
  O o;
  o.timeout = std::chrono::milliseconds(timeout);
  o.asyncOp = async;
  return o;
}
template <class O>
O reducing(const Op& op, int64_t timeout, bool async) {
  O o = options<O>(timeout, async);
  o.reduceOp = *op;
  return o;
}
template <class O>
O rooted(int64_t root, int64_t timeout, bool async) {
  O o = options<O>(timeout, async);
  o.rootRank = root;
  return o;
}

intrusive_ptr<Work> send(Given t, const Group& g, int64_t to, int64_t tag) {
  Tensors v = t.vec();
  return backend(g).send(v, static_cast<int>(to), static_cast<int>(tag));
}
intrusive_ptr<Work> recv(Given t, const Group& g, int64_t from, int64_t tag) {
  Tensors v = t.vec();
  return backend(g).recv(v, static_cast<int>(from), static_cast<int>(tag));
}
intrusive_ptr<Work> recv_any(Given t, const Group& g, int64_t tag) {
  Tensors v = t.vec();
  return backend(g).recvAnysource(v, static_cast<int>(tag));
}
intrusive_ptr<Work> reduce(Given t, const Group& g, const Op& op, int64_t root, int64_t, bool async,
                           int64_t timeout) {
  Tensors v = t.vec();
  auto o = reducing<c10d::ReduceOptions>(op, timeout, async);
  o.rootRank = root;
  return backend(g).reduce(v, o);
}
std::tuple<Tensors, intrusive_ptr<Work>> broadcast(Given t, const Group& g, int64_t root, int64_t,
                                                   bool async, int64_t timeout) {
  Tensors v = t.vec();
  auto work = backend(g).broadcast(v, rooted<c10d::BroadcastOptions>(root, timeout, async));
  return {v, work};
}
std::tuple<Tensors, intrusive_ptr<Work>> allreduce(Given t, const Group& g, const Op& op,
                                                   const std::optional<Tensor>& sparse, bool async,
                                                   int64_t timeout) {
  TORCH_CHECK(!sparse, "all_reduce of sparse tensors: device xla has dense tensors only");
  Tensors v = t.vec();
  auto work = backend(g).allreduce(v, reducing<c10d::AllreduceOptions>(op, timeout, async));
  return {v, work};
}
intrusive_ptr<Work> allreduce_coalesced(Given t, const Group& g, const Op& op, bool async,
                                        int64_t timeout) {
  Tensors v = t.vec();
  return backend(g).allreduce_coalesced(
      v, reducing<c10d::AllreduceCoalescedOptions>(op, timeout, async));
}
std::tuple<Lists, intrusive_ptr<Work>> allgather(const Lists& out, Given in, const Group& g,
                                                 bool async, int64_t timeout) {
  Lists to = out;
  Tensors from = in.vec();
  auto work = backend(g).allgather(to, from, options<c10d::AllgatherOptions>(timeout, async));
  return {to, work};
}
std::tuple<Tensor, intrusive_ptr<Work>> allgather_base(Tensor& out, Tensor& in, const Group& g,
                                                       bool async, int64_t timeout) {
  auto work = backend(g)._allgather_base(out, in, options<c10d::AllgatherOptions>(timeout, async));
  return {out, work};
}
intrusive_ptr<Work> allgather_coalesced(const Lists& out, const Given& in, const Group& g,
                                        bool async) {
  Lists to = out;
  Tensors from = in.vec();
  return backend(g).allgather_coalesced(to, from, options<c10d::AllgatherOptions>(-1, async));
}
intrusive_ptr<Work> allgather_tensors(Given out, Given in, const Group& g, bool async) {
  Tensors to = out.vec(), from = in.vec();
  return backend(g).allgather_into_tensor_coalesced(to, from,
                                                    options<c10d::AllgatherOptions>(-1, async));
}
std::tuple<Tensors, intrusive_ptr<Work>> reduce_scatter(const Given& out, const Lists& in,
                                                        const Group& g, const Op& op, bool async,
                                                        int64_t timeout) {
  Tensors to = out.vec();
  Lists from = in;
  auto o = reducing<c10d::ReduceScatterOptions>(op, timeout, async);
  auto work = backend(g).reduce_scatter(to, from, o);
  return {to, work};
}
std::tuple<Tensor, intrusive_ptr<Work>> reduce_scatter_base(Tensor& out, Tensor& in, const Group& g,
                                                            const Op& op, bool async,
                                                            int64_t timeout) {
  auto o = reducing<c10d::ReduceScatterOptions>(op, timeout, async);
  auto work = backend(g)._reduce_scatter_base(out, in, o);
  return {out, work};
}
intrusive_ptr<Work> reduce_scatter_tensors(Given out, Given in, const Group& g, const Op& op,
                                           bool async, int64_t timeout) {
  Tensors to = out.vec(), from = in.vec();
  return backend(g).reduce_scatter_tensor_coalesced(
      to, from, reducing<c10d::ReduceScatterOptions>(op, timeout, async));
}
intrusive_ptr<Work> gather(const Lists& out, const Given& in, const Group& g, int64_t root,
                           bool async, int64_t timeout) {
  Lists to = out;
  Tensors from = in.vec();
  return backend(g).gather(to, from, rooted<c10d::GatherOptions>(root, timeout, async));
}
std::tuple<Tensors, intrusive_ptr<Work>> scatter(const Given& out, const Lists& in, const Group& g,
                                                 int64_t root, bool async, int64_t timeout) {
  Tensors to = out.vec();
  Lists from = in;
  auto work = backend(g).scatter(to, from, rooted<c10d::ScatterOptions>(root, timeout, async));
  return {to, work};
}
std::tuple<Tensors, intrusive_ptr<Work>> alltoall(const Given& out, const Given& in, const Group& g,
                                                  bool async, int64_t timeout) {
  Tensors to = out.vec(), from = in.vec();
  auto work = backend(g).alltoall(to, from, options<c10d::AllToAllOptions>(timeout, async));
  return {to, work};
}
intrusive_ptr<Work> alltoall_base(Tensor& out, Tensor& in, const Group& g,
                                  std::vector<int64_t> out_splits, std::vector<int64_t> in_splits,
                                  bool async, int64_t timeout) {
  return backend(g).alltoall_base(out, in, out_splits, in_splits,
                                  options<c10d::AllToAllOptions>(timeout, async));
}
intrusive_ptr<Work> barrier(Tensor, const Group& g, const std::vector<int64_t>& ids, bool async,
                            int64_t timeout) {
  auto o = options<c10d::BarrierOptions>(timeout, async);
  o.device_ids = ids;
  return backend(g).barrier(o);
}

void register_ops(torch::Library& m) {
  m.impl("send", &send);
  m.impl("recv_", &recv);
  m.impl("recv_any_source_", &recv_any);
  m.impl("reduce_", &reduce);
  m.impl("broadcast_", &broadcast);
  m.impl("allreduce_", &allreduce);
  m.impl("allreduce_coalesced_", &allreduce_coalesced);
  m.impl("allgather_", &allgather);
  m.impl("_allgather_base_", &allgather_base);
  m.impl("allgather_coalesced_", &allgather_coalesced);
  m.impl("allgather_into_tensor_coalesced_", &allgather_tensors);
  m.impl("reduce_scatter_", &reduce_scatter);
  m.impl("_reduce_scatter_base_", &reduce_scatter_base);
  m.impl("reduce_scatter_tensor_coalesced_", &reduce_scatter_tensors);
  m.impl("gather_", &gather);
  m.impl("scatter_", &scatter);
  m.impl("alltoall_", &alltoall);
  m.impl("alltoall_base_", &alltoall_base);
  m.impl("barrier", &barrier);
}

// DistributedDataParallel's statistics: times on the host, where recording happens.
class RecordingTimer final : public c10d::Timer {
 public:
  explicit RecordingTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto from = getTimestamp(start), to = getTimestamp(end);
    if (!from || !to || *to < *from) return std::nullopt;
    return *to - *from;
  }
};

}  // namespace
}  // namespace tp::torch_room

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kXLA, tp::torch_room::RecordingTimer);
}  // namespace c10d

TORCH_LIBRARY_IMPL(c10d, XLA, m) { tp::torch_room::register_ops(m); }
