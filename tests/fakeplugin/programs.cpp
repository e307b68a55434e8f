// The fake plugin's programs: "compile" reads the signature, execute gives zeros of the result
// types.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "objects.h"

namespace fake {
namespace {

constexpr std::string_view kMagic = "FAKE1\n";

PJRT_Error* load(PJRT_Client* client, Program program, PJRT_LoadedExecutable** out) {
  auto loaded = std::make_unique<PJRT_LoadedExecutable>();
  for (int64_t id : program.device_ids) {
    if (id < 0 || static_cast<size_t>(id) >= client->devices.size())
      return error(PJRT_Error_Code_INVALID_ARGUMENT, "no device " + std::to_string(id));
    loaded->devices.push_back(client->device_list[static_cast<size_t>(id)]);
  }
  loaded->program = std::make_shared<const Program>(std::move(program));
  *out = loaded.release();
  return nullptr;
}

PJRT_Error* compile(PJRT_Client_Compile_Args* a) {
  if (auto fault = next("compile")) return error(fault);
  if (std::string_view(a->program->format, a->program->format_size) != "mlir")
    return error(PJRT_Error_Code_INVALID_ARGUMENT, "Unknown program format");
  Program program;
  auto reason = parse_module({a->program->code, a->program->code_size}, program);
  if (!reason.empty()) return error(PJRT_Error_Code_INVALID_ARGUMENT, reason);
  program.device_ids = parse_device_ids({a->compile_options, a->compile_options_size});
  return load(a->client, std::move(program), &a->executable);
}

PJRT_Error* deserialize(PJRT_Executable_DeserializeAndLoad_Args* a) {
  if (auto fault = next("deserialize")) return error(fault);
  std::string_view bytes(a->serialized_executable, a->serialized_executable_size);
  if (!bytes.starts_with(kMagic)) return error(PJRT_Error_Code_INTERNAL, "deserialization failed");
  bytes.remove_prefix(kMagic.size());
  Program program;
  size_t line = std::min(bytes.find('\n'), bytes.size() - 1);
  std::string ids(bytes.substr(0, line));
  for (char* p = ids.data(); *p;) program.device_ids.push_back(std::strtoll(p, &p, 10));
  auto reason = parse_module(bytes.substr(line + 1), program);
  if (!reason.empty()) return error(PJRT_Error_Code_INTERNAL, reason);
  return load(a->client, std::move(program), &a->loaded_executable);
}

PJRT_Error* serialize(PJRT_Executable_Serialize_Args* a) {
  if (auto fault = next("serialize")) return error(fault);
  auto out = std::make_unique<PJRT_SerializedExecutable>();
  out->bytes = kMagic;
  for (int64_t id : a->executable->program->device_ids) out->bytes += " " + std::to_string(id);
  out->bytes += "\n" + a->executable->program->text;
  a->serialized_bytes = out->bytes.data();
  a->serialized_bytes_size = out->bytes.size();
  a->serialized_executable = out.release();
  a->serialized_executable_deleter = [](PJRT_SerializedExecutable* e) { delete e; };
  return nullptr;
}

PJRT_Error* get_executable(PJRT_LoadedExecutable_GetExecutable_Args* a) {
  a->executable = make_executable(a->loaded_executable->program);
  return nullptr;
}

PJRT_Error* check_arguments(const PJRT_LoadedExecutable_Execute_Args& a, size_t slot) {
  const Program& program = *a.executable->program;
  if (a.num_args != program.parameters.size())
    return error(PJRT_Error_Code_INVALID_ARGUMENT, "wrong number of arguments");
  for (size_t i = 0; i < a.num_args; ++i) {
    const PJRT_Buffer* b = a.argument_lists[slot][i];
    std::string which = "argument " + std::to_string(i) + ": ";
    if (b->deleted) return error(PJRT_Error_Code_INVALID_ARGUMENT, which + kGone);
    if (b->device != a.executable->devices[slot])
      return error(PJRT_Error_Code_INVALID_ARGUMENT, which + "on another device");
    if (b->type.type != program.parameters[i].type || b->type.dims != program.parameters[i].dims)
      return error(PJRT_Error_Code_INVALID_ARGUMENT, which + "of another type");
  }
  return nullptr;
}

void donate(const PJRT_LoadedExecutable_Execute_Args& a, size_t slot) {
  std::vector<bool> donatable = a.executable->program->donatable;
  const PJRT_ExecuteOptions& o = *a.options;
  for (size_t i = 0; i < o.num_non_donatable_input_indices; ++i)
    donatable[static_cast<size_t>(o.non_donatable_input_indices[i])] = false;
  for (size_t i = 0; i < a.num_args; ++i)
    if (donatable[i] && a.argument_lists[slot][i]->holds == 0)
      a.argument_lists[slot][i]->deleted = true;
}

// What an earlier program's failure does to this one's outputs.
std::optional<Fault> poisoned(const PJRT_LoadedExecutable_Execute_Args& a, size_t slot) {
  for (size_t i = 0; i < a.num_args; ++i) {
    auto& work = *a.argument_lists[slot][i]->work;
    if (work.done())
      if (auto fault = work.wait()) return fault;
  }
  return std::nullopt;
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* a) {
  if (auto fault = next("execute")) return error(fault);
  auto event = next("event"), slow = next("slow");
  if (a->num_devices != a->executable->devices.size())
    return error(PJRT_Error_Code_INVALID_ARGUMENT, "wrong number of argument lists");
  for (size_t slot = 0; slot < a->num_devices; ++slot)
    if (PJRT_Error* e = check_arguments(*a, slot)) return e;
  if (auto fault = next("late")) {
    for (size_t slot = 0; slot < a->num_devices; ++slot) donate(*a, slot);
    return error(fault);
  }
  for (size_t slot = 0; slot < a->num_devices; ++slot) {
    auto work = std::make_shared<Work>();
    auto own = next("event" + std::to_string(slot));
    auto fault = event ? event : own ? own : poisoned(*a, slot);
    donate(*a, slot);
    for (size_t i = 0; i < a->executable->program->results.size(); ++i) {
      auto b = std::make_unique<PJRT_Buffer>();
      b->device = a->executable->devices[slot];
      b->type = a->executable->program->results[i];
      b->bytes = zeros(b->type.bytes());
      b->work = work;
      a->output_lists[slot][i] = b.release();
    }
    if (a->device_complete_events) a->device_complete_events[slot] = new PJRT_Event{work};
    finish_later(work, fault, slow);
  }
  return nullptr;
}

}  // namespace

PJRT_Executable* make_executable(std::shared_ptr<const Program> program) {
  auto e = std::make_unique<PJRT_Executable>();
  e->program = std::move(program);
  for (const TensorType& t : e->program->results) {
    e->types.push_back(t.type);
    e->ranks.push_back(t.dims.size());
    e->dims.insert(e->dims.end(), t.dims.begin(), t.dims.end());
  }
  return e.release();
}

void fill_programs(PJRT_Api& api) {
  api.PJRT_Client_Compile = compile;
  api.PJRT_Executable_DeserializeAndLoad = deserialize;
  api.PJRT_Executable_Serialize = serialize;
  api.PJRT_LoadedExecutable_GetExecutable = get_executable;
  api.PJRT_LoadedExecutable_Execute = execute;
  api.PJRT_Executable_Destroy = [](PJRT_Executable_Destroy_Args* a) -> PJRT_Error* {
    delete a->executable;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_Destroy = [](PJRT_LoadedExecutable_Destroy_Args* a) -> PJRT_Error* {
    delete a->executable;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_AddressableDevices =
      [](PJRT_LoadedExecutable_AddressableDevices_Args* a) -> PJRT_Error* {
    a->addressable_devices = a->executable->devices.data();
    a->num_addressable_devices = a->executable->devices.size();
    return nullptr;
  };
  api.PJRT_Executable_NumOutputs = [](PJRT_Executable_NumOutputs_Args* a) -> PJRT_Error* {
    a->num_outputs = a->executable->types.size();
    return nullptr;
  };
  api.PJRT_Executable_OutputElementTypes =
      [](PJRT_Executable_OutputElementTypes_Args* a) -> PJRT_Error* {
    a->output_types = a->executable->types.data();
    a->num_output_types = a->executable->types.size();
    return nullptr;
  };
  api.PJRT_Executable_OutputDimensions =
      [](PJRT_Executable_OutputDimensions_Args* a) -> PJRT_Error* {
    a->num_outputs = a->executable->ranks.size();
    a->dims = a->executable->dims.data();
    a->dim_sizes = a->executable->ranks.data();
    return nullptr;
  };
}

}  // namespace fake
