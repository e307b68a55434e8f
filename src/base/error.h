// The core's one exception type. The first line stands alone (op, rule, what was found); `where` is
// the user's line, `fix` what to do. src/bind and src/torch turn it into the Python type that eager
// raises.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace tp {

enum class Code : unsigned char {
  kRuntime,         // RuntimeError
  kIndex,           // IndexError
  kType,            // TypeError
  kValue,           // ValueError
  kNotImplemented,  // NotImplementedError
  kOutOfMemory,     // torch.OutOfMemoryError
  kLinAlg,          // torch.linalg.LinAlgError
  kInternal,        // RuntimeError that asks for a report
};

class Error : public std::exception {
 public:
  Error(Code code, std::string message) : code_(code), message_(std::move(message)) { compose(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // Both return *this, so that they chain behind the constructor in a throw.
  Error&& fix(std::string text) &&;
  Error&& at(std::string where) &&;
  // Where a host call raised: its node's place in the program's order; else -1.
  Error&& raised_by(int64_t node) &&;
  int64_t raised_by() const { return raised_by_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  void compose();
  Code code_;
  int64_t raised_by_ = -1;
  std::string message_, where_, fix_, text_;
};

// Throws Error. `fix` says what the user can do; empty where there is nothing.
[[noreturn]] void fail(Code code, std::string message, std::string fix = {});

// An internal invariant; `why` says why it must hold.
inline void check(bool ok, std::string_view why) {
  if (!ok) [[unlikely]]
    fail(Code::kInternal, std::string("internal invariant broken: ") + std::string(why),
         "this is a bug in torch_pjrt: please report it with the program that showed it");
}

}  // namespace tp
