#include "pjrt/key_value_store.h"

#include <cstring>
#include <exception>
#include <string_view>

namespace tp::pjrt {
namespace {

template <class Args>
KeyValueStore& store_of(const Args* a) {
  return *static_cast<KeyValueStore*>(a->user_arg);
}
template <class Args>
std::string key_of(const Args* a) {
  return {a->key, a->key_size};
}

// f() answers; what it throws becomes the plugin's error.
template <class Args, class F>
PJRT_Error* answer(Args* a, PJRT_Error_Code code, const F& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    std::string_view why = e.what();
    return (*a->callback_error)(code, why.data(), why.size());
  }
}

void free_value(char* value) { delete[] value; }

template <class Args>
void give(Args* a, const std::string& value) {
  a->value = new char[value.size() + 1];
  std::memcpy(a->value, value.data(), value.size());
  a->value_size = value.size();
  a->value_deleter_callback = &free_value;
}

PJRT_Error* get(PJRT_KeyValueGetCallback_Args* a) {
  return answer(a, PJRT_Error_Code_DEADLINE_EXCEEDED, [&]() -> PJRT_Error* {
    give(a, store_of(a).get(key_of(a), std::chrono::milliseconds(a->timeout_in_ms)));
    return nullptr;
  });
}

PJRT_Error* try_get(PJRT_KeyValueTryGetCallback_Args* a) {
  return answer(a, PJRT_Error_Code_INTERNAL, [&]() -> PJRT_Error* {
    if (auto value = store_of(a).try_get(key_of(a))) return give(a, *value), nullptr;
    std::string why = "no such key: " + key_of(a);
    return (*a->callback_error)(PJRT_Error_Code_NOT_FOUND, why.data(), why.size());
  });
}

PJRT_Error* put(PJRT_KeyValuePutCallback_Args* a) {
  return answer(a, PJRT_Error_Code_INTERNAL, [&]() -> PJRT_Error* {
    store_of(a).put(key_of(a), {a->value, a->value_size});
    return nullptr;
  });
}

}  // namespace

void offer(KeyValueStore& store, PJRT_Client_Create_Args& args) {
  args.kv_get_callback = &get;
  args.kv_put_callback = &put;
  args.kv_try_get_callback = &try_get;
  args.kv_get_user_arg = args.kv_put_user_arg = args.kv_try_get_user_arg = &store;
}

}  // namespace tp::pjrt
