// src/pjrt on a real CPU plugin: one test a promise.
#if __has_include(<xla/ffi/api/c_api.h>)
#include <xla/ffi/api/c_api.h>
#endif
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/text.h"
#include "pjrt/client.h"
#include "pjrt/custom_call.h"
#include "plugins_for_tests.h"

namespace tp::pjrt {
namespace {

using test::words_of;

constexpr const char* kAddOne = R"(
module @add_one {
  func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = "stablehlo.constant"() {value = dense<1.0> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
    %1 = "stablehlo.add"(%arg0, %0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%1) : (tensor<2x3xf32>) -> ()
  }
})";

const Plugin& plugin() { return Plugin::load(test::cpu_plugin_path()); }

std::shared_ptr<Client> make_client(int64_t devices = 1) {
  std::vector<std::pair<std::string, OptionValue>> options{{"cpu_device_count", devices}};
  return std::make_shared<Client>(plugin(), options);
}

Buffer upload(const Client& client, const std::vector<float>& values, std::vector<int64_t> dims,
              int device = 0) {
  return client.from_host({values.data(), PJRT_Buffer_Type_F32, dims, nullptr},
                          client.devices()[device]);
}

std::vector<float> download(const Buffer& buffer, size_t n) {
  std::vector<float> out(n);
  buffer.copy_to_host(out.data(), n * sizeof(float)).await();
  return out;
}

std::vector<Buffer> run(const Client& client, const Executable& program,
                        std::vector<PJRT_Buffer*> arguments, size_t num_outputs,
                        std::vector<int64_t> keep = {}) {
  std::vector<PJRT_Buffer*> outputs(num_outputs);
  PJRT_Buffer* const* in = arguments.data();
  PJRT_Buffer** out = outputs.data();
  program.execute({&in, 1}, arguments.size(), {&out, 1}, keep);
  std::vector<Buffer> result;
  for (PJRT_Buffer* b : outputs) result.emplace_back(client.api(), b);
  return result;
}

std::string hex(const std::string& bytes) {
  std::string out;
  for (unsigned char c : bytes) {
    out += "0123456789abcdef"[c >> 4];
    out += "0123456789abcdef"[c & 15];
  }
  return out;
}

TEST(Plugin, OneLibraryIsLoadedOnce) {
  EXPECT_EQ(&plugin(), &Plugin::load(test::cpu_plugin_path()));
}

TEST(Plugin, SaysItsVersions) {
  EXPECT_EQ(plugin().api_major(), PJRT_API_MAJOR);
  bool found = false;
  for (const auto& [name, value] : plugin().attributes())
    if (name == "stablehlo_current_version") found = value.find('.') != value.npos;
  EXPECT_TRUE(found);
}

TEST(Plugin, MissingFileIsOneClearLine) {
  EXPECT_EQ(words_of([] { Plugin::load("/no/such/plugin.so"); }),
            "PJRT plugin library not found: /no/such/plugin.so");
}

TEST(Plugin, LibraryWithoutGetPjrtApiIsNamed) {
  std::string words = words_of([] { Plugin::load("/lib/x86_64-linux-gnu/libm.so.6"); });
  EXPECT_NE(words.find("exports no GetPjrtApi"), words.npos) << words;
}

TEST(Plugin, FileThatIsNoLibraryGivesTheLoadersWords) {
  std::string words = words_of([] { Plugin::load("/etc/passwd"); });
  EXPECT_NE(words.find("PJRT plugin cannot be loaded: "), words.npos) << words;
}

TEST(Call, KnowsTheCNameOfItsEntry) {
  EXPECT_EQ(detail::name<&PJRT_Api::PJRT_Client_Compile>(), "PJRT_Client_Compile");
}

TEST(Call, EntryBeyondAnOldPluginsTableIsAnErrorNotACrash) {
  PJRT_Api old = *plugin().api();
  old.struct_size = offsetof(PJRT_Api, PJRT_Client_Create);
  std::string words = words_of([&] { call<&PJRT_Api::PJRT_Client_Create>(&old, {}); });
  EXPECT_NE(words.find("PJRT_Client_Create: the plugin does not have this function"), words.npos)
      << words;
}

// A newer plugin knows of fields that our header lacks (docs/design/0006-cpu-plugins.md).
TEST(Call, ANewerPluginWritesNothingBehindTheSizeThatItIsTold) {
  using Args = PJRT_Executable_GetCompiledMemoryStats_Args;
  const PJRT_Api* api = plugin().api();
  PJRT_Client* client = call<&PJRT_Api::PJRT_Client_Create>(api, {}).client;
  std::string module = kAddOne, options = encode_compile_options(CompileOptions{});
  PJRT_Program text{.struct_size = sizeof(PJRT_Program),
                    .code = module.data(),
                    .code_size = module.size(),
                    .format = "mlir",
                    .format_size = 4};
  auto loaded = call<&PJRT_Api::PJRT_Client_Compile>(api, {.client = client,
                                                           .program = &text,
                                                           .compile_options = options.data(),
                                                           .compile_options_size = options.size()})
                    .executable;
  struct {
    Args args{};
    std::array<int64_t, 16> behind;
  } room;
  room.behind.fill(-77);
  room.args.struct_size = sizeof(Args);
  room.args.executable =
      call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(api, {.loaded_executable = loaded})
          .executable;
  EXPECT_EQ(api->PJRT_Executable_GetCompiledMemoryStats(&room.args), nullptr);
  EXPECT_EQ(room.args.output_size_in_bytes, 24);
  for (int64_t v : room.behind) EXPECT_EQ(v, -77);
  destroy<&PJRT_Api::PJRT_Executable_Destroy>(api, {.executable = room.args.executable});
  destroy<&PJRT_Api::PJRT_LoadedExecutable_Destroy>(api, {.executable = loaded});
  destroy<&PJRT_Api::PJRT_Client_Destroy>(api, {.client = client});
}

TEST(Call, NullEntryCountsAsMissing) {
  PJRT_Api holes = *plugin().api();
  holes.PJRT_Client_DmaMap = nullptr;
  EXPECT_FALSE(has<&PJRT_Api::PJRT_Client_DmaMap>(&holes));
  EXPECT_TRUE(has<&PJRT_Api::PJRT_Client_Compile>(&holes));
}

TEST(Call, PluginsCodesBecomeOurs) {
  EXPECT_EQ(to_error("f", {PJRT_Error_Code_RESOURCE_EXHAUSTED, "w"}).code(), Code::kOutOfMemory);
  EXPECT_EQ(to_error("f", {PJRT_Error_Code_UNIMPLEMENTED, "w"}).code(), Code::kNotImplemented);
  EXPECT_EQ(to_error("f", {PJRT_Error_Code_INVALID_ARGUMENT, "w"}).code(), Code::kRuntime);
  EXPECT_STREQ(to_error("f", {PJRT_Error_Code_INTERNAL, "w"}).what(),
               "f failed with INTERNAL [13]: w");
}

TEST(Client, DeviceCountOptionIsObeyed) {
  EXPECT_EQ(make_client(1)->devices().size(), 1u);
  auto client = make_client(3);
  ASSERT_EQ(client->devices().size(), 3u);
  EXPECT_EQ(client->devices()[2].id(), 2);
  EXPECT_EQ(client->devices()[2].kind(), "cpu");
  EXPECT_EQ(client->platform_name(), "cpu");
}

TEST(Client, MissingMemoryStatisticsAreNotAnError) {
  EXPECT_FALSE(make_client()->devices()[0].memory_stats().has_value());
}

TEST(Compile, ModuleRunsAndGivesItsValues) {
  auto client = make_client();
  Executable program = client->compile(kAddOne, {});
  Buffer x = upload(*client, {1, 2, 3, 4, 5, 6}, {2, 3});
  auto out = run(*client, program, {x.raw()}, 1);
  EXPECT_EQ(download(out[0], 6), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(out[0].element_type(), PJRT_Buffer_Type_F32);
  EXPECT_EQ(std::vector<int64_t>(out[0].dims().begin(), out[0].dims().end()),
            (std::vector<int64_t>{2, 3}));
}

TEST(Compile, OutputTypesAreKnown) {
  auto types = make_client()->compile(kAddOne, {}).output_types();
  ASSERT_TRUE(types && types->size() == 1);
  EXPECT_EQ((*types)[0].element_type, PJRT_Buffer_Type_F32);
  EXPECT_EQ((*types)[0].dims, (std::vector<int64_t>{2, 3}));
}

TEST(Compile, ErrorHasFunctionCodeAndThePluginsWords) {
  std::string words = words_of([] { make_client()->compile("module { nonsense }", {}); });
  EXPECT_TRUE(words.starts_with("PJRT_Client_Compile failed with ")) << words;
  EXPECT_NE(words.find("nonsense"), words.npos) << words;
}

TEST(Compile, OurDefaultDebugOptionsAreAccepted) {
  CompileOptions options;
  options.overrides = {{"xla_cpu_enable_fast_min_max", false},
                       {"xla_allow_excess_precision", false}};
  make_client()->compile(kAddOne, options);
}

TEST(Compile, UnknownDebugOptionIsRefusedByName) {
  CompileOptions options;
  options.overrides = {{"xla_no_such_flag", true}};
  std::string words = words_of([&] { make_client()->compile(kAddOne, options); });
  EXPECT_NE(words.find("xla_no_such_flag"), words.npos) << words;
}

TEST(Compile, EveryKindOfOverrideReachesThePlugin) {
  for (OptionValue wrong : {OptionValue("nonsense"), OptionValue(int64_t{7}), OptionValue(2.5)}) {
    CompileOptions options;
    options.overrides = {{"xla_cpu_enable_fast_min_max", wrong}};
    std::string words = words_of([&] { make_client()->compile(kAddOne, options); });
    EXPECT_NE(words.find("xla_cpu_enable_fast_min_max"), words.npos)
        << wrong.index() << ": " << words;
  }
}

TEST(Compile, DeviceAssignmentChoosesTheDevice) {
  auto client = make_client(3);
  CompileOptions options;
  options.device_ids = {2};
  Executable program = client->compile(kAddOne, options);
  ASSERT_EQ(program.devices().size(), 1u);
  EXPECT_EQ(program.devices()[0].id(), 2);
  Buffer x = upload(*client, {0, 0, 0, 0, 0, 0}, {2, 3}, 2);
  EXPECT_EQ(download(run(*client, program, {x.raw()}, 1)[0], 6)[5], 1);
}

TEST(Compile, ReplicasRunOnTheirDevices) {
  auto client = make_client(2);
  CompileOptions options;
  options.num_replicas = 2;
  options.device_ids = {1, 0};
  Executable program = client->compile(kAddOne, options);
  ASSERT_EQ(program.devices().size(), 2u);
  EXPECT_EQ(program.devices()[0].id(), 1);
}

TEST(CompileOptions, BytesAreTheWireFormat) {
  CompileOptions options;
  EXPECT_EQ(
      encode_compile_options(options),
      std::string("\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01", 17));
}

// jaxlib 0.10.2's CompileOptions.ParseFromString reads these bytes back as exactly these options.
TEST(CompileOptions, AllFieldsAreWhereXlaReadsThem) {
  CompileOptions o;
  o.num_replicas = 2;
  o.num_partitions = 3;
  o.device_ids = {0, 1, 2, 3, 4, 5};
  o.use_spmd_partitioning = o.use_shardy_partitioner = o.tuple_parameters = true;
  o.propagate_to_output = {true, false};
  o.propagate_to_parameters = {false, true, true};
  o.overrides = {
      {"xla_cpu_enable_fast_min_max", false}, {"b", "text"}, {"c", int64_t{-5}}, {"a", 2.5}};
  EXPECT_EQ(
      hex(encode_compile_options(o)),
      "10011a3608ffffffffffffffffff012002280330014a16080210031a040a0200031a040a0201041a040a020205"
      "620201009201030001019801013a0e0a016112092100000000000004403a0b0a016212060a04746578743a100a"
      "0163120b18fbffffffffffffffff013a210a1b786c615f6370755f656e61626c655f666173745f6d696e5f6d61"
      "7812021000");
}

TEST(CompileOptions, OrderOfOverridesDoesNotMatter) {
  CompileOptions a, b;
  a.overrides = {{"a", true}, {"b", int64_t{3}}};
  b.overrides = {{"b", int64_t{3}}, {"a", true}};
  EXPECT_EQ(encode_compile_options(a), encode_compile_options(b));
}

TEST(CompileOptions, WrongNumberOfDevicesIsRefused) {
  CompileOptions options;
  options.num_replicas = 2;
  options.device_ids = {0};
  EXPECT_NE(words_of([&] { encode_compile_options(options); }).find("1 devices assigned"),
            std::string::npos);
}

TEST(Serialize, ProgramSurvivesARoundTrip) {
  auto client = make_client();
  std::string bytes = client->compile(kAddOne, {}).serialize();
  EXPECT_GT(bytes.size(), 100u);
  Executable program = client->deserialize(bytes);
  Buffer x = upload(*client, {1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(download(run(*client, program, {x.raw()}, 1)[0], 6)[0], 2);
}

TEST(Serialize, JunkIsAnErrorNotACrash) {
  auto client = make_client();
  std::string words = words_of([&] { client->deserialize("junk"); });
  EXPECT_TRUE(words.starts_with("PJRT_Executable_DeserializeAndLoad failed with ")) << words;
}

TEST(Buffer, AlignedHostMemoryIsUsedInPlaceAndItsOwnerLetGo) {
  auto client = make_client();
  auto bytes = test::aligned_bytes(4096);
  std::weak_ptr<void> watch = bytes;
  std::vector<int64_t> dims{1024};
  void* address = bytes.get();
  {
    Buffer b =
        client->from_host({bytes.get(), PJRT_Buffer_Type_F32, dims, bytes}, client->devices()[0]);
    b.ready_event().await();
    EXPECT_EQ(b.host_pointer(), address);
    bytes.reset();
    EXPECT_FALSE(watch.expired()) << "freed while the device may read it";
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Buffer, UnalignedHostMemoryIsCopiedAndItsOwnerLetGo) {
  auto client = make_client();
  auto bytes = test::aligned_bytes(4096 + 4);
  std::weak_ptr<void> watch = bytes;
  std::vector<int64_t> dims{1024};
  const char* data = static_cast<const char*>(bytes.get()) + 4;
  Buffer b = client->from_host({data, PJRT_Buffer_Type_F32, dims, bytes}, client->devices()[0]);
  b.ready_event().await();
  EXPECT_NE(b.host_pointer(), data);
  bytes.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(Buffer, ResultsAreReadInPlace) {
  auto client = make_client();
  Executable program = client->compile(kAddOne, {});
  Buffer x = upload(*client, {1, 2, 3, 4, 5, 6}, {2, 3});
  auto out = run(*client, program, {x.raw()}, 1);
  out[0].ready_event().await();
  ASSERT_TRUE(out[0].is_on_cpu());
  EXPECT_EQ(static_cast<const float*>(out[0].host_pointer())[5], 7);
}

TEST(Buffer, ErasedBufferFailsAtTheEventWithThePluginsWords) {
  auto client = make_client();
  Buffer x = upload(*client, {1}, {1});
  x.erase();
  EXPECT_TRUE(x.is_deleted());
  std::string words = words_of([&] { x.ready_event().await(); });
  EXPECT_NE(words.find("deleted or donated"), words.npos) << words;
}

TEST(Buffer, HoldKeepsABufferFromBeingDonated) {
  auto client = make_client();
  std::string donor = kAddOne;
  donor.replace(donor.find("tensor<2x3xf32>)"), 15,
                "tensor<2x3xf32> {tf.aliasing_output = 0 : i32}");
  Executable program = client->compile(donor, {});
  Buffer x = upload(*client, {1, 2, 3, 4, 5, 6}, {2, 3});
  {
    auto hold = x.hold();
    run(*client, program, {x.raw()}, 1);
    EXPECT_FALSE(x.is_deleted());
  }
  run(*client, program, {x.raw()}, 1, {0});
  EXPECT_FALSE(x.is_deleted()) << "listed as not donatable";
  run(*client, program, {x.raw()}, 1);
  EXPECT_TRUE(x.is_deleted());
}

TEST(Event, CallbackRunsOnce) {
  auto client = make_client();
  Buffer x = upload(*client, {1}, {1});
  std::atomic<int> calls = 0;
  Event event = x.ready_event();
  event.on_ready([&](std::optional<Failure> failure) {
    EXPECT_FALSE(failure);
    ++calls;
  });
  event.await();
  for (int i = 0; i < 1000 && !calls; ++i) usleep(1000);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(event.ready());
  EXPECT_FALSE(event.error());
}

// Multiplies its operand by the attribute `k`; refuses k = 0.
ffi::Error* times_k(ffi::Frame* frame) {
  if (ffi::answered_version(frame)) return nullptr;
  int64_t k = ffi::integer(*frame, "k", 0);
  if (k == 0) return ffi::failure(*frame, "my handler says no");
  const ffi::Buffer &in = frame->argument(0), &out = frame->result(0);
  for (int64_t i = 0; i < in.dims[0]; ++i)
    static_cast<float*>(out.data)[i] = static_cast<float>(k) * static_cast<float*>(in.data)[i];
  return nullptr;
}

std::string call_times_k(int k) {
  return cat(
      "func.func public @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {\n"
      "%0 = \"stablehlo.custom_call\"(%arg0) {call_target_name = \"test_times_k\", "
      "api_version = 4 : i32, backend_config = {k = ",
      k,
      " : i64}} : "
      "(tensor<3xf32>) -> tensor<3xf32>\n"
      "\"func.return\"(%0) : (tensor<3xf32>) -> ()\n}");
}

TEST(CustomCall, RegisteredFunctionRunsInsideAProgram) {
  ASSERT_TRUE(has_custom_calls(plugin().api()));
  register_custom_call(plugin(), "test_times_k", "Host", times_k);
  auto client = make_client();
  Executable program = client->compile(call_times_k(5), {});
  Buffer x = upload(*client, {1, 2, 3}, {3});
  EXPECT_EQ(download(run(*client, program, {x.raw()}, 1)[0], 3), (std::vector<float>{5, 10, 15}));
}

TEST(CustomCall, FailureOfTheFunctionFailsTheProgramWithItsWords) {
  register_custom_call(plugin(), "test_times_k", "Host", times_k);
  auto client = make_client();
  Executable program = client->compile(call_times_k(0), {});
  Buffer x = upload(*client, {1, 2, 3}, {3});
  std::string words =
      words_of([&] { run(*client, program, {x.raw()}, 1)[0].ready_event().await(); });
  EXPECT_NE(words.find("my handler says no"), words.npos) << words;
}

// Fails with the words of its text attribute, its code the sum of its integers.
ffi::Error* raise(ffi::Frame* frame) {
  if (ffi::answered_version(frame) || frame->stage != 3) return nullptr;
  int64_t sum = 0;
  for (int64_t i : ffi::integers(*frame, "numbers")) sum += i;
  return ffi::failure(*frame, static_cast<Code>(sum), ffi::text(*frame, "words"));
}

TEST(CustomCall, ErrorWithACodeComesOutOfTheProgramAsItself) {
  register_custom_call(plugin(), "test_raise", "Host", raise);
  auto client = make_client();
  std::string module =
      "func.func public @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {\n"
      "%0 = \"stablehlo.custom_call\"(%arg0) {call_target_name = \"test_raise\", api_version = 4 : "
      "i32, backend_config = {node = 7 : i64, numbers = array<i64: 1, 2>, words = \"no such "
      "[[x]]\"}} "
      ": (tensor<3xf32>) -> tensor<3xf32>\n\"func.return\"(%0) : (tensor<3xf32>) -> ()\n}";
  Executable program = client->compile(module, {});
  Buffer x = upload(*client, {1, 2, 3}, {3});
  try {
    run(*client, program, {x.raw()}, 1)[0].ready_event().await();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kValue);
    EXPECT_EQ(e.message(), "no such [[x]]");
    EXPECT_EQ(e.raised_by(), 7);
  }
}

TEST(CustomCall, PluginsOwnErrorsAreNotAHandlers) {
  EXPECT_FALSE(ffi::raised_by_handler("INTERNAL: out of luck [[end]]"));
  EXPECT_FALSE(ffi::raised_by_handler(""));
}

#if __has_include(<xla/ffi/api/c_api.h>)
// Our layout is XLA's, wherever its header is at hand (jaxlib ships it).
static_assert(sizeof(ffi::Buffer) == sizeof(XLA_FFI_Buffer));
static_assert(offsetof(ffi::Buffer, dims) == offsetof(XLA_FFI_Buffer, dims));
static_assert(offsetof(ffi::Buffers, items) == offsetof(XLA_FFI_Args, args));
static_assert(offsetof(ffi::Buffers, items) == offsetof(XLA_FFI_Rets, rets));
static_assert(offsetof(ffi::Attributes, values) == offsetof(XLA_FFI_Attrs, attrs));
static_assert(offsetof(ffi::Number, value) == offsetof(XLA_FFI_Scalar, value));
static_assert(offsetof(ffi::Array, data) == offsetof(XLA_FFI_Array, data));
static_assert(offsetof(ffi::Text, size) == offsetof(XLA_FFI_ByteSpan, len));
static_assert(offsetof(ffi::Api, version) == offsetof(XLA_FFI_Api, api_version));
static_assert(offsetof(ffi::Api, error_create) == offsetof(XLA_FFI_Api, XLA_FFI_Error_Create));
static_assert(offsetof(ffi::ErrorCreateArgs, code) == offsetof(XLA_FFI_Error_Create_Args, errc));
static_assert(offsetof(ffi::Frame, arguments) == offsetof(XLA_FFI_CallFrame, args));
static_assert(offsetof(ffi::Frame, attributes) == offsetof(XLA_FFI_CallFrame, attrs));
#endif

}  // namespace
}  // namespace tp::pjrt
