#include "exec/kept_numbers.h"

#include <cstring>
#include <utility>

#include "client/sharded_data.h"
#include "exec/fill.h"

namespace tp::exec {

using client::DataPtr;

namespace {

template <class T>
DataPtr upload(client::ComputationClient& client, const Plan& plan, std::vector<T> v) {
  const std::vector<int>& mesh = plan.placement.devices;
  if (mesh.empty()) return upload_numbers(client, std::move(v), plan.device);
  std::vector<DataPtr> parts;
  for (int d : mesh) parts.push_back(upload_numbers(client, v, d));
  ir::Type type = parts[0]->type();
  return std::make_shared<client::ShardedData>(type, plan.device, shard::replicated_over(mesh),
                                               std::move(parts));
}

}  // namespace

template <class T>
DataPtr KeptNumbers::get(client::ComputationClient& client, const Plan& plan, std::vector<T> v) {
  if (v.size() > kMostNumbers) return upload(client, plan, std::move(v));
  std::vector<uint64_t> words(v.size());
  std::memcpy(words.data(), v.data(), v.size() * sizeof(T));
  Hash128 key = mix(plan.key.total, std::is_floating_point_v<T>);
  bool again = false;
  {
    std::lock_guard lock(mu_);
    Entry* e = entries_.get(key);
    again = e && e->words == words;
    if (again && e->data) return e->data;
    if (!again) entries_.put(key, {words, nullptr});
  }
  DataPtr data = upload(client, plan, std::move(v));
  if (again) {
    std::lock_guard lock(mu_);
    entries_.put(key, {std::move(words), data});
  }
  return data;
}

void KeptNumbers::put(client::ComputationClient& client, const Plan& plan,
                      std::vector<DataPtr>& to) {
  Numbers64 n = numbers_of(plan);
  if (!n.integers.empty()) to.push_back(get(client, plan, std::move(n.integers)));
  if (!n.reals.empty()) to.push_back(get(client, plan, std::move(n.reals)));
}

void KeptNumbers::clear() {
  std::lock_guard lock(mu_);
  entries_.clear();
}

}  // namespace tp::exec
