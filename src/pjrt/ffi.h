// What XLA hands to a custom call (custom_call.h): the memory layout of its typed FFI, which plugin
// wheels ship no header for. Unchanged from version 0.2 to 0.4 in all that is named here; tests
// compare it with XLA's own header. Plain views into the plugin's memory, valid during the call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"

namespace tp::pjrt::ffi {

struct Extension {
  size_t struct_size;
  int type;  // 1: the question for the handler's version
  Extension* next;
};

struct Version {
  size_t struct_size;
  Extension* extension_start;
  int major, minor;
};

struct Buffer {
  size_t struct_size;
  Extension* extension_start;
  int element_type;  // XLA's PrimitiveType: 1 pred, 11 f32, ...
  void* data;
  int64_t rank;
  const int64_t* dims;
};

// Operands or results: `items` are Buffers.
struct Buffers {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  const int* kinds;  // 1: a Buffer
  void** items;
};

struct Text {
  const char* data;
  size_t size;
};

struct Number {
  int element_type;
  const void* value;
};

struct Array {
  int element_type;
  size_t size;
  const void* data;
};

// Sorted by name. A value of kind 1 is an Array, of kind 3 a Number, of kind 4 a Text.
struct Attributes {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  const int* kinds;
  Text** names;
  void** values;
};

struct Error;  // the plugin's

struct ErrorCreateArgs {
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  int code;  // as PJRT_Error_Code
};

struct Api {
  size_t struct_size;
  Extension* extension_start;
  Version version;
  const void* internal;
  Error* (*error_create)(ErrorCreateArgs*);
};

struct Frame {
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  int stage;  // 3: run; others come before and touch no data
  Buffers arguments, results;
  Attributes attributes;

  const Buffer& argument(int64_t i) const { return *static_cast<Buffer*>(arguments.items[i]); }
  const Buffer& result(int64_t i) const { return *static_cast<Buffer*>(results.items[i]); }
};

using Handler = Error* (*)(Frame*);

// Every handler starts with this: true where XLA only asked which version it speaks. The answer is
// the plugin's own version, so that one handler serves all.
bool answered_version(Frame* frame);
// An s64 attribute by name, or `fallback`.
int64_t integer(const Frame& frame, std::string_view name, int64_t fallback);
// A text, and an s64 array attribute by name; empty where there is none.
std::string_view text(const Frame& frame, std::string_view name);
std::span<const int64_t> integers(const Frame& frame, std::string_view name);

// What a handler returns to make the program fail with these words. An error with a Code comes out
// of the failed program as tp::Error with that code and exactly these words (raised_by_handler);
// its raised_by() is the call's s64 attribute "node".
Error* failure(const Frame& frame, const char* words);
Error* failure(const Frame& frame, Code code, std::string_view words);
inline constexpr std::string_view kNode = "node";
// The error that a handler returned with a Code, found in what the plugin made of it.
std::optional<tp::Error> raised_by_handler(std::string_view plugins_words);

}  // namespace tp::pjrt::ffi
