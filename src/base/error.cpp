#include "base/error.h"

namespace tp {

void Error::compose() {
  text_ = message_;
  if (!where_.empty()) text_ += "\n  traced at " + where_;
  if (!fix_.empty()) text_ += "\n  try: " + fix_;
}

Error&& Error::fix(std::string text) && {
  fix_ = std::move(text);
  compose();
  return std::move(*this);
}

Error&& Error::at(std::string where) && {
  where_ = std::move(where);
  compose();
  return std::move(*this);
}

Error&& Error::raised_by(int64_t node) && {
  raised_by_ = node;
  return std::move(*this);
}

void fail(Code code, std::string message, std::string fix) {
  throw Error(code, std::move(message)).fix(std::move(fix));
}

}  // namespace tp
