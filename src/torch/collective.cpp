#include "torch/collective.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/lru.h"
#include "base/text.h"
#include "probe/probe.h"
#include "torch/errors.h"
#include "torch/runtime.h"
#include "torch/schema.h"
#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

using c10d::ReduceOp;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a rank waits before it says in the store where it stands, and looks where others do.
constexpr milliseconds kPatience{1000};

// --- groups --------------------------------------------------------------------------------------

struct Group {
  CollectiveGroup is;
  std::mutex mu;  // one collective of a group at a time
  uint64_t number = 0;
  std::set<std::string> compared;  // calls of which all ranks are known to make the same
  std::string failure;  // of the first collective that failed: ranks have lost each other
};
using GroupPtr = std::shared_ptr<Group>;

struct Groups {
  std::mutex mu;
  std::map<std::string, GroupPtr, std::less<>> by_name;
};
Groups& groups() {
  static auto* g = new Groups;
  return *g;
}

GroupPtr find_group(std::string_view name) {
  Groups& g = groups();
  std::lock_guard lock(g.mu);
  auto it = g.by_name.find(name);
  TORCH_CHECK(it != g.by_name.end(), "the process group ", name,
              " was destroyed before this program ran\n  try: torch_pjrt.sync(wait=True) before "
              "torch.distributed.destroy_process_group()");
  return it->second;
}

// Where a call of this text was last recorded, for messages.
struct Lines {
  std::mutex mu;
  LruMap<std::string, std::string> of{1024};
};
Lines& lines() {
  static auto* l = new Lines;
  return *l;
}

std::string type_text(const at::Tensor& t) {
  return ir::make_type(to_dtype(t.scalar_type()), span_of(t.sizes())).text();
}

// What has to be equal on all ranks of a group; of all_to_all and send/recv the sizes are not.
std::string call_text(const std::string& kind, const at::Tensor& input, at::IntArrayRef shape,
                      at::IntArrayRef parameters) {
  if (kind == "all_to_all" || kind == "send" || kind == "recv")
    return cat(kind, " of ", ir::dtype_name(to_dtype(input.scalar_type())));
  bool rooted = kind == "gather" || kind == "scatter";
  std::string text = cat(kind, rooted ? cat(" of ", ir::dtype_name(to_dtype(input.scalar_type())))
                                      : cat(" of ", type_text(input)));
  if (!parameters.empty()) text += cat(" (", join(parameters, ", "), ")");
  if (!rooted && !shape.empty() && kind != "all_gather" && shape != input.sizes())
    text += cat(" to [", join(shape, ","), "]");
  return text;
}

std::string line_of(const std::string& text) {
  std::lock_guard lock(lines().mu);
  auto* line = lines().of.get(text);
  return line && !line->empty() ? cat(" at ", *line) : std::string();
}

// --- where the ranks stand -----------------------------------------------------------------------

class Standing {
 public:
  Standing(Group& g, std::string text) : g_(g), text_(std::move(text)) {}

  bool is_new() const { return !g_.compared.contains(text_); }

  // Says in the store what this rank does as its `number`-th collective.
  void say() {
    if (said_ || !g_.is.store) return;
    said_ = true;
    std::string what = cat(text_, "\n", line_of(text_));
    g_.is.store->set(key(g_.is.rank), std::vector<uint8_t>(what.begin(), what.end()));
  }

  // Throws where another rank is known to do something else.
  void compare() {
    for (int r = 0; g_.is.store && r < g_.is.size; ++r)
      if (r != g_.is.rank) compare_with(r);
  }

  // Names ranks that have not said anything about this collective.
  std::string silent() {
    std::vector<std::string> out;
    for (int r = 0; g_.is.store && r < g_.is.size; ++r)
      if (r != g_.is.rank && !g_.is.store->check({key(r)})) out.push_back(std::to_string(r));
    return join(out, ", ");
  }

  void agreed() {
    if (g_.compared.size() < 4096) g_.compared.insert(text_);
  }

  std::string where() const {
    return cat("rank ", g_.is.rank, " of ", g_.is.size, ", collective ", g_.number, " of group ",
               g_.is.name, ", ", text_, line_of(text_));
  }

 private:
  std::string key(int rank) const { return cat("torch_pjrt/", g_.number, "/", rank); }

  void compare_with(int rank) {
    if (!g_.is.store->check({key(rank)})) return;
    std::vector<uint8_t> raw = g_.is.store->get(key(rank));
    std::string said(raw.begin(), raw.end());
    std::string theirs = said.substr(0, said.find('\n'));
    if (theirs == text_) return;
    TORCH_CHECK(false, "the ranks of group ", g_.is.name, " do different things as collective ",
                g_.number, ": rank ", g_.is.rank, " ", text_, line_of(text_), ", rank ", rank, " ",
                theirs, said.substr(said.find('\n') + 1),
                "\n  try: the same collectives in the same order, with the same shapes and dtypes, "
                "on every rank");
  }

  Group& g_;
  std::string text_;
  bool said_ = false;
};

// Waits for the engine, and looks at the other ranks where that takes long.
void await(c10d::Work& work, Standing& at) {
  bool noted = false;
  for (auto begin = Clock::now();;) {
    try {
      work.wait(kPatience);
      return;
    } catch (const std::exception& e) {
      if (work.isCompleted()) throw;
    }
    at.say();
    at.compare();
    if (!noted && Clock::now() - begin > 3 * kPatience) {
      noted = true;
      std::string silent = at.silent();
      probe::say(0, cat("waiting for other ranks: ", at.where(),
                        silent.empty() ? "" : cat("; not there yet: rank ", silent)));
    }
  }
}

// --- the kernel ----------------------------------------------------------------------------------

at::Tensor bytes_of(const at::Tensor& t) {
  return at::from_blob(t.mutable_data_ptr(), {static_cast<int64_t>(t.nbytes())}, at::kByte);
}

// A dtype that the engine reduces in, equal in value for every sum, product, least and greatest.
at::ScalarType reduced_in(at::ScalarType t) {
  switch (t) {
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
    case at::kUInt64:
      return at::kLong;
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e5m2:
      return at::kFloat;
    case at::kBool:
      return at::kByte;
    default:
      return t;
  }
}

// Of bools: any for a sum, all for a product.
ReduceOp::RedOpType of_bools(ReduceOp::RedOpType op) {
  if (op == ReduceOp::SUM || op == ReduceOp::BOR) return ReduceOp::MAX;
  if (op == ReduceOp::PRODUCT || op == ReduceOp::BAND) return ReduceOp::MIN;
  return op;
}

class Engine {
 public:
  Engine(Group& g, Standing& at) : g_(g), at_(at) {}

  void run(const std::string& kind, const at::Tensor& in, at::Tensor& out, at::IntArrayRef p) {
    if (kind == "all_reduce") return all_reduce(in, out, p[0]);
    if (kind == "reduce") return reduce(in, out, p[0], p[1]);
    if (kind == "reduce_scatter") return reduce_scatter(in, out, p[0]);
    if (kind == "all_to_all") return all_to_all(in, out, p);
    if (in.nbytes() == 0 && out.nbytes() == 0) return;
    if (kind == "broadcast") return broadcast(in, out, p[0]);
    if (kind == "all_gather") return all_gather(in, out);
    if (kind == "gather") return gather(in, out, p[0]);
    if (kind == "scatter") return scatter(in, out, p[0]);
    if (kind == "send") return send(in, p[0], p[1]);
    if (kind == "recv") return recv(out, p[0], p[1]);
    TORCH_INTERNAL_ASSERT(false, "no collective ", kind);
  }

 private:
  c10d::Backend& engine() { return *g_.is.engine; }
  void wait(const c10::intrusive_ptr<c10d::Work>& work) {
    if (work) await(*work, at_);
  }
  std::vector<at::Tensor> rows(const at::Tensor& t) {  // bytes, one row a rank
    at::Tensor flat = bytes_of(t);
    int64_t each = flat.numel() / g_.is.size;
    std::vector<at::Tensor> out;
    for (int64_t r = 0; r < g_.is.size; ++r) out.push_back(flat.narrow(0, r * each, each));
    return out;
  }

  // Calls f(tensor in a dtype of the engine, operation); the tensor's new value goes into `out`.
  template <class F>
  void reduced(const at::Tensor& in, at::Tensor& out, int64_t op, const F& f) {
    if (in.numel() == 0) return;
    bool complex = in.is_complex(), boolean = in.scalar_type() == at::kBool;
    at::Tensor plain = complex ? at::view_as_real(in) : in;
    at::Tensor t = plain.reshape(-1).to(reduced_in(plain.scalar_type()), false, true);
    auto operation = static_cast<ReduceOp::RedOpType>(op);
    f(t, ReduceOp(boolean ? of_bools(operation) : operation));
    at::Tensor to = complex ? at::view_as_real(out) : out;
    to.copy_((boolean ? t.ne(0) : t).slice(0, 0, to.numel()).reshape(to.sizes()));
  }

  void all_reduce(const at::Tensor& in, at::Tensor& out, int64_t op) {
    reduced(in, out, op, [&](at::Tensor& t, ReduceOp operation) {
      c10d::AllreduceOptions o;
      o.reduceOp = std::move(operation);
      std::vector<at::Tensor> v{t};
      wait(engine().allreduce(v, o));
    });
  }
  // Ranks other than the root keep what they had.
  void reduce(const at::Tensor& in, at::Tensor& out, int64_t op, int64_t root) {
    reduced(in, out, op, [&](at::Tensor& t, ReduceOp operation) {
      c10d::ReduceOptions o;
      o.reduceOp = std::move(operation);
      o.rootRank = root;
      std::vector<at::Tensor> v{t};
      wait(engine().reduce(v, o));
    });
    if (g_.is.rank != root) out.copy_(in.reshape(out.sizes()));
  }
  // The engine has its own only for some dtypes and sizes: each rank takes its part of the whole.
  void reduce_scatter(const at::Tensor& in, at::Tensor& out, int64_t op) {
    reduced(in, out, op, [&](at::Tensor& t, ReduceOp operation) {
      c10d::AllreduceOptions o;
      o.reduceOp = std::move(operation);
      std::vector<at::Tensor> v{t};
      wait(engine().allreduce(v, o));
      int64_t each = t.numel() / g_.is.size;
      t = t.narrow(0, g_.is.rank * each, each);
    });
  }
  void broadcast(const at::Tensor& in, at::Tensor& out, int64_t root) {
    if (g_.is.rank == root) out.copy_(in);
    c10d::BroadcastOptions o;
    o.rootRank = root;
    std::vector<at::Tensor> v{bytes_of(out)};
    wait(engine().broadcast(v, o));
  }
  void all_gather(const at::Tensor& in, at::Tensor& out) {
    std::vector<std::vector<at::Tensor>> to{rows(out)};
    std::vector<at::Tensor> from{bytes_of(in)};
    wait(engine().allgather(to, from));
  }
  void gather(const at::Tensor& in, at::Tensor& out, int64_t root) {
    c10d::GatherOptions o;
    o.rootRank = root;
    std::vector<std::vector<at::Tensor>> to;
    if (g_.is.rank == root) to.push_back(rows(out));
    std::vector<at::Tensor> from{bytes_of(in)};
    wait(engine().gather(to, from, o));
  }
  void scatter(const at::Tensor& in, at::Tensor& out, int64_t root) {
    c10d::ScatterOptions o;
    o.rootRank = root;
    std::vector<std::vector<at::Tensor>> from;
    if (g_.is.rank == root) from.push_back(rows(in));
    std::vector<at::Tensor> to{bytes_of(out)};
    wait(engine().scatter(to, from, o));
  }
  // `p`: rows sent to each rank, then rows received from each.
  void all_to_all(const at::Tensor& in, at::Tensor& out, at::IntArrayRef p) {
    auto row = [](const at::Tensor& t, int64_t n) { return n ? int64_t(t.nbytes()) / n : 0; };
    auto size = static_cast<size_t>(g_.is.size);
    int64_t bytes = std::max(row(in, in.size(0)), row(out, out.size(0)));
    auto scaled = [&](at::IntArrayRef rows) {
      std::vector<int64_t> s(rows.begin(), rows.end());
      for (int64_t& n : s) n *= bytes;
      return s;
    };
    std::vector<int64_t> sent = scaled(p.slice(0, size)), got = scaled(p.slice(size, size));
    at::Tensor from = bytes_of(in), to = bytes_of(out);
    wait(engine().alltoall_base(to, from, got, sent));
  }
  // Goes on: two ranks may send to each other before they receive. The bytes are the thread's own.
  void send(const at::Tensor& in, int64_t to, int64_t tag) {
    std::vector<at::Tensor> v{bytes_of(in).clone()};
    auto work = engine().send(v, static_cast<int>(to), static_cast<int>(tag));
    std::thread([work, v] {
      try {
        work->wait();
      } catch (const std::exception& e) {
        probe::say(0, cat("a send to another rank failed: ", e.what()));
      }
    }).detach();
  }
  // Not in steps, as others: to gloo a wait that ends early is a failure.
  void recv(at::Tensor& out, int64_t from, int64_t tag) {
    std::vector<at::Tensor> v{bytes_of(out)};
    auto work = from < 0 ? engine().recvAnysource(v, static_cast<int>(tag))
                         : engine().recv(v, static_cast<int>(from), static_cast<int>(tag));
    work->wait();
  }

  Group& g_;
  Standing& at_;
};

bool is_point_to_point(const std::string& kind) { return kind == "send" || kind == "recv"; }

// New calls are compared in the store before the engine sees them: it does not look at sizes.
void compare_new(Group& g, Standing& at) {
  if (!g.is.store || g.is.size == 1) return;
  at.say();
  for (auto begin = Clock::now(); !at.silent().empty();) {
    at.compare();
    if (Clock::now() - begin > kPatience) break;  // they know the call already, or are late
    std::this_thread::sleep_for(milliseconds(1));
  }
  at.compare();
}

std::tuple<at::Tensor, at::Tensor> run(const at::Tensor& input, const at::Tensor& token,
                                       c10::string_view kind_, c10::string_view group,
                                       at::IntArrayRef shape, at::IntArrayRef parameters) {
  std::string kind(kind_);
  GroupPtr g = find_group(group);
  std::lock_guard lock(g->mu);
  ++g->number;
  at::Tensor in = input.contiguous(), out = at::empty(shape, input.options());
  Standing at(*g, call_text(kind, in, shape, parameters));
  TORCH_CHECK_WITH(DistBackendError, g->failure.empty(), g->failure);
  try {
    if (at.is_new() && !is_point_to_point(kind)) compare_new(*g, at);
    Engine(*g, at).run(kind, in, out, parameters);
    at.agreed();
  } catch (const std::exception& e) {
    auto* c10_error = dynamic_cast<const c10::Error*>(&e);
    g->failure = c10_error ? c10_error->what_without_backtrace() : e.what();
    if (!g->failure.starts_with("the ranks of"))
      g->failure = cat(at.where(), ": ", g->failure,
                       "\n  another rank raised, died, or is later than the group's timeout of ",
                       g->is.timeout.count() / 1000, " s: look at its messages");
    TORCH_CHECK_WITH(DistBackendError, false, g->failure);
  }
  return {out, token.clone()};
}

// --- recording -----------------------------------------------------------------------------------

std::mutex g_token_mu;  // from reading a token until the next one is there
std::map<int, at::Tensor>& tokens() {
  static auto* t = new std::map<int, at::Tensor>;
  return *t;
}
thread_local at::Tensor t_traced_token;

at::Tensor token_locked(int device) {
  at::Tensor& t = tokens()[device];
  auto on = at::Device(at::kXLA, static_cast<c10::DeviceIndex>(device));
  if (!t.defined()) t = at::zeros({1}, at::TensorOptions(at::kInt).device(on));
  return t;
}

}  // namespace

void publish_group(const CollectiveGroup& group) {
  auto made = std::make_shared<Group>();
  made->is = group;
  std::lock_guard lock(groups().mu);
  groups().by_name[group.name] = std::move(made);
}

void release_group(const std::string& name) {
  std::lock_guard lock(groups().mu);
  groups().by_name.erase(name);
}

bool collectives_pending() {
  GilRelease no_gil;
  std::lock_guard lock(g_token_mu);
  for (const auto& [device, token] : tokens())
    if (std::string_view(state_of(impl_of(token))) == "ir") return true;
  return false;
}

at::Tensor collective_token(int device) {
  GilRelease no_gil;
  std::lock_guard lock(g_token_mu);
  return token_locked(device);
}

void set_traced_token(at::Tensor token) { t_traced_token = std::move(token); }

at::Tensor record_collective(const CollectiveGroup& group, const CollectiveCall& call,
                             const at::Tensor& input) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("torch_pjrt::collective", "")
                       .typed<decltype(run)>();
  at::AutoDispatchBelowADInplaceOrView below;
  {
    std::string where = user_frame();
    std::string text = call_text(call.kind, input, call.shape, call.parameters);
    std::lock_guard lock(lines().mu);
    lines().of.put(text, std::move(where));
  }
  GilRelease no_gil;
  std::unique_lock lock(g_token_mu, std::defer_lock);
  if (!t_traced_token.defined()) lock.lock();
  at::Tensor token =
      t_traced_token.defined() ? t_traced_token : token_locked(impl_of(input).device().index());
  auto [out, next] = op.call(input, token, call.kind, group.name, call.shape, call.parameters);
  token.copy_(next);
  return out;
}

}  // namespace tp::torch_room

TORCH_LIBRARY(torch_pjrt, m) {
  m.def(
      "collective(Tensor input, Tensor token, str kind, str group, int[] shape, int[] parameters) "
      "-> (Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) { m.impl("collective", &tp::torch_room::run); }
