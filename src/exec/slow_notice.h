// Says what is being compiled once that has taken longer than the flag allows.
#pragma once
#include <memory>
#include <string>

namespace tp::exec {

// For the time of one compile, in whatever thread.
class SlowNotice {
 public:
  explicit SlowNotice(std::string text);
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread that speaks
};

}  // namespace tp::exec
