#include "torch/errors.h"

#include "torch/frames.h"
#include "torch/memory_report.h"

namespace tp::torch_room {

std::string user_frame() { return ir::site_text(user_site()); }

void rethrow(const Error& e, const std::string& context) {
  std::string text = e.what();
  if (e.code() == Code::kOutOfMemory) text += "\n  " + memory_report();
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
    case Code::kLinAlg:
      C10_THROW_ERROR(LinAlgError, text);
    case Code::kRuntime:
    case Code::kInternal:
      break;
  }
  C10_THROW_ERROR(Error, text);
}

}  // namespace tp::torch_room
