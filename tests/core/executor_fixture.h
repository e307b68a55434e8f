// What tests of the executor share: small graphs, and an executor over a client that computes
// nothing.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "client/registry.h"
#include "exec/executor.h"
#include "fake_client.h"
#include "ops/core/row.h"

namespace tp::exec {

using ir::DType;
using ir::Node;
using ir::Scalar;
using ir::Type;
using ir::Value;
using test::FakeClient;
using test::FakeData;

inline const Type kVec = ir::make_type(DType::kF32, std::vector<int64_t>{2});

inline Value op(const char* name, std::vector<Value> operands) {
  const ops::Row* row = ops::find_row(name);
  EXPECT_NE(row, nullptr) << name;
  ir::AttrsBuilder attrs;
  const char* names[] = {"self", "other"};
  for (size_t i = 0; i < operands.size(); ++i)
    attrs.operand(ir::symbol(names[i]), static_cast<int64_t>(i));
  return {Node::make(ops::kind_of(*row), operands, {&kVec, 1}, attrs.words()), 0};
}
inline Value mul(Value a, Value b) { return op("aten::mul.Tensor", {std::move(a), std::move(b)}); }
inline Value sine(Value a) { return op("aten::sin", {std::move(a)}); }
inline Value cosine(Value a) { return op("aten::cos", {std::move(a)}); }
inline Value real(double v) {
  return {Node::make_number({.re = v, .kind = Scalar::Kind::kFloat}, true), 0};
}
inline Value integer(int64_t v) {
  return {Node::make_number({.integer = v, .kind = Scalar::Kind::kInt}, true), 0};
}
inline Value fill(double v) {
  return {Node::make_fill(kVec, {.re = v, .kind = Scalar::Kind::kFloat}), 0};
}

struct ExecutorTest : testing::Test {
  FakeClient* client = new FakeClient;
  Executor executor{[this]() -> client::ComputationClient& { return *client; }, "torch", "ours"};

  ExecutorTest() { client::set_client_for_testing(std::unique_ptr<FakeClient>(client)); }
  ~ExecutorTest() override { client::set_client_for_testing(nullptr); }

  Value data(float first = 1) {
    float bytes[2] = {first, 2};
    auto d = client->transfer_to_device({bytes, kVec, nullptr}, 0);
    return {Node::make_data(kVec, std::move(d)), 0};
  }
  static PlanRequest request(std::vector<Value> roots, bool births = false) {
    PlanRequest r;
    r.roots = std::move(roots);
    r.uploaded = [births](const Node&) { return births; };
    return r;
  }
  // The only owner of these: a braced list keeps copies until its statement ends.
  static std::vector<Value> moved(Value a, Value b = {}) {
    std::vector<Value> v;
    v.push_back(std::move(a));
    if (b) v.push_back(std::move(b));
    return v;
  }
  // Of a full sync in which root i overwrites the tensor that held previous[i].
  static PlanRequest updates(std::vector<Value> roots, std::vector<const void*> previous) {
    PlanRequest r = request(std::move(roots));
    r.force_data = true;
    r.previous = std::move(previous);
    r.kept = [](const void*) { return false; };
    return r;
  }
  SyncResult sync(PlanRequest r) {
    return executor.sync(executor.plan(std::move(r)), [] { return true; });
  }
  SyncResult sync(std::vector<Value> roots, bool births = false) {
    return sync(request(std::move(roots), births));
  }
  const FakeClient::Call& last(std::string_view what) {
    for (size_t i = client->calls.size(); i-- > 0;)
      if (client->calls[i].what == what) return client->calls[i];
    ADD_FAILURE() << "no call of " << what;
    return client->calls.front();
  }
  template <class T>
  std::vector<T> bytes(const client::Data* d) {
    std::vector<T> v(static_cast<size_t>(d->type().numel()));
    std::memcpy(v.data(), d->host_pointer(), v.size() * sizeof(T));
    return v;
  }
};

}  // namespace tp::exec
