// src/client on a real CPU plugin: one test a promise.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/text.h"
#include "client/environment.h"
#include "client/host_call.h"
#include "client/signature.h"
#include "plugins_for_tests.h"
#include "probe/probe.h"

namespace tp::client {
namespace {

using ir::DType;
using ir::make_type;
using test::words_of;

const ir::Type kF32 = make_type(DType::kF32, std::vector<int64_t>{4});

// Adds two f32[4]; `attr` stands behind the first parameter's type.
std::string add_module(std::string_view attr = "") {
  return cat(
      "module @add {\n  func.func public @main(%arg0: tensor<4xf32>", attr,
      ", %arg1: tensor<4xf32>) -> (tensor<4xf32>) {\n"
      "    %0 = \"stablehlo.add\"(%arg0, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n"
      "    \"func.return\"(%0) : (tensor<4xf32>) -> ()\n  }\n}\n");
}

struct ClientTest : testing::Test {
  static ComputationClient& client() {
    static auto c = make_pjrt_client(test::cpu_spec(2));
    return *c;
  }
  static ExecutablePtr compile(const std::string& module, std::vector<ir::Type> outputs = {kF32},
                               int device = 0) {
    return client().compile({.module = module, .outputs = outputs, .device = device});
  }
  static DataPtr upload(const std::vector<float>& v, int device = 0) {
    return client().transfer_to_device(
        {v.data(), make_type(DType::kF32, std::vector<int64_t>{static_cast<int64_t>(v.size())}),
         nullptr},
        device);
  }
  static std::vector<float> read(const DataPtr& d) {
    std::vector<float> v(static_cast<size_t>(d->type().numel()));
    client().transfer_from_device(*d, v.data());
    return v;
  }
};

TEST_F(ClientTest, ProgramRunsAndItsOutputsHaveTheirTypes) {
  auto program = compile(add_module());
  auto out = client().execute(*program, std::vector{upload({1, 2, 3, 4}), upload({10, 20, 30, 40})},
                              {}, 0);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0]->type(), kF32);
  EXPECT_EQ(read(out[0]), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(program->output_types()[0], kF32);
}

TEST_F(ClientTest, DevicesAndPlatformAreKnown) {
  ASSERT_EQ(client().devices().size(), 2u);
  EXPECT_EQ(client().devices()[1].id, 1);
  EXPECT_EQ(client().devices()[0].kind, "cpu");
  EXPECT_EQ(client().platform(), "cpu");
  EXPECT_FALSE(client().memory_info(0).known);
}

TEST_F(ClientTest, ArgumentOfAnotherTypeIsRefusedWithBothTypes) {
  auto program = compile(add_module());
  EXPECT_EQ(words_of([&] {
              client().execute(*program, std::vector{upload({1, 2, 3, 4}), upload({1, 2, 3, 4, 5})},
                               {}, 0);
            }),
            "execute: argument 1: expected f32[4], got f32[5]");
  EXPECT_EQ(words_of([&] {
              client().execute(*program, std::vector{upload({1, 2, 3, 4}), DataPtr()}, {}, 0);
            }),
            "execute: argument 1: expected f32[4], got nothing");
}

TEST_F(ClientTest, WrongNumberOfArgumentsIsRefused) {
  auto program = compile(add_module());
  EXPECT_EQ(words_of([&] { client().execute(*program, std::vector{upload({1, 2, 3, 4})}, {}, 0); }),
            "execute: the program takes 2 arguments, got 1");
}

TEST_F(ClientTest, ArgumentOnAnotherDeviceIsRefused) {
  auto program = compile(add_module());
  EXPECT_EQ(words_of([&] {
              client().execute(*program, std::vector{upload({1, 2, 3, 4}), upload({1, 2, 3, 4}, 1)},
                               {}, 0);
            }),
            "execute: argument 1: expected data on device 0, got f32[4] on device 1");
}

TEST_F(ClientTest, ProgramRunsOnlyOnItsDevice) {
  auto program = compile(add_module(), {kF32}, 1);
  EXPECT_EQ(words_of([&] { client().execute(*program, {}, {}, 0); }),
            "execute: the program was compiled for device(s) 1, asked to run on device 0");
  auto out = client().execute(*program,
                              std::vector{upload({1, 2, 3, 4}, 1), upload({1, 1, 1, 1}, 1)}, {}, 1);
  EXPECT_EQ(out[0]->device(), 1);
  EXPECT_EQ(read(out[0])[3], 5);
}

TEST_F(ClientTest, ProgramThatGivesOtherResultsThanAskedIsRefused) {
  EXPECT_NE(words_of([&] {
              compile(add_module(), {make_type(DType::kF64, std::vector<int64_t>{4})});
            }).find("not those asked for"),
            std::string::npos);
}

TEST_F(ClientTest, DonatedArgumentIsConsumedAndOthersAreNot) {
  auto program = compile(add_module(" {tf.aliasing_output = 0 : i32}"));
  auto x = upload({1, 2, 3, 4}), y = upload({1, 1, 1, 1});
  auto out = client().execute(*program, std::vector{x, y}, std::vector<uint8_t>{0, 0}, 0);
  EXPECT_FALSE(x->deleted()) << "not offered";
  EXPECT_EQ(read(x)[0], 1);
  out = client().execute(*program, std::vector{x, y}, {}, 0);
  EXPECT_FALSE(x->deleted()) << "nothing offered";
  out = client().execute(*program, std::vector{x, y}, std::vector<uint8_t>{1, 1}, 0);
  EXPECT_TRUE(x->deleted());
  EXPECT_FALSE(y->deleted()) << "the module does not let the plugin consume it";
  EXPECT_EQ(read(out[0]), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_NE(words_of([&] { read(x); }).find("deleted or donated"), std::string::npos);
}

TEST_F(ClientTest, LargeAlignedHostMemoryIsAliasedUntilTheDataDies) {
  constexpr int64_t kCount = 8192;
  auto bytes = test::aligned_bytes(kCount * 4);
  static_cast<float*>(bytes.get())[kCount - 1] = 7;
  std::weak_ptr<void> watch = bytes;
  const void* address = bytes.get();
  auto data =
      client().transfer_to_device({address, make_type(DType::kF32, std::vector{kCount}), bytes}, 0);
  bytes.reset();
  data->await();
  EXPECT_EQ(data->host_pointer(), address);
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(read(data)[kCount - 1], 7);
  data.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(ClientTest, SmallHostMemoryIsCopiedDuringTheCall) {
  float x = 3;
  auto data =
      client().transfer_to_device({&x, ir::scalar_type(DType::kF32), std::make_shared<int>()}, 0);
  x = 4;
  EXPECT_EQ(read(data)[0], 3);
}

TEST_F(ClientTest, EveryElementTypeMakesTheRoundTrip) {
  for (int i = 0; i < static_cast<int>(DType::kCount); ++i) {
    ir::Type t = make_type(static_cast<DType>(i), std::vector<int64_t>{2, 3});
    std::vector<unsigned char> in(static_cast<size_t>(t.bytes())), out(in.size());
    for (size_t k = 0; k < in.size(); ++k) in[k] = t.dtype() == DType::kPred ? k & 1 : k;
    client().transfer_from_device(*client().transfer_to_device({in.data(), t, nullptr}, 0),
                                  out.data());
    EXPECT_EQ(in, out) << t.text();
  }
}

TEST_F(ClientTest, EmptyTensorsCross) {
  ir::Type t = make_type(DType::kF32, std::vector<int64_t>{0, 3});
  auto data = client().transfer_to_device({nullptr, t, nullptr}, 0);
  client().transfer_from_device(*data, nullptr);
  EXPECT_EQ(data->type(), t);
}

TEST_F(ClientTest, StoredProgramRunsAndChecksAsStrictly) {
  auto program = compile(add_module(" {tf.aliasing_output = 0 : i32}"));
  std::string bytes = client().serialize(*program);
  auto loaded = client().deserialize(bytes, std::vector{kF32});
  auto x = upload({1, 2, 3, 4}), y = upload({1, 1, 1, 1});
  EXPECT_EQ(read(client().execute(*loaded, std::vector{x, y}, {}, 0)[0])[3], 5);
  EXPECT_FALSE(x->deleted()) << "donation is remembered";
  EXPECT_EQ(words_of([&] { client().execute(*loaded, std::vector{x, upload({1})}, {}, 0); }),
            "execute: argument 1: expected f32[4], got f32[1]");
}

TEST_F(ClientTest, StoredProgramOfAnotherEnvironmentIsRefused) {
  auto spec = test::cpu_spec(2);
  spec.compile_options[0].second = true;
  auto other = make_pjrt_client(spec);
  EXPECT_NE(client().environment_hash(), other->environment_hash());
  std::string bytes = client().serialize(*compile(add_module()));
  EXPECT_NE(
      words_of([&] { other->deserialize(bytes, std::vector{kF32}); }).find("another environment"),
      std::string::npos);
}

TEST_F(ClientTest, DamagedStoredProgramsAreRefused) {
  std::string bytes = client().serialize(*compile(add_module()));
  for (size_t cut : {0u, 5u, 21u, 40u, 60u, 80u, 100u})
    EXPECT_NE(words_of([&] { client().deserialize(bytes.substr(0, cut), std::vector{kF32}); }), "")
        << cut;
  EXPECT_NE(words_of([&] { client().deserialize(bytes, {}); }).find("not those asked for"),
            std::string::npos);
}

TEST_F(ClientTest, EnvironmentHashIsTheSameForTheSameEnvironment) {
  EXPECT_EQ(client().environment_hash(), make_pjrt_client(test::cpu_spec(2))->environment_hash());
  EXPECT_NE(client().environment_hash(), make_pjrt_client(test::cpu_spec(1))->environment_hash());
}

TEST(PluginVariables, ThoseThatTheRowNamesWithTheirValues) {
  PluginSpec spec{.variables = {"TP_TEST_ONE", "TP_TEST_MANY_*"}};
  setenv("TP_TEST_ONE", "1", 1);
  setenv("TP_TEST_MANY_B", "b", 1);
  setenv("TP_TEST_MANY_A", "", 1);
  setenv("TP_TEST_ONE_MORE", "no", 1);
  Variables expected{{"TP_TEST_MANY_A", ""}, {"TP_TEST_MANY_B", "b"}, {"TP_TEST_ONE", "1"}};
  EXPECT_EQ(plugin_variables(spec), expected);
  setenv("LIBTPU_INIT_ARGS", "--x", 1);
  Variables usual = plugin_variables({});
  EXPECT_NE(std::find(usual.begin(), usual.end(), Variables::value_type("LIBTPU_INIT_ARGS", "--x")),
            usual.end());
  for (const char* name :
       {"TP_TEST_ONE", "TP_TEST_MANY_A", "TP_TEST_MANY_B", "TP_TEST_ONE_MORE", "LIBTPU_INIT_ARGS"})
    unsetenv(name);
}

TEST_F(ClientTest, AVariableThatChangesIsNamedWhileItDiffers) {
  PluginSpec spec = test::cpu_spec(2);
  spec.variables = {"TP_TEST_FLAGS"};
  auto c = make_pjrt_client(spec);
  EXPECT_TRUE(c->changed_variables().empty());
  setenv("TP_TEST_FLAGS", "--new", 1);
  // The library was loaded before: what it found then is what counts.
  EXPECT_EQ(make_pjrt_client(spec)->changed_variables(), std::vector<std::string>{"TP_TEST_FLAGS"});
  EXPECT_EQ(c->changed_variables(), std::vector<std::string>{"TP_TEST_FLAGS"});
  unsetenv("TP_TEST_FLAGS");
  EXPECT_TRUE(c->changed_variables().empty());
}

TEST_F(ClientTest, FactsOfTheRowArePartOfTheEnvironment) {
  PluginSpec a = test::cpu_spec(2), b = a;
  b.facts = {{"driver", "2"}};
  EXPECT_NE(make_pjrt_client(a)->environment_hash(), make_pjrt_client(b)->environment_hash());
}

TEST_F(ClientTest, OnlyRealCompilesAreCounted) {
  auto& timer = probe::timer("Compile");
  int64_t before = timer.count();
  compile(add_module());
  EXPECT_EQ(timer.count(), before + 1);
  EXPECT_THROW(compile("module { func.func public @main() { nonsense } }", {}), Error);
  EXPECT_EQ(timer.count(), before + 1);
}

TEST_F(ClientTest, CrossingsAreStamped) {
  int64_t up = probe::timer("TransferToDevice").count(), run = probe::timer("Execute").count(),
          down = probe::timer("TransferFromDevice").count();
  auto program = compile(add_module());
  auto x = upload({1, 2, 3, 4});
  read(client().execute(*program, std::vector{x, x}, {}, 0)[0]);
  EXPECT_EQ(probe::timer("TransferToDevice").count(), up + 1);
  EXPECT_EQ(probe::timer("Execute").count(), run + 1);
  EXPECT_EQ(probe::timer("TransferFromDevice").count(), down + 1);
}

TEST_F(ClientTest, ReplicatedExecuteRunsEveryDeviceInTheCallersOrder) {
  std::string module = R"(
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {
    %0 = "stablehlo.all_reduce"(%arg0) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "stablehlo.add"(%0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%1) : (tensor<4xf32>) -> ()
  })";
  auto program =
      client().compile({.module = module, .outputs = std::span(&kF32, 1), .num_replicas = 2});
  std::vector<std::vector<DataPtr>> arguments{{upload({1, 1, 1, 1}, 1)},
                                              {upload({10, 10, 10, 10}, 0)}};
  auto out = client().execute_replicated(*program, arguments, std::vector{1, 0}, {});
  EXPECT_EQ(read(out[0][0])[0], 12);
  EXPECT_EQ(read(out[1][0])[0], 21);
  EXPECT_EQ(out[0][0]->device(), 1);
  EXPECT_NE(
      words_of([&] { client().execute_replicated(*program, arguments, std::vector{1, 1}, {}); }),
      "");
}

TEST_F(ClientTest, PartitionedProgramTakesAndGivesShards) {
  ir::Type whole = make_type(DType::kF32, std::vector<int64_t>{8});
  std::string module = R"(
  func.func public @main(%arg0: tensor<8xf32> {mhlo.sharding = "{devices=[2]0,1}"})
      -> (tensor<8xf32> {mhlo.sharding = "{devices=[2]0,1}"}) {
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    "func.return"(%0) : (tensor<8xf32>) -> ()
  })";
  shard::Ref halves = shard::make_sharding({{0, 1}, {{"x", 2}}}, {{"x"}});
  auto program = client().compile({.module = module,
                                   .outputs = std::span(&whole, 1),
                                   .num_partitions = 2,
                                   .spmd = true,
                                   .devices = {0, 1},
                                   .open_outputs = {false},
                                   .parameter_shardings = {halves},
                                   .output_shardings = {halves}});
  std::vector<std::vector<DataPtr>> arguments{{upload({1, 2, 3, 4}, 0)}, {upload({5, 6, 7, 8}, 1)}};
  auto out = client().execute_replicated(*program, arguments, std::vector{0, 1}, {});
  EXPECT_EQ(out[1][0]->type(), kF32);
  EXPECT_EQ(read(out[1][0]), (std::vector<float>{10, 12, 14, 16}));
  EXPECT_EQ(program->output_types()[0], whole);
  ASSERT_EQ(program->output_shardings().size(), 1u);
  EXPECT_EQ(program->output_shardings()[0]->text, "{devices=[2]<=[2]}");
  arguments[1][0] = upload({1, 2, 3, 4, 5, 6}, 1);
  EXPECT_NE(words_of([&] {
              client().execute_replicated(*program, arguments, std::vector{0, 1}, {});
            }).find("argument 0: expected f32[4], got f32[6]"),
            std::string::npos);
}

TEST_F(ClientTest, ManyParametersTravelAsOneTuple) {
  constexpr size_t kCount = 3300;
  std::string module = "func.func public @main(";
  for (size_t i = 0; i < kCount; ++i)
    append(module, cat(i ? ", " : "", "%a", i, ": tensor<4xf32>"));
  module +=
      ") -> (tensor<4xf32>) {\n%0 = \"stablehlo.add\"(%a0, %a3299) : (tensor<4xf32>, "
      "tensor<4xf32>) -> "
      "tensor<4xf32>\n\"func.return\"(%0) : (tensor<4xf32>) -> ()\n}";
  auto program = compile(module);
  std::vector<DataPtr> arguments(kCount, upload({1, 2, 3, 4}));
  arguments.back() = upload({1, 1, 1, 1});
  EXPECT_EQ(read(client().execute(*program, arguments, {}, 0)[0])[3], 5);
}

TEST_F(ClientTest, CpuProgramsMayCallThisProcess) { EXPECT_TRUE(has_host_calls(client())); }

TEST_F(ClientTest, ManyThreadsMayUseOneClient) {
  auto program = compile(add_module());
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto x = upload({0, 0, 0, 0}), one = upload({1, 1, 1, static_cast<float>(t)});
      for (int i = 0; i < 50; ++i) x = client().execute(*program, std::vector{x, one}, {}, 0)[0];
      good += read(x)[3] == 50.f * static_cast<float>(t);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(good, 4);
}

TEST_F(ClientTest, ReadingNeverSeesAProgramThatConsumesTheBuffer) {
  constexpr int64_t kCount = 1 << 20;
  ir::Type big = make_type(DType::kF32, std::vector{kCount});
  std::string module =
      cat("func.func public @main(%a: ", big.mlir(), " {tf.aliasing_output = 0 : i32}) -> (",
          big.mlir(), ") {\n%0 = \"stablehlo.add\"(%a, %a) : (", big.mlir(), ", ", big.mlir(),
          ") -> ", big.mlir(), "\n\"func.return\"(%0) : (", big.mlir(), ") -> ()\n}");
  auto program = compile(module, {big});
  int torn = 0;
  for (int round = 0; round < 40; ++round) {
    auto x = upload(std::vector<float>(kCount, 1));
    std::thread consumer(
        [&] { client().execute(*program, std::vector{x}, std::vector<uint8_t>{1}, 0); });
    std::vector<float> seen(kCount, 1);
    words_of([&] { client().transfer_from_device(*x, seen.data()); });  // may come too late: fine
    consumer.join();
    torn += std::count(seen.begin(), seen.end(), 1.f) != kCount;
  }
  EXPECT_EQ(torn, 0);
}

TEST(Signature, ReadsWhatALoweringWrites) {
  auto s = parse_signature(
      "module @m {\n func.func private @f(%x: tensor<f32>) -> tensor<f32>\n"
      " func.func public @main(%arg0: tensor<2x3xf32> {mhlo.sharding = \"{devices=[1,2]0,1)\", "
      "tf.aliasing_output = 1 : i32} loc(\"a)b\"), %arg1: tensor<i1>, %arg2: "
      "tensor<4xcomplex<f32>> "
      "{jax.buffer_donor = true}) -> (tensor<0xui8>, tensor<2xf8E4M3FN> {mhlo.sharding = \"{r}\"}) "
      "{");
  auto text = [](const auto& types) {
    std::string out;
    for (auto t : types) out += t.text() + " ";
    return out;
  };
  EXPECT_EQ(text(s.parameters), "f32[2,3] pred[] c64[4] ");
  EXPECT_EQ(text(s.results), "u8[0] f8e4m3fn[2] ");
  EXPECT_EQ(s.donatable, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(parse_signature(to_text(s)), s);
}

TEST(Signature, SingleResultNeedsNoBrackets) {
  EXPECT_EQ(parse_signature("func.func @main() -> tensor<f64> {").results.size(), 1u);
  EXPECT_TRUE(parse_signature("func.func @main() {").results.empty());
}

TEST(Signature, WhatCannotBeCheckedIsRefused) {
  EXPECT_NE(words_of([] { parse_signature("module {}"); }).find("no `func.func"),
            std::string::npos);
  EXPECT_NE(
      words_of([] { parse_signature("func.func @main(%a: tensor<?xf32>)"); }).find("not fixed"),
      std::string::npos);
  EXPECT_NE(words_of([] { parse_signature("func.func @main(%a: tensor<2xf32>"); }), "");
}

}  // namespace
}  // namespace tp::client
