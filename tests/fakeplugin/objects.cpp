#include "objects.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

std::atomic<long> PJRT_Buffer::alive{0};

namespace fake {

void Work::finish(std::optional<Fault> fault) {
  std::vector<std::function<void(std::optional<Fault>)>> waiting;
  {
    std::lock_guard lock(mu_);
    done_ = true;
    fault_ = fault;
    waiting.swap(waiting_);
  }
  changed_.notify_all();
  for (auto& f : waiting) f(fault);
}

bool Work::done() const {
  std::lock_guard lock(mu_);
  return done_;
}

std::optional<Fault> Work::wait() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [&] { return done_; });
  return fault_;
}

void Work::on_done(std::function<void(std::optional<Fault>)> f) {
  {
    std::lock_guard lock(mu_);
    if (!done_) {
      waiting_.push_back(std::move(f));
      return;
    }
  }
  f(fault_);
}

std::shared_ptr<Work> finished(std::optional<Fault> fault) {
  auto work = std::make_shared<Work>();
  work->finish(std::move(fault));
  return work;
}

void finish_later(std::shared_ptr<Work> work, std::optional<Fault> fault,
                  std::optional<Fault> slow) {
  if (!slow) return work->finish(std::move(fault));
  std::thread([work, fault, delay = slow->words] {
    sleep_ms(delay);
    work->finish(fault);
  }).detach();
}

std::shared_ptr<void> zeros(size_t bytes) {
  size_t room = (bytes / 64 + 1) * 64;
  void* p = std::aligned_alloc(64, room);
  if (!p) throw std::bad_alloc();
  std::memset(p, 0, room);
  return std::shared_ptr<void>(p, std::free);
}

}  // namespace fake
