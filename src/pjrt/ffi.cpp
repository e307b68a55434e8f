#include "pjrt/ffi.h"

namespace tp::pjrt::ffi {
namespace {

constexpr int kMetadataQuestion = 1, kNumberKind = 3, kS64 = 5, kInternal = 13;

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

int64_t integer(const Frame& frame, std::string_view name, int64_t fallback) {
  const Attributes& a = frame.attributes;
  for (int64_t i = 0; i < a.size; ++i) {
    if (std::string_view(a.names[i]->data, a.names[i]->size) != name) continue;
    auto* number = static_cast<const Number*>(a.values[i]);
    if (a.kinds[i] == kNumberKind && number->element_type == kS64)
      return *static_cast<const int64_t*>(number->value);
  }
  return fallback;
}

Error* failure(const Frame& frame, const char* words) {
  ErrorCreateArgs args{sizeof(args), nullptr, words, kInternal};
  return frame.api->error_create(&args);
}

}  // namespace tp::pjrt::ffi
