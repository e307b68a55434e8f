#include "client/pjrt_objects.h"

#include "base/error.h"
#include "base/text.h"
#include "client/pjrt_types.h"

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

PjrtExecutable::PjrtExecutable(std::shared_ptr<const pjrt::Client> client, pjrt::Executable program,
                               Signature signature, bool partitioned)
    : client_(std::move(client)),
      program_(std::move(program)),
      signature_(std::move(signature)),
      partitioned_(partitioned) {
  auto all = client_->devices();
  for (const pjrt::Device& d : program_.devices())
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].raw() == d.raw()) devices_.push_back(static_cast<int>(i));
  read_outputs();
}

void PjrtExecutable::read_outputs() {
  auto found = program_.output_types();
  if (!found) {  // the plugin cannot say: trust the text
    device_outputs_ = signature_.results;
    return;
  }
  std::vector<std::string> has;
  for (const pjrt::OutputType& t : *found) {
    device_outputs_.push_back(ir::make_type(from_pjrt(t.element_type), t.dims));
    has.push_back(device_outputs_.back().text());
  }
  auto same = [&](size_t i) {
    return partitioned_ ? device_outputs_[i].dtype() == signature_.results[i].dtype()
                        : device_outputs_[i] == signature_.results[i];
  };
  bool ok = device_outputs_.size() == signature_.results.size();
  for (size_t i = 0; ok && i < device_outputs_.size(); ++i) ok = same(i);
  if (ok) return;
  std::vector<std::string> wanted;
  for (ir::Type t : signature_.results) wanted.push_back(t.text());
  fail(Code::kInternal, cat("program outputs: the plugin says (", join(has, ", "),
                            "), the module says (", join(wanted, ", "), ")"));
}

}  // namespace tp::client
