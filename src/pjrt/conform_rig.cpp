#include "pjrt/conform_rig.h"

#include "base/text.h"

namespace tp::pjrt::conform {

const char* const kDouble = R"(
module @double {
  func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%0) : (tensor<2x3xf32>) -> ()
  }
})";

const char* const kDoubleInPlace = R"(
module @double_in_place {
  func.func public @main(%arg0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2x3xf32> {
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%0) : (tensor<2x3xf32>) -> ()
  }
})";

const Client& Rig::client() {
  if (!client_) client_ = std::make_unique<Client>(plugin_, setting_.options);
  if (client_->devices().empty()) throw Unmet{"the client has no device for this process"};
  return *client_;
}

PJRT_DeviceDescription* Rig::description(size_t i) {
  return call<&PJRT_Api::PJRT_Device_GetDescription>(api(), {.device = device(i).raw()})
      .device_description;
}

Buffer Rig::upload(const Floats& values, std::vector<int64_t> dims, size_t at) {
  return client().from_host({values.data(), PJRT_Buffer_Type_F32, dims, nullptr}, device(at));
}

Buffer Rig::upload() { return upload(input(), {2, 3}); }

const Floats& Rig::input() {
  static const Floats values{0.5f, -1, 2, 3, 4, -5};
  return values;
}

Floats Rig::doubled() {
  Floats out = input();
  for (float& v : out) v *= 2;
  return out;
}

CompileOptions Rig::options(std::vector<int64_t> devices) const {
  CompileOptions o;
  o.num_partitions = std::max<int64_t>(1, static_cast<int64_t>(devices.size()));
  o.device_ids = std::move(devices);
  o.overrides = setting_.compile_options;
  return o;
}

Executable Rig::doubling() { return compile(kDouble); }

Buffer Rig::run(const Executable& program, std::vector<PJRT_Buffer*> arguments,
                std::vector<int64_t> keep, size_t results) {
  std::vector<PJRT_Buffer*> outputs(results);
  PJRT_Buffer* const* in = arguments.data();
  PJRT_Buffer** out = outputs.data();
  program.execute({&in, 1}, arguments.size(), {&out, 1}, keep);
  std::vector<Buffer> owned;
  for (PJRT_Buffer* b : outputs) {
    expect(b != nullptr, "PJRT_LoadedExecutable_Execute left a result null");
    owned.emplace_back(api(), b);
  }
  return std::move(owned[0]);
}

Floats Rig::download(const Buffer& buffer, size_t n) {
  Floats out(n);
  buffer.copy_to_host(out.data(), n * sizeof(float)).await();
  return out;
}

PJRT_Error* Rig::error() {
  constexpr std::string_view kFormat = "mlir";
  std::string text = "this is no module", encoded = encode_compile_options(options());
  PJRT_Program program{};
  program.struct_size = sizeof(program);
  program.code = text.data();
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  PJRT_Client_Compile_Args args{};
  args.struct_size = sizeof(args);
  args.client = client().raw();
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  PJRT_Error* error = api()->PJRT_Client_Compile(&args);
  expect(error != nullptr, "PJRT_Client_Compile took 'this is no module' for a program");
  return error;
}

void expect_floats(std::string_view what, const Floats& found, const Floats& wanted) {
  expect(found == wanted,
         cat(what, ": expected ", join(wanted, " "), ", found ", join(found, " ")));
}

}  // namespace tp::pjrt::conform
