// Buffers that a launch may overwrite, out of their tensors while it is made, so that nobody can
// ask for them. One thread.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch/tensor.h"

namespace tp::torch_room {

class Lent {
 public:
  explicit Lent(size_t arguments) : may_donate_(arguments) {}
  Lent(const Lent&) = delete;
  ~Lent() {
    for (auto& [at, t] : taken_) give_back_data(*t.first, std::move(t.second));
  }
  // Where the alias and `buffer` are the only owners of the buffer of argument i.
  void take(size_t i, const AliasPtr& alias, const client::DataPtr& buffer) {
    client::DataPtr data = take_data(*alias, buffer);
    if (!data) return;
    taken_.try_emplace(alias.get(), alias, std::move(data));
    may_donate_[i] = 1;
  }
  // It has its new value.
  void settled(const Alias* alias) { taken_.erase(alias); }
  std::span<const uint8_t> may_donate() const { return may_donate_; }

 private:
  std::unordered_map<const Alias*, std::pair<AliasPtr, client::DataPtr>> taken_;
  std::vector<uint8_t> may_donate_;
};

}  // namespace tp::torch_room
