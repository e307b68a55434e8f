#include "torch/process_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <functional>
#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "base/text.h"
#include "client/registry.h"
#include "torch/errors.h"
#include "torch/runtime.h"
#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

using at::Tensor;
using c10::intrusive_ptr;
using c10d::OpType;
using c10d::ProcessGroup;
using c10d::ReduceOp;
using c10d::Work;
using Tensors = std::vector<Tensor>;

// --- what a call gives ---------------------------------------------------------------------------

// Of a recorded collective: complete at once, since whatever uses its result is recorded after it.
class Recorded final : public Work {
 public:
  Recorded(int rank, OpType type, Tensors results)
      : Work(rank, type), results_(std::move(results)) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  Tensors result() override { return results_; }
  intrusive_ptr<c10::ivalue::Future> getFuture() override {
    // Of no device: a future of xla's would record an event, which launches what is pending.
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>());
    future->markCompleted(c10::IValue(results_),
                          std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>());
    return future;
  }

 private:
  Tensors results_;
};

// A receive is recorded when it is waited for: two ranks may ask to receive before they send.
class Receive final : public Work {
 public:
  Receive(int rank, OpType type, std::function<void()> record)
      : Work(rank, type), record_(std::move(record)) {}
  bool isCompleted() override { return wait(kNoTimeout); }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override {
    if (auto f = std::exchange(record_, {})) f();
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }

 private:
  std::function<void()> record_;
};

// --- the backend ---------------------------------------------------------------------------------

bool on_cpu(const Tensors& t) { return t.empty() || t[0].is_cpu(); }

Tensor only(const Tensors& t, const char* what) {
  TORCH_CHECK_VALUE(t.size() == 1, what, ": one tensor a rank, found ", t.size());
  return t[0];
}

std::vector<int64_t> with_front(int64_t n, at::IntArrayRef sizes) {
  std::vector<int64_t> s{n};
  s.insert(s.end(), sizes.begin(), sizes.end());
  return s;
}

void check_reduction(ReduceOp::RedOpType op, const Tensor& t) {
  bool bits = op == ReduceOp::BAND || op == ReduceOp::BOR || op == ReduceOp::BXOR;
  TORCH_CHECK(!bits || at::isIntegralType(t.scalar_type(), true),
              "bitwise reductions need integers, found ", t.scalar_type());
  TORCH_CHECK(op != ReduceOp::AVG || t.scalar_type() != at::kBool,
              "Cannot use ReduceOp.AVG with Boolean inputs");
  TORCH_CHECK(!t.is_complex() || c10d::isComplexViewAsRealAllowed(op),
              "this reduction is not defined for complex tensors");
}

// What the engine sums instead; finish() makes the result of it.
class Reduction {
 public:
  Reduction(const ReduceOp& op, int size) : op_(op), size_(size) {}
  int64_t engine_op() const {
    bool sums = op_.op_ == ReduceOp::AVG || op_.op_ == ReduceOp::PREMUL_SUM;
    return sums ? ReduceOp::SUM : op_.op_;
  }
  Tensor prepare(const Tensor& t) const {
    check_reduction(op_.op_, t);
    if (op_.op_ != ReduceOp::PREMUL_SUM) return t;
    auto& by = static_cast<const c10d::PreMulSumSupplement&>(*op_.supplement_);
    return by.tensor_factor.defined() ? t.mul(by.tensor_factor) : t.mul(by.double_factor);
  }
  Tensor finish(const Tensor& t) const {
    if (op_.op_ != ReduceOp::AVG) return t;
    return at::isIntegralType(t.scalar_type(), false) ? t.div(size_, "trunc") : t.div(size_);
  }

 private:
  const ReduceOp& op_;
  int size_;
};

class XlaBackend final : public c10d::Backend {
 public:
  explicit XlaBackend(CollectiveGroup group)
      : Backend(group.rank, group.size), group_(std::move(group)) {
    publish_group(group_);
  }
  ~XlaBackend() override { release_group(group_.name); }

  const std::string getBackendName() const override { return "xla"; }
  intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>("xla", group_.timeout);
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    group_.timeout = timeout;
    group_.engine->setTimeout(timeout);
    publish_group(group_);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }

  intrusive_ptr<Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& o) override {
    if (on_cpu(tensors)) return engine().broadcast(tensors, o);
    Tensor t = only(tensors, "broadcast");
    put(t, call("broadcast", t, t.sizes(), {o.rootRank}));
    return done(OpType::BROADCAST, tensors);
  }

  intrusive_ptr<Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& o) override {
    if (on_cpu(tensors)) return engine().allreduce(tensors, o);
    Tensor t = only(tensors, "all_reduce");
    put(t, reduced("all_reduce", t, t.sizes(), o.reduceOp));
    return done(OpType::ALLREDUCE, tensors);
  }

  // One collective a dtype.
  intrusive_ptr<Work> allreduce_coalesced(Tensors& tensors,
                                          const c10d::AllreduceCoalescedOptions& o) override {
    if (on_cpu(tensors)) return engine().allreduce_coalesced(tensors, o);
    std::map<at::ScalarType, Tensors> by_dtype;
    for (const Tensor& t : tensors) by_dtype[t.scalar_type()].push_back(t);
    for (auto& [dtype, some] : by_dtype) {
      Tensors flat;
      std::vector<int64_t> sizes;
      for (const Tensor& t : some) flat.push_back(t.reshape(-1)), sizes.push_back(t.numel());
      Tensor all = at::cat(flat);
      Tensors parts = reduced("all_reduce", all, all.sizes(), o.reduceOp).split_with_sizes(sizes);
      for (size_t i = 0; i < some.size(); ++i) put(some[i], parts[i]);
    }
    return done(OpType::ALLREDUCE_COALESCED, tensors);
  }

  intrusive_ptr<Work> reduce(Tensors& tensors, const c10d::ReduceOptions& o) override {
    if (on_cpu(tensors)) return engine().reduce(tensors, o);
    Tensor t = only(tensors, "reduce");
    Reduction r(o.reduceOp, getSize());
    Tensor out = call("reduce", r.prepare(t), t.sizes(), {r.engine_op(), o.rootRank});
    if (getRank() == o.rootRank) put(t, r.finish(out));
    return done(OpType::REDUCE, tensors);
  }

  intrusive_ptr<Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& o) override {
    if (on_cpu(inputs)) return engine().allgather(outputs, inputs, o);
    Tensor in = only(inputs, "all_gather");
    spread(outputs.at(0), call("all_gather", in, with_front(getSize(), in.sizes()), {}));
    return done(OpType::ALLGATHER, outputs.at(0));
  }
  intrusive_ptr<Work> _allgather_base(Tensor& out, Tensor& in,
                                      const c10d::AllgatherOptions& o) override {
    if (in.is_cpu()) return engine()._allgather_base(out, in, o);
    TORCH_CHECK_VALUE(out.numel() == in.numel() * getSize(),
                      "output tensor size must be equal to world_size times input tensor size");
    put(out, call("all_gather", in, with_front(getSize(), in.sizes()), {}).reshape(out.sizes()));
    return done(OpType::_ALLGATHER_BASE, {out});
  }
  intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& o) override {
    if (on_cpu(inputs)) return engine().allgather_coalesced(outputs, inputs, o);
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensors each;  // outputs[rank][i]
      for (Tensors& of_rank : outputs) each.push_back(of_rank.at(i));
      spread(each, call("all_gather", inputs[i], with_front(getSize(), inputs[i].sizes()), {}));
    }
    return done(OpType::ALLGATHER_COALESCED, inputs);
  }
  intrusive_ptr<Work> allgather_into_tensor_coalesced(Tensors& outs, Tensors& ins,
                                                      const c10d::AllgatherOptions& o) override {
    if (on_cpu(ins)) return engine().allgather_into_tensor_coalesced(outs, ins, o);
    for (size_t i = 0; i < ins.size(); ++i) _allgather_base(outs.at(i), ins[i], o);
    return done(OpType::COALESCED, outs);
  }

  intrusive_ptr<Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::GatherOptions& o) override {
    if (on_cpu(inputs)) return engine().gather(outputs, inputs, o);
    Tensor in = only(inputs, "gather");
    bool root = getRank() == o.rootRank;
    auto shape = root ? with_front(getSize(), in.sizes()) : std::vector<int64_t>{0};
    Tensor out = call("gather", in, shape, {o.rootRank});
    if (root) spread(outputs.at(0), out);
    return done(OpType::GATHER, root ? outputs.at(0) : Tensors{});
  }

  intrusive_ptr<Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ScatterOptions& o) override {
    if (on_cpu(outputs)) return engine().scatter(outputs, inputs, o);
    Tensor out = only(outputs, "scatter");
    bool root = getRank() == o.rootRank;
    Tensor in = root ? at::stack(inputs.at(0)) : at::empty({0}, out.options());
    put(out, call("scatter", in, out.sizes(), {o.rootRank}));
    return done(OpType::SCATTER, outputs);
  }

  intrusive_ptr<Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ReduceScatterOptions& o) override {
    if (on_cpu(outputs)) return engine().reduce_scatter(outputs, inputs, o);
    Tensor out = only(outputs, "reduce_scatter");
    put(out, reduced("reduce_scatter", at::stack(inputs.at(0)), out.sizes(), o.reduceOp));
    return done(OpType::REDUCE_SCATTER, outputs);
  }
  intrusive_ptr<Work> _reduce_scatter_base(Tensor& out, Tensor& in,
                                           const c10d::ReduceScatterOptions& o) override {
    if (in.is_cpu()) return engine()._reduce_scatter_base(out, in, o);
    TORCH_CHECK_VALUE(in.numel() == out.numel() * getSize(),
                      "input tensor must be the same size as output size times world size");
    put(out, reduced("reduce_scatter", in, out.sizes(), o.reduceOp));
    return done(OpType::_REDUCE_SCATTER_BASE, {out});
  }
  intrusive_ptr<Work> reduce_scatter_tensor_coalesced(
      Tensors& outs, Tensors& ins, const c10d::ReduceScatterOptions& o) override {
    if (on_cpu(ins)) return engine().reduce_scatter_tensor_coalesced(outs, ins, o);
    for (size_t i = 0; i < ins.size(); ++i) _reduce_scatter_base(outs.at(i), ins[i], o);
    return done(OpType::COALESCED, outs);
  }

  intrusive_ptr<Work> alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& out_splits,
                                    std::vector<int64_t>& in_splits,
                                    const c10d::AllToAllOptions& o) override {
    if (in.is_cpu()) return engine().alltoall_base(out, in, out_splits, in_splits, o);
    std::vector<int64_t> rows = splits("input", in, in_splits);
    std::vector<int64_t> got = splits("output", out, out_splits);
    rows.insert(rows.end(), got.begin(), got.end());
    put(out, call("all_to_all", in, out.sizes(), rows));
    return done(OpType::ALLTOALL_BASE, {out});
  }
  // Flat, one piece a rank.
  intrusive_ptr<Work> alltoall(Tensors& outs, Tensors& ins,
                               const c10d::AllToAllOptions& o) override {
    if (on_cpu(ins)) return engine().alltoall(outs, ins, o);
    Tensors flat;
    std::vector<int64_t> rows, got;
    for (const Tensor& t : ins) flat.push_back(t.reshape(-1)), rows.push_back(t.numel());
    for (const Tensor& t : outs) got.push_back(t.numel());
    rows.insert(rows.end(), got.begin(), got.end());
    int64_t all = std::accumulate(got.begin(), got.end(), int64_t{0});
    Tensors parts = call("all_to_all", at::cat(flat), {all}, rows).split_with_sizes(got);
    for (size_t i = 0; i < outs.size(); ++i) put(outs[i], parts[i].reshape(outs[i].sizes()));
    return done(OpType::ALLTOALL, outs);
  }

  intrusive_ptr<Work> send(Tensors& tensors, int to, int tag) override {
    if (on_cpu(tensors)) return engine().send(tensors, to, tag);
    call("send", only(tensors, "send"), {0}, {to, tag});
    return done(OpType::SEND, {});
  }
  intrusive_ptr<Work> recv(Tensors& tensors, int from, int tag) override {
    if (on_cpu(tensors)) return engine().recv(tensors, from, tag);
    return receive(tensors, from, tag);
  }
  intrusive_ptr<Work> recvAnysource(Tensors& tensors, int tag) override {
    if (on_cpu(tensors)) return engine().recvAnysource(tensors, tag);
    return receive(tensors, -1, tag);
  }

  // Ranks leave once all have come and done what they recorded before.
  intrusive_ptr<Work> barrier(const c10d::BarrierOptions& o) override {
    finish_work();
    GilRelease no_gil;
    return engine().barrier(o);
  }
  void monitoredBarrier(const c10d::BarrierOptions& o, bool all) override {
    finish_work();
    GilRelease no_gil;
    engine().monitoredBarrier(o, all);
  }
  void abort() override { group_.engine->abort(); }
  void shutdown() override { group_.engine->shutdown(); }

 private:
  // For a call that blocks: collectives that were recorded before it have to be on their way.
  c10d::Backend& engine() {
    if (collectives_pending()) {
      GilRelease no_gil;
      sync_all();
    }
    return *group_.engine;
  }

  static void finish_work() {
    GilRelease no_gil;
    sync_all();
    wait_all();
  }

  Tensor call(std::string kind, const Tensor& in, at::IntArrayRef shape,
              std::vector<int64_t> parameters) {
    CollectiveCall c{std::move(kind), shape.vec(), std::move(parameters)};
    return record_collective(group_, c, in);
  }
  Tensor reduced(std::string kind, const Tensor& in, at::IntArrayRef shape, const ReduceOp& op) {
    Reduction r(op, getSize());
    return r.finish(call(std::move(kind), r.prepare(in), shape, {r.engine_op()}));
  }
  static void put(const Tensor& to, const Tensor& from) { to.copy_(from.reshape(to.sizes())); }
  void spread(const Tensors& to, const Tensor& from) {
    TORCH_CHECK_VALUE(to.size() == static_cast<size_t>(getSize()),
                      "one output tensor a rank: ", getSize(), " expected, found ", to.size());
    for (size_t i = 0; i < to.size(); ++i) put(to[i], from.select(0, static_cast<int64_t>(i)));
  }
  intrusive_ptr<Work> done(OpType type, Tensors results) {
    return c10::make_intrusive<Recorded>(getRank(), type, std::move(results));
  }
  intrusive_ptr<Work> receive(const Tensors& tensors, int64_t from, int64_t tag) {
    Tensor t = only(tensors, "recv");
    // The group may be gone from Python when the work is waited for.
    auto self = c10::intrusive_ptr<XlaBackend>::reclaim_copy(this);
    auto record = [self, t, from, tag] {
      at::AutoDispatchBelowADInplaceOrView below;
      put(t, self->call("recv", at::empty({0}, t.options()), t.sizes(), {from, tag}));
    };
    return c10::make_intrusive<Receive>(getRank(), OpType::RECV, record);
  }
  std::vector<int64_t> splits(const char* what, const Tensor& t, std::vector<int64_t> given) {
    int64_t rows = t.dim() ? t.size(0) : 1;
    if (given.empty()) {
      TORCH_CHECK(rows % getSize() == 0,
                  "Tensor's dim 0 does not divide equally across group size");
      return std::vector<int64_t>(static_cast<size_t>(getSize()), rows / getSize());
    }
    TORCH_CHECK(given.size() == static_cast<size_t>(getSize()),
                "Number of tensor splits not equal to group size");
    int64_t sum = std::accumulate(given.begin(), given.end(), int64_t{0});
    TORCH_CHECK(sum == rows, "Split sizes doesn't match total dim 0 size of ", what);
    return given;
  }

  CollectiveGroup group_;
};

// torch.distributed's store for plugins, which call it on threads of their own (without the GIL:
// a C++ store needs none).
class PluginStore final : public pjrt::KeyValueStore {
 public:
  explicit PluginStore(intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    store_->wait({key}, timeout);
    return text(store_->get(key));
  }
  std::optional<std::string> try_get(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;
    return text(store_->get(key));
  }
  void put(const std::string& key, const std::string& value) override {
    store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  }

 private:
  static std::string text(const std::vector<uint8_t>& v) { return {v.begin(), v.end()}; }
  intrusive_ptr<c10d::Store> store_;
};

}  // namespace

void set_processes(int rank, int size, intrusive_ptr<c10d::Store> store) {
  converting([&] { client::set_processes({rank, size, std::make_shared<PluginStore>(store)}); },
             [] { return std::string("init_process_group"); });
}

intrusive_ptr<c10d::Backend> make_process_group(CollectiveGroup group) {
  return c10::make_intrusive<XlaBackend>(std::move(group));
}

}  // namespace tp::torch_room
