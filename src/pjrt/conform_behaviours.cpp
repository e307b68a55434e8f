// What this library leans on several calls for: failures in words, donation, threads, several
// devices.
#include <cstring>
#include <exception>
#include <set>
#include <thread>

#include "base/text.h"
#include "pjrt/conform_rows.h"

namespace tp::pjrt::conform {
namespace {

// The plugin's own error of f(). Unmet where there is none.
template <class F>
std::string refused(std::string_view what, F f) {
  try {
    f();
  } catch (const Error& e) {
    expect(e.message().find("]: ") + 3 < e.message().size(), cat(what, " fails without words"));
    return e.message().substr(0, e.message().find('\n'));
  }
  throw Unmet{cat(what, " is no error")};
}

std::string bad_module(Rig& rig) {
  std::string words = refused("'this is no module'", [&] { rig.compile("this is no module"); });
  Executable after = rig.doubling();
  return words;
}

std::string bad_types(Rig& rig) {
  std::string text = kDouble;
  text.replace(text.find("-> tensor<2x3xf32>"), 18, "-> tensor<7x7xf32>");
  return refused("a module whose types do not fit", [&] { rig.compile(text); });
}

std::string deleted_argument(Rig& rig) {
  Executable program = rig.doubling();
  Buffer in = rig.upload();
  in.erase();
  return refused("a deleted argument", [&] {
    Buffer out = rig.run(program, {in.raw()});
    out.ready_event().await();
  });
}

std::string junk_program(Rig& rig) {
  std::string junk(2000, '\x5a');
  return refused("junk", [&] { rig.client().deserialize(junk); });
}

std::string unknown_option(Rig& rig) {
  CompileOptions options = rig.options();
  options.overrides.emplace_back("torch_pjrt_has_no_such_option", true);
  return refused("an unknown compile option", [&] { rig.client().compile(kDouble, options); });
}

std::string levels(Rig& rig) {
  CompileOptions options = rig.options();
  options.optimization_level = level_number("O1");
  Executable program = rig.client().compile(kDouble, options);
  Buffer in = rig.upload();
  expect_floats("twice the argument", Rig::download(rig.run(program, {in.raw()}), 6),
                Rig::doubled());
  return {};
}

// ---- values

std::string empty_tensor(Rig& rig) {
  Executable program = rig.compile(R"(
module @empty {
  func.func public @main(%arg0: tensor<0x3xf32>) -> tensor<0x3xf32> {
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<0x3xf32>, tensor<0x3xf32>) -> tensor<0x3xf32>
    "func.return"(%0) : (tensor<0x3xf32>) -> ()
  }
})");
  alignas(64) static constexpr float kNone[16] = {};
  std::vector<int64_t> dims{0, 3};
  Buffer in = rig.client().from_host({kNone, PJRT_Buffer_Type_F32, dims, nullptr}, rig.device());
  rig.run(program, {in.raw()}).ready_event().await();
  return {};
}

std::string row_major_results(Rig& rig) {
  Executable program = rig.compile(R"(
module @turned {
  func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<3x2xf32> {
    %0 = "stablehlo.transpose"(%arg0) {permutation = array<i64: 1, 0>}
      : (tensor<2x3xf32>) -> tensor<3x2xf32>
    "func.return"(%0) : (tensor<3x2xf32>) -> ()
  }
})");
  Buffer in = rig.upload();
  const Floats& x = Rig::input();
  expect_floats("the transpose", Rig::download(rig.run(program, {in.raw()}), 6),
                {x[0], x[3], x[1], x[4], x[2], x[5]});
  return {};
}

std::string zero_copy(Rig& rig) {
  struct alignas(64) Block {
    float values[1024];
  };
  auto block = std::make_shared<Block>();
  for (int i = 0; i < 1024; ++i) block->values[i] = static_cast<float>(i);
  std::vector<int64_t> dims{1024};
  Buffer in =
      rig.client().from_host({block->values, PJRT_Buffer_Type_F32, dims, block}, rig.device());
  in.ready_event().await();
  expect_floats("what came back", Rig::download(in, 1024),
                Floats(block->values, block->values + 1024));
  if (!in.is_on_cpu()) throw NotTried{"device memory is not the host's"};
  if (in.host_pointer() != block->values) fail(Code::kNotImplemented, "the bytes are copied");
  return {};
}

std::string one_tuple(Rig& rig) {
  constexpr int kMany = 4000;
  std::string parameters;
  for (int i = 0; i < kMany; ++i) parameters += cat(i ? ", " : "", "%arg", i, ": tensor<f32>");
  std::string text =
      cat("module @many {\n  func.func public @main(", parameters,
          ") -> tensor<f32> {\n    %0 = \"stablehlo.add\"(%arg0, %arg", kMany - 1,
          ") : (tensor<f32>, tensor<f32>) -> tensor<f32>\n    \"func.return\"(%0) : (tensor<f32>) "
          "-> ()\n  }\n}\n");
  CompileOptions options = rig.options();
  options.tuple_parameters = true;
  Executable program = rig.client().compile(text, options);
  Buffer two = rig.upload({2}, {}), three = rig.upload({3}, {});
  std::vector<PJRT_Buffer*> arguments(kMany, two.raw());
  arguments.back() = three.raw();
  expect_floats("first and last of 4000", Rig::download(rig.run(program, arguments), 1), {5});
  return {};
}

// ---- donation

std::string donation(Rig& rig) {
  Executable program = rig.compile(kDoubleInPlace);
  Buffer in = rig.upload();
  in.ready_event().await();
  const void* before = in.is_on_cpu() ? in.host_pointer() : nullptr;
  Buffer out = rig.run(program, {in.raw()});
  expect_floats("twice the donated argument", Rig::download(out, 6), Rig::doubled());
  if (!in.is_deleted()) fail(Code::kNotImplemented, "the argument is kept: nothing is donated");
  bool there = before && out.host_pointer() == before;
  return there ? "the result lies where the argument was" : "the argument is gone";
}

std::string declined_donation(Rig& rig) {
  Executable program = rig.compile(kDoubleInPlace);
  Buffer in = rig.upload();
  Buffer out = rig.run(program, {in.raw()}, {0});
  expect_floats("twice the argument", Rig::download(out, 6), Rig::doubled());
  expect(!in.is_deleted(), "an argument in non_donatable_input_indices is gone");
  expect_floats("the argument that was kept", Rig::download(in, 6), Rig::input());
  return {};
}

// ---- threads and runs

std::string in_flight(Rig& rig) {
  constexpr int kRuns = 200;
  Executable program = rig.doubling();
  Buffer in = rig.upload();
  std::vector<Buffer> results;
  for (int i = 0; i < kRuns; ++i) results.push_back(rig.run(program, {in.raw()}));
  for (const Buffer& b : results)
    expect_floats("twice the argument", Rig::download(b, 6), Rig::doubled());
  return {};
}

std::string two_threads(Rig& rig) {
  rig.client();  // made by this thread
  std::exception_ptr failed[2];
  auto work = [&rig](std::exception_ptr& out) {
    try {
      for (int i = 0; i < 8; ++i) {
        Executable program = rig.doubling();
        for (int run = 0; run < 8; ++run) {
          Buffer in = rig.upload();
          expect_floats("twice the argument", Rig::download(rig.run(program, {in.raw()}), 6),
                        Rig::doubled());
        }
      }
    } catch (...) {
      out = std::current_exception();
    }
  };
  std::thread other([&] { work(failed[0]); });
  work(failed[1]);
  other.join();
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
  return {};
}

// ---- several devices

std::vector<int64_t> ids(Rig& rig, size_t least) {
  std::vector<int64_t> out;
  for (const Device& d : rig.client().devices()) out.push_back(d.id());
  if (out.size() < least) throw NotTried{cat("it has ", out.size(), " device here")};
  return out;
}

std::string each_device(Rig& rig) {
  std::vector<int64_t> all = ids(rig, 2);
  for (size_t i = 0; i < all.size(); ++i) {
    Executable program = rig.client().compile(kDouble, rig.options({all[i]}));
    Buffer in = rig.upload(Rig::input(), {2, 3}, i);
    expect_floats(cat("twice the argument on device ", i),
                  Rig::download(rig.run(program, {in.raw()}), 6), Rig::doubled());
  }
  return cat(all.size(), " devices");
}

// The sum over all of f32[8], cut in two: an all-reduce of the halves' sums.
std::string partitioned(Rig& rig, std::string_view mesh, std::string_view sharding, bool shardy) {
  std::vector<int64_t> all = ids(rig, 2);
  std::string text =
      cat("module @parts attributes {mhlo.num_partitions = 2 : i32, ",
          "mhlo.num_replicas = 1 : i32} {\n", mesh,
          "  func.func public @main(%arg0: tensor<8xf32> {", sharding, R"(}) -> tensor<f32> {
    %0 = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %1 = "stablehlo.reduce"(%arg0, %0) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %2 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        "stablehlo.return"(%2) : (tensor<f32>) -> ()
      }) {dimensions = array<i64: 0>} : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    "func.return"(%1) : (tensor<f32>) -> ()
  }
})");
  CompileOptions options = rig.options({all[0], all[1]});
  options.use_spmd_partitioning = true;
  options.use_shardy_partitioner = shardy;
  Executable program = rig.client().compile(text, options);
  Buffer low = rig.upload({1, 2, 3, 4}, {4}, 0), high = rig.upload({5, 6, 7, 8}, {4}, 1);
  PJRT_Buffer *in[2] = {low.raw(), high.raw()}, *out[2] = {};
  PJRT_Buffer* const* in_lists[2] = {&in[0], &in[1]};
  PJRT_Buffer** out_lists[2] = {&out[0], &out[1]};
  program.execute(in_lists, 1, out_lists, {});
  for (PJRT_Buffer* b : out)
    expect_floats("the sum over two devices", Rig::download(Buffer(rig.api(), b), 1), {36});
  return {};
}

std::string shardy(Rig& rig) {
  return partitioned(rig, "  sdy.mesh @mesh = <[\"x\"=2]>\n",
                     "sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}]>", true);
}

std::string gspmd(Rig& rig) {
  return partitioned(rig, "", "mhlo.sharding = \"{devices=[2]<=[2]}\"", false);
}

constexpr const char* kWords = "a mistake ends the process or passes for a result";
constexpr const char* kMesh = "torch_pjrt.spmd and DTensor do not work";

constexpr Row kRows[] = {
    {"a module that is none is refused", true, kWords, nullptr, bad_module},
    {"a module of wrong types is refused", true, kWords, nullptr, bad_types},
    {"a deleted argument is refused", true, kWords, nullptr, deleted_argument},
    {"junk for a stored program is refused", false,
     "a damaged file in the cache ends the process or computes garbage", nullptr, junk_program},
    {"an unknown compile option is refused", false,
     "a misspelt option of the plugin's row changes nothing, without a word", nullptr,
     unknown_option},
    {"an optimization level does no harm", false, "TORCH_PJRT_OPTIMIZATION_LEVEL must stay unset",
     nullptr, levels},
    {"empty tensors", true, "programs with an empty tensor fail", nullptr, empty_tensor},
    {"results come row-major", true, "transposed values", nullptr, row_major_results},
    {"host bytes are used in place", false, "each CPU tensor is copied on its way", nullptr,
     zero_copy},
    {"4000 parameters in one tuple", false,
     "large models fail: say max_flat_parameters in the plugin's row", nullptr, one_tuple},
    {"a donated argument is given up", false,
     "an update in place needs the memory of both the old and the new value", nullptr, donation},
    {"a donation can be declined", true, "values that are still needed vanish", nullptr,
     declined_donation},
    {"200 runs in flight", true, "steps fail under load", nullptr, in_flight},
    {"two threads compile and run", true, "threads of one process disturb each other", nullptr,
     two_threads},
    {"a program on each device", false, "only xla:0 can be used", nullptr, each_device},
    {"a program over two devices, Shardy", false, "set TORCH_PJRT_SHARDY=0 for spmd and DTensor",
     nullptr, shardy},
    {"a program over two devices, GSPMD", false, kMesh, nullptr, gspmd},
};

}  // namespace

std::span<const Row> behaviours() { return kRows; }

}  // namespace tp::pjrt::conform
