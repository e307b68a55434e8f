#include "torch/errors.h"

#include <atomic>

namespace tp::torch_room {
namespace {
std::atomic<std::string (*)()> g_provider{nullptr};
}

std::string user_frame() {
  auto* f = g_provider.load();
  return f ? f() : std::string();
}
void set_user_frame_provider(std::string (*provider)()) { g_provider = provider; }

void rethrow(const Error& e, const std::string& context) {
  std::string text = e.what();
  if (!context.empty()) text += "\n  in " + context;
  if (std::string where = user_frame(); !where.empty()) text += "\n  called at " + where;
  switch (e.code()) {
    case Code::kIndex:
      C10_THROW_ERROR(IndexError, text);
    case Code::kType:
      C10_THROW_ERROR(TypeError, text);
    case Code::kValue:
      C10_THROW_ERROR(ValueError, text);
    case Code::kNotImplemented:
      C10_THROW_ERROR(NotImplementedError, text);
    case Code::kOutOfMemory:
      C10_THROW_ERROR(OutOfMemoryError, text);
    case Code::kRuntime:
    case Code::kInternal:
      break;
  }
  C10_THROW_ERROR(Error, text);
}

}  // namespace tp::torch_room
