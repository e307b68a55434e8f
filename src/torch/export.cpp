#include "torch/export.h"

#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "client/ahead.h"
#include "ops/host/host.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/runtime.h"

namespace tp::torch_room {
namespace {

std::string place_of(const ir::Node& n) {
  if (!n.location()) return {};
  const std::string& scope = ir::location_of(n.location()).scope;
  return cat("\n  recorded at ", ir::line_text(n.location()),
             scope.empty() ? "" : cat(", in ", scope));
}

// What another runtime does not have.
void check_portable(const ir::Node& n) {
  if (n.role() != ir::Role::kInterior) return;
  if (ops::host_row_of(n.kind()))
    fail(Code::kNotImplemented,
         cat("torch_pjrt.export: ", n.kind().name,
             " runs on the host: it is no part of a program that others run", place_of(n)),
         "compute it outside of the exported function and give its result as an argument");
  const ops::Row* row = ops::row_of(n.kind());
  if (row && row->special == ops::Special::kRandom)
    fail(Code::kRuntime,
         cat("torch_pjrt.export: ", n.kind().name,
             " draws random numbers: the exported program would draw the same ones at each call",
             place_of(n)),
         "export model.eval(), or give the random numbers as an argument");
}

// A program under way: whose leaves its parameters are, and the buffers of those that no argument
// gives.
struct Text {
  std::string text;
  std::vector<uint32_t> arguments;
  std::vector<client::DataPtr> held;
};

// Under the graph lock. The parameters: `inputs` arguments, those others that are used, then what
// the recording holds.
std::vector<const ir::Node*> parameters_of(const ir::Graph& graph,
                                           const std::vector<ir::NodePtr>& leaves, size_t inputs,
                                           Text& text) {
  std::unordered_set<const ir::Node*> used, placed;
  for (const ir::LeafUse& use : graph.leaves)
    if (use.feed == ir::Feed::kBuffer) used.insert(use.node);
  std::vector<const ir::Node*> parameters;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (i >= inputs && !used.contains(leaves[i].get())) continue;
    parameters.push_back(leaves[i].get());
    text.arguments.push_back(static_cast<uint32_t>(i));
  }
  placed.insert(parameters.begin(), parameters.end());
  for (const ir::LeafUse& use : graph.leaves) {
    if (use.feed != ir::Feed::kBuffer || !placed.insert(use.node).second) continue;
    auto held = std::static_pointer_cast<client::Data>(use.node->payload());
    check(held != nullptr, "a constant of a recording has a buffer");
    text.held.push_back(std::move(held));
    parameters.push_back(use.node);
  }
  return parameters;
}

Text text_of(std::vector<ir::Value> roots, const std::vector<ir::NodePtr>& leaves, size_t inputs,
             const std::string& name, lower::Dialects dialects) {
  Capabilities target;  // of some plugin that is not known
  std::lock_guard lock(ir::graph_lock());
  ir::Graph graph = ir::build_graph(std::move(roots), [](const ir::Node&) { return false; });
  for (const ir::Node* n : graph.order) check_portable(*n);
  Text out;
  std::vector<const ir::Node*> parameters = parameters_of(graph, leaves, inputs, out);
  out.text = lower::lower_portable(graph, name, parameters, dialects, target).text;
  return out;
}

}  // namespace

Export::Export(const std::vector<at::Tensor>& arguments, size_t inputs, std::string name)
    : trace_(arguments, name), inputs_(inputs), name_(std::move(name)) {
  for (const at::Tensor& t : stand_ins()) leaves_.push_back(value_of(impl_of(t)).node);
}

Export::Program Export::finish(const std::vector<at::Tensor>& outputs, lower::Dialects dialects) {
  Program made;
  std::vector<ir::Value> roots;
  for (const at::Tensor& t : outputs) roots.push_back(resolved_value(t));
  for (size_t i = 0; i < leaves_.size(); ++i) {
    ir::Value now = resolved_value(stand_ins()[i]);
    if (now.node == leaves_[i]) continue;
    if (!(now.type() == leaves_[i]->types()[0]))
      fail(Code::kRuntime, cat("torch_pjrt.export: ", name_, " changes the size of argument ", i));
    made.updated.push_back(static_cast<uint32_t>(i));
    roots.push_back(std::move(now));
  }
  end();
  return guarded(
      [&] {
        Text text = text_of(std::move(roots), leaves_, inputs_, name_, dialects);
        made.text = std::move(text.text);
        made.parameters = std::move(text.arguments);
        c10::Device device = outputs.empty() ? c10::Device(c10::kXLA, 0) : outputs[0].device();
        for (client::DataPtr& data : text.held)
          made.constants.push_back(make_device_tensor(std::move(data), {}, device));
        return std::move(made);
      },
      [&] { return cat("exporting ", name_); });
}

Loaded::Loaded(const std::string& text, const std::vector<at::Tensor>& outputs, std::string name,
               int device)
    : name_(std::move(name)), device_(device) {
  std::vector<ir::Type> types;
  for (const at::Tensor& t : outputs)
    types.push_back(ir::make_type(to_dtype(t.scalar_type()), span_of(t.sizes())));
  auto program = std::make_shared<exec::Program>();
  program->key.total = hash_text(text);
  guarded(
      [&] {
        client::ComputationClient& client = executor().client();
        GilRelease no_gil;
        program->executable = client.compile({.module = text, .outputs = types, .device = device});
      },
      [&] { return cat("compiling ", name_); });
  program_ = std::move(program);
}

Loaded::Loaded(std::string_view text, std::string_view bytes, std::string name)
    : name_(std::move(name)), device_(0) {
  auto program = std::make_shared<exec::Program>();
  program->key.total = hash_text(text);
  guarded(
      [&] {
        client::ComputationClient& client = executor().client();
        GilRelease no_gil;
        program->executable = client::load_ahead(client, text, bytes);
      },
      [&] { return cat("loading ", name_); });
  program_ = std::move(program);
}

std::vector<at::Tensor> Loaded::call(const std::vector<at::Tensor>& arguments) const {
  return guarded(
      [&] {
        std::vector<client::DataPtr> buffers, outputs;
        for (const at::Tensor& t : arguments) {
          Impl& impl = impl_of(t);
          check(impl.whole(), "a loaded program's argument is the whole of its memory");
          buffers.push_back(computed(*impl.alias()));
        }
        {
          GilRelease no_gil;
          exec::Executor& e = executor();
          e.throttle();
          outputs = e.run(program_, {.arguments = buffers, .device = device_, .where = name_});
        }
        std::vector<at::Tensor> made;
        for (client::DataPtr& data : outputs)
          made.push_back(make_device_tensor(std::move(data), {},
                                            {c10::kXLA, static_cast<c10::DeviceIndex>(device_)}));
        return made;
      },
      [&] { return cat("calling ", name_); });
}

}  // namespace tp::torch_room
