// LruMap: a bounded map that forgets the least recently used entry. The caller locks.
#pragma once
#include <cstddef>
#include <list>
#include <unordered_map>
#include <utility>

namespace tp {

template <class K, class V>
class LruMap {
 public:
  explicit LruMap(size_t capacity) : capacity_(capacity ? capacity : 1) {}

  // The value under k, now the most recently used; nullptr where there is none. Valid until the
  // next put.
  V* get(const K& k) {
    auto it = index_.find(k);
    if (it == index_.end()) return nullptr;
    if (it->second != order_.begin()) order_.splice(order_.begin(), order_, it->second);
    return &it->second->second;
  }
  V* put(const K& k, V v) {
    if (V* old = get(k)) {
      *old = std::move(v);
      return old;
    }
    order_.emplace_front(k, std::move(v));
    index_.emplace(k, order_.begin());
    if (index_.size() > capacity_) pop();
    return &order_.front().second;
  }
  void erase(const K& k) {
    auto it = index_.find(k);
    if (it == index_.end()) return;
    order_.erase(it->second);
    index_.erase(it);
  }
  // Takes out the entry unused for longest; there must be one.
  V pop() {
    V v = std::move(order_.back().second);
    index_.erase(order_.back().first);
    order_.pop_back();
    ++evictions_;
    return v;
  }
  void clear() {
    index_.clear();
    order_.clear();
  }
  size_t size() const { return index_.size(); }
  size_t capacity() const { return capacity_; }
  size_t evictions() const { return evictions_; }
  // Most recently used first.
  auto begin() { return order_.begin(); }
  auto end() { return order_.end(); }

 private:
  size_t capacity_, evictions_ = 0;
  std::list<std::pair<K, V>> order_;
  std::unordered_map<K, typename std::list<std::pair<K, V>>::iterator> index_;
};

}  // namespace tp
