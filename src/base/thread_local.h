// The address of a thread-local, asked for once: GCC 12 makes it anew at each use, which is a call
// in a shared library (2 ns; recording one op used to make 15 of them). Pure; any thread.
#pragma once

namespace tp {

template <class T>
T& address_once(T& thread_local_object) {
  T* p = &thread_local_object;
  asm("" : "+r"(p));  // the compiler does not know where it came from
  return *p;
}

}  // namespace tp
