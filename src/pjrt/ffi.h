// What XLA hands to a custom call (custom_call.h): the memory layout of its typed FFI, which plugin
// wheels ship no header for. Unchanged from version 0.2 to 0.4 in all that is named here; tests
// compare it with XLA's own header. Plain views into the plugin's memory, valid during the call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

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

// Sorted by name. A value of kind 3 is a Number, of kind 4 a Text.
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
// What a handler returns to make the program fail with these words.
Error* failure(const Frame& frame, const char* words);

}  // namespace tp::pjrt::ffi
