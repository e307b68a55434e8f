#include "pjrt/ffi.h"

#include <charconv>

#include "base/text.h"

namespace tp::pjrt::ffi {
namespace {

constexpr int kMetadataQuestion = 1, kArrayKind = 1, kNumberKind = 3, kTextKind = 4, kS64 = 5,
              kInternal = 13;

// Around a handler's words in the plugin's message; "code node" stands between the first two.
constexpr std::string_view kBegin = "[[raised by a host call, code ", kMiddle = "]]",
                           kEnd = "[[end]]";

// The metadata question's extension; only the version is answered: later fields differ by plugin.
struct Metadata {
  size_t struct_size;
  Version version;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace

bool answered_version(Frame* frame) {
  for (Extension* e = frame->extension_start; e; e = e->next) {
    if (e->type != kMetadataQuestion) continue;
    reinterpret_cast<MetadataExtension*>(e)->metadata->version = frame->api->version;
    return true;
  }
  return false;
}

namespace {

const void* attribute(const Frame& frame, std::string_view name, int kind) {
  const Attributes& a = frame.attributes;
  for (int64_t i = 0; i < a.size; ++i)
    if (a.kinds[i] == kind && std::string_view(a.names[i]->data, a.names[i]->size) == name)
      return a.values[i];
  return nullptr;
}

}  // namespace

int64_t integer(const Frame& frame, std::string_view name, int64_t fallback) {
  auto* number = static_cast<const Number*>(attribute(frame, name, kNumberKind));
  return number && number->element_type == kS64 ? *static_cast<const int64_t*>(number->value)
                                                : fallback;
}

std::string_view text(const Frame& frame, std::string_view name) {
  auto* t = static_cast<const Text*>(attribute(frame, name, kTextKind));
  return t ? std::string_view(t->data, t->size) : std::string_view();
}

std::span<const int64_t> integers(const Frame& frame, std::string_view name) {
  auto* a = static_cast<const Array*>(attribute(frame, name, kArrayKind));
  if (!a || a->element_type != kS64) return {};
  return {static_cast<const int64_t*>(a->data), a->size};
}

Error* failure(const Frame& frame, const char* words) {
  ErrorCreateArgs args{sizeof(args), nullptr, words, kInternal};
  return frame.api->error_create(&args);
}

Error* failure(const Frame& frame, Code code, std::string_view words) {
  return failure(frame, cat(kBegin, static_cast<int>(code), " ", integer(frame, kNode, -1), kMiddle,
                            words, kEnd)
                            .c_str());
}

std::optional<tp::Error> raised_by_handler(std::string_view s) {
  size_t begin = s.find(kBegin);
  if (begin == std::string_view::npos) return std::nullopt;
  s.remove_prefix(begin + kBegin.size());
  int code = 0;
  int64_t node = -1;
  const char *at = s.data(), *stop = at + s.size();
  at = std::from_chars(at, stop, code).ptr;
  if (at != stop) std::from_chars(at + 1, stop, node);
  size_t middle = s.find(kMiddle), end = s.rfind(kEnd);
  if (middle == std::string_view::npos || end == std::string_view::npos) return std::nullopt;
  middle += kMiddle.size();
  return tp::Error(static_cast<Code>(code), std::string(s.substr(middle, end - middle)))
      .raised_by(node);
}

}  // namespace tp::pjrt::ffi
