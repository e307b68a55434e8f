// The fake plugin under our client: faults come where the script says, and leave the client usable.
#include <chrono>

#include "client/host_call.h"
#include "plugins_for_tests.h"
#include "probe/probe.h"

namespace tp::client {
namespace {

using ir::DType;
using test::words_of;

const ir::Type kType = ir::make_type(DType::kF32, std::vector<int64_t>{2, 3});
constexpr const char* kModule =
    "func.func public @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32> {jax.buffer_donor = true}) -> "
    "(tensor<2x3xf32>) {";

struct FakePluginTest : testing::Test {
  test::FakePlugin fake;
  std::unique_ptr<ComputationClient> client = make_pjrt_client(test::fake_spec(2));

  ExecutablePtr compile() {
    return client->compile({.module = kModule, .outputs = std::span(&kType, 1)});
  }
  DataPtr upload(float value = 1) {
    std::vector<float> v(6, value);
    return client->transfer_to_device({v.data(), kType, nullptr}, 0);
  }
  std::vector<float> read(const DataPtr& d) {
    std::vector<float> v(6, -1);
    client->transfer_from_device(*d, v.data());
    return v;
  }
  DataPtr run() { return client->execute(*compile(), std::vector{upload(), upload()}, {}, 0)[0]; }
};

TEST_F(FakePluginTest, ProgramsGiveZerosOfTheirResultTypes) {
  auto out = run();
  EXPECT_EQ(out->type(), kType);
  EXPECT_EQ(read(out), std::vector<float>(6, 0));
  EXPECT_EQ(read(upload(7)), std::vector<float>(6, 7));
}

TEST_F(FakePluginTest, CompileFaultHasItsCodeAndTheNextCompileWorks) {
  fake.script("compile:1=RESOURCE_EXHAUSTED no memory for this program");
  try {
    compile();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kOutOfMemory);
    EXPECT_STREQ(
        e.what(),
        "PJRT_Client_Compile failed with RESOURCE_EXHAUSTED [8]: no memory for this program");
  }
  EXPECT_EQ(read(run()), std::vector<float>(6, 0));
}

TEST_F(FakePluginTest, NthExecuteFailsAndOthersDoNot) {
  fake.script("execute:2=INTERNAL broken");
  run();
  EXPECT_EQ(words_of([&] { run(); }),
            "PJRT_LoadedExecutable_Execute failed with INTERNAL [13]: broken");
  run();
  EXPECT_EQ(fake.count("execute"), 3);
}

TEST_F(FakePluginTest, AsynchronousFaultIsToldWhenTheOutputIsAwaited) {
  fake.script("event:1=INTERNAL lost a chip");
  auto out = run();
  EXPECT_EQ(words_of([&] { out->await(); }),
            "PJRT_Event_Await failed with INTERNAL [13]: lost a chip");
  EXPECT_EQ(words_of([&] { read(out); }),
            "PJRT_Event_Await failed with INTERNAL [13]: lost a chip");
  EXPECT_EQ(read(run()), std::vector<float>(6, 0));
}

TEST_F(FakePluginTest, FailedInputFailsTheProgramsThatUseIt) {
  fake.script("event:1=INTERNAL lost a chip");
  auto bad = run();
  auto next = client->execute(*compile(), std::vector{bad, upload()}, {}, 0)[0];
  EXPECT_NE(words_of([&] { next->await(); }).find("lost a chip"), std::string::npos);
}

TEST_F(FakePluginTest, SlowProgramIsAwaited) {
  fake.script("slow:1=50");
  auto start = std::chrono::steady_clock::now();
  auto out = run();
  EXPECT_FALSE(out->ready());
  out->await();
  EXPECT_TRUE(out->ready());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
}

TEST_F(FakePluginTest, UploadFaultLetsTheOwnerGo) {
  fake.script("upload:1=RESOURCE_EXHAUSTED full");
  auto bytes = test::aligned_bytes(1 << 16);
  std::weak_ptr<void> watch = bytes;
  ir::Type type = ir::make_type(DType::kF32, std::vector<int64_t>{1 << 14});
  EXPECT_NE(
      words_of([&] { client->transfer_to_device({bytes.get(), type, bytes}, 0); }).find("full"),
      std::string::npos);
  bytes.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(FakePluginTest, DonationIsTheExecutesChoice) {
  auto program = compile();
  auto a = upload(), b = upload();
  client->execute(*program, std::vector{a, b}, {}, 0);
  EXPECT_FALSE(b->deleted());
  client->execute(*program, std::vector{a, b}, std::vector<uint8_t>{0, 1}, 0);
  EXPECT_TRUE(b->deleted());
  EXPECT_FALSE(a->deleted());
  EXPECT_NE(words_of([&] {
              client->execute(*program, std::vector{a, b}, {}, 0);
            }).find("deleted or donated"),
            std::string::npos);
}

TEST_F(FakePluginTest, StoredProgramRuns) {
  std::string bytes = client->serialize(*compile());
  auto program = client->deserialize(bytes, std::span(&kType, 1));
  EXPECT_EQ(read(client->execute(*program, std::vector{upload(), upload()}, {}, 0)[0]),
            std::vector<float>(6, 0));
  fake.script("deserialize:1=DATA_LOSS bad disk; serialize:1=INTERNAL no");
  EXPECT_NE(words_of([&] {
              client->deserialize(bytes, std::span(&kType, 1));
            }).find("DATA_LOSS [15]: bad disk"),
            std::string::npos);
  EXPECT_NE(words_of([&] { client->serialize(*program); }).find("INTERNAL [13]: no"),
            std::string::npos);
}

TEST_F(FakePluginTest, BuffersOfAnAcceleratorAreCopied) {
  auto data = upload(5);
  setenv("TORCH_PJRT_FAKE_OFF_HOST", "1", 1);
  EXPECT_EQ(data->host_pointer(), nullptr);
  EXPECT_EQ(read(data), std::vector<float>(6, 5));
  EXPECT_EQ(fake.count("download"), 1);
  fake.script("download:1=UNAVAILABLE cable");
  EXPECT_NE(words_of([&] {
              read(data);
            }).find("PJRT_Buffer_ToHostBuffer failed with UNAVAILABLE [14]: cable"),
            std::string::npos);
  unsetenv("TORCH_PJRT_FAKE_OFF_HOST");
}

TEST_F(FakePluginTest, NothingIsLeakedByFaults) {
  long before = fake.count("buffers");
  fake.script(
      "execute:1=INTERNAL a; event:2=INTERNAL b; upload:9=INTERNAL c; deserialize:1=INTERNAL d");
  for (int i = 0; i < 10; ++i) words_of([&] { run(); });
  EXPECT_EQ(fake.count("buffers"), before);
}

TEST_F(FakePluginTest, ReplicatedExecuteUsesAllDevices) {
  auto program =
      client->compile({.module = kModule, .outputs = std::span(&kType, 1), .num_replicas = 2});
  std::vector<float> v(6, 1);
  std::vector<std::vector<DataPtr>> arguments;
  for (int d : {0, 1}) {
    auto x = client->transfer_to_device({v.data(), kType, nullptr}, d);
    arguments.push_back({x, x});
  }
  auto out = client->execute_replicated(*program, arguments, std::vector{0, 1}, {});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1][0]->device(), 1);
  EXPECT_FALSE(arguments[1][1]->deleted());
}

TEST_F(FakePluginTest, HasNoHostCalls) {
  EXPECT_FALSE(has_host_calls(*client));
  EXPECT_NE(
      words_of([&] { register_host_call(*client, "f", nullptr); }).find("cannot call this process"),
      std::string::npos);
}

TEST_F(FakePluginTest, UnreadableScriptsAreRefused) {
  for (const char* bad :
       {"compile", "compile:1", "compile:0=INTERNAL x", "compile:1=NO_SUCH_CODE x", "=:"})
    EXPECT_FALSE(fake.reads(bad)) << bad;
  EXPECT_TRUE(fake.reads(" ; compile:1 = INTERNAL ; "));
}

}  // namespace
}  // namespace tp::client
