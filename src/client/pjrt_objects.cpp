#include "client/pjrt_objects.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "client/pjrt_types.h"
#include "shard/registry.h"

namespace tp::client {
namespace {

class PjrtCompletion final : public Completion {
 public:
  PjrtCompletion(std::shared_ptr<const pjrt::Client> client, pjrt::Event event)
      : client_(std::move(client)), event_(std::move(event)) {}
  bool ready() const override { return event_.ready(); }
  void await() const override { event_.await(); }

 private:
  std::shared_ptr<const pjrt::Client> client_;  // first: goes last
  pjrt::Event event_;
};

}  // namespace

PjrtData::PjrtData(std::shared_ptr<const pjrt::Client> client, pjrt::Buffer buffer, ir::Type type,
                   int device, std::shared_ptr<Ledger> ledger)
    : Data(type, device),
      client_(std::move(client)),
      buffer_(std::move(buffer)),
      ledger_(std::move(ledger)) {
  ledger_->add(type.bytes());
}

PjrtData::~PjrtData() {
  if (!donated_.load(std::memory_order_relaxed)) ledger_->remove(type().bytes());
}

void PjrtData::given_away() const noexcept {
  try {
    if (buffer_.is_deleted() && !donated_.exchange(true)) ledger_->donate(type().bytes());
  } catch (const Error&) {  // the plugin cannot say: only the count misses it
  }
}

std::shared_ptr<const Completion> PjrtData::completion() const {
  return std::make_shared<PjrtCompletion>(client_, buffer_.ready_event());
}

bool PjrtData::ready() const {
  return settled_.load(std::memory_order_acquire) || buffer_.ready_event().ready();
}

void PjrtData::await() const {
  if (settled_.load(std::memory_order_acquire)) return;
  buffer_.ready_event().await();
  settled_.store(true, std::memory_order_release);
}

bool PjrtData::computed() const {
  if (settled_.load(std::memory_order_acquire)) return true;
  pjrt::Event done = buffer_.ready_event();
  if (!done.ready() || done.error()) return false;
  settled_.store(true, std::memory_order_release);
  return true;
}

const void* PjrtData::host_pointer() const {
  return buffer_.is_on_cpu() ? buffer_.host_pointer() : nullptr;
}

void PjrtData::on_ready(std::function<void()> done) const {
  buffer_.ready_event().on_ready([done = std::move(done)](auto&&) { done(); });
}

std::string to_text(const std::optional<Partitioning>& p) {
  if (!p) return "whole";
  std::vector<std::string> words;
  auto add = [&](const std::vector<shard::Ref>& all) {
    words.push_back(cat(all.size()));
    for (const shard::Ref& s : all) words.push_back(s ? shard::portable_text(*s) : "-");
  };
  add(p->parameters);
  add(p->outputs);
  return cat("partitioned;", join(words, ";"));
}

std::optional<Partitioning> parse_partitioning(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find(';', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (words[0] != "partitioned") return std::nullopt;
  Partitioning p;
  size_t next = 1;
  for (auto* to : {&p.parameters, &p.outputs}) {
    size_t count = next < words.size() ? std::stoul(std::string(words[next++])) : 0;
    for (; count > 0 && next < words.size(); --count, ++next)
      to->push_back(words[next] == "-" ? nullptr : shard::parse_portable(words[next]));
    if (count) fail(Code::kRuntime, "stored program: its shardings are cut off");
  }
  return p;
}

namespace {
// Of each device. What is not known in detail is what the plugin says.
std::vector<ir::Type> shard_types(std::vector<ir::Type> types, std::span<const shard::Ref> how) {
  for (size_t i = 0; i < how.size(); ++i)
    if (how[i]) types[i] = types[i].with(shard::shard_dims(*how[i], types[i].dims()));
  return types;
}
}  // namespace

PjrtExecutable::PjrtExecutable(std::shared_ptr<const pjrt::Client> client, pjrt::Executable program,
                               Signature signature, std::optional<Partitioning> partitioning)
    : client_(std::move(client)),
      program_(std::move(program)),
      signature_(std::move(signature)),
      device_parameters_(signature_.parameters),
      partitioning_(std::move(partitioning)) {
  auto all = client_->devices();
  for (const pjrt::Device& d : program_.devices())
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].raw() == d.raw()) devices_.push_back(static_cast<int>(i));
  if (partitioning_)
    device_parameters_ = shard_types(std::move(device_parameters_), partitioning_->parameters);
  read_outputs();
}

void PjrtExecutable::read_outputs() {
  std::vector<ir::Type> expected = signature_.results;
  if (partitioning_) expected = shard_types(std::move(expected), partitioning_->outputs);
  auto found = program_.output_types();
  if (!found) {  // the plugin cannot say: trust the text
    device_outputs_ = std::move(expected);
    return;
  }
  std::vector<std::string> has, wanted;
  for (const pjrt::OutputType& t : *found) {
    device_outputs_.push_back(ir::make_type(from_pjrt(t.element_type), t.dims));
    has.push_back(device_outputs_.back().text());
  }
  if (device_outputs_ == expected || (partitioning_ && partitioning_->outputs.empty())) return;
  for (ir::Type t : expected) wanted.push_back(t.text());
  fail(Code::kInternal, cat("program outputs: the plugin says (", join(has, ", "),
                            "), the module says (", join(wanted, ", "), ")"));
}

}  // namespace tp::client
