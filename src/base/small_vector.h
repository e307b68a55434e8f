// SmallVec<T, N>: a vector of trivially copyable T whose first N elements need no allocation.
// Not thread-safe, like std::vector.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>

namespace tp {

template <class T, size_t N>
class SmallVec {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallVec() = default;
  SmallVec(std::initializer_list<T> v) { append(std::span<const T>(v.begin(), v.size())); }
  explicit SmallVec(std::span<const T> v) { append(v); }
  SmallVec(const SmallVec& o) { append(o); }
  SmallVec(SmallVec&& o) noexcept { steal(o); }
  SmallVec& operator=(const SmallVec& o) {
    if (this != &o) {
      clear();
      append(o);
    }
    return *this;
  }
  SmallVec& operator=(SmallVec&& o) noexcept {
    if (this != &o) {
      if (data_ != inline_data()) std::free(data_);
      steal(o);
    }
    return *this;
  }
  ~SmallVec() {
    if (data_ != inline_data()) std::free(data_);
  }

  void push_back(const T& v) {
    T copy = v;
    if (size_ == cap_) [[unlikely]]
      grow(size_ + 1);
    data_[size_++] = copy;
  }
  void append(std::span<const T> v) {
    if (size_ + v.size() > cap_) grow(size_ + v.size());
    if (!v.empty()) std::memcpy(static_cast<void*>(data_ + size_), v.data(), v.size() * sizeof(T));
    size_ += v.size();
  }
  void resize(size_t n, T fill = T{}) {
    if (n > cap_) grow(n);
    for (size_t i = size_; i < n; ++i) data_[i] = fill;
    size_ = n;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  operator std::span<const T>() const { return {data_, size_}; }
  friend bool operator==(const SmallVec& a, const SmallVec& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  void grow(size_t need) {
    size_t cap = cap_ * 2 > need ? cap_ * 2 : need;
    T* p = static_cast<T*>(std::malloc(cap * sizeof(T)));
    if (!p) throw std::bad_alloc();
    if (size_) std::memcpy(static_cast<void*>(p), data_, size_ * sizeof(T));
    if (data_ != inline_data()) std::free(data_);
    data_ = p;
    cap_ = cap;
  }
  void steal(SmallVec& o) {
    size_ = o.size_;
    if (o.data_ == o.inline_data()) {
      data_ = inline_data();
      cap_ = N;
      if (size_) std::memcpy(static_cast<void*>(data_), o.data_, size_ * sizeof(T));
    } else {
      data_ = o.data_;
      cap_ = o.cap_;
      o.data_ = o.inline_data();
      o.cap_ = N;
    }
    o.size_ = 0;
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0, cap_ = N;
};

using Dims = SmallVec<int64_t, 6>;

}  // namespace tp
