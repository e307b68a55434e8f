// Export: records a function once, as a Trace does, and gives its program's text for others to run
// (torch_pjrt/export.py); Loaded: such a text as a program of this process.
//
// Threads: an Export is its thread's; a Loaded may be called from any. Callers hold the GIL; it is
// released around compiles and launches.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "exec/program_cache.h"
#include "lower/portable.h"
#include "torch/trace.h"

namespace tp::torch_room {

class Export {
 public:
  // As Trace's; `name` stands in messages. The first `inputs` arguments become parameters of the
  // program in any case, the others (weights) where it uses them.
  Export(const std::vector<at::Tensor>& arguments, size_t inputs, std::string name);

  const std::vector<at::Tensor>& stand_ins() const { return trace_.stand_ins(); }

  struct Program {
    std::string text;
    std::vector<uint32_t> parameters;   // arguments that it takes, in its order
    std::vector<uint32_t> updated;      // arguments whose new values are results behind the outputs
    std::vector<at::Tensor> constants;  // its parameters behind those
  };
  // Ends the trace. Throws, with the op and its line, where another runtime could not run it: an op
  // that runs on the host, one that draws random numbers, one that has no StableHLO form.
  Program finish(const std::vector<at::Tensor>& outputs, lower::Dialects dialects);
  void end() { trace_.end(); }
  // Why the function cannot be one program (a read); empty where it can.
  const std::string& refused() const { return trace_.refused(); }

 private:
  Trace trace_;
  size_t inputs_;
  std::string name_;
  std::vector<ir::NodePtr> leaves_;  // of the stand-ins, as they were given
};

class Loaded {
 public:
  // Compiles the text for a device of the client. `outputs` are empty tensors of the results'
  // types.
  Loaded(const std::string& text, const std::vector<at::Tensor>& outputs, std::string name,
         int device);
  // Loads a program that was compiled from the text for device 0 ahead of time (client/ahead.h).
  Loaded(std::string_view text, std::string_view program, std::string name);
  // Of tensors on its device, each the whole of its memory, in the types that the text says.
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& arguments) const;

 private:
  std::string name_;
  int device_;
  exec::ProgramPtr program_;
};

}  // namespace tp::torch_room
