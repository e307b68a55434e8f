// The results of a recorded call in its form: new tensors, what an in-place form writes, out=
// tensors; and whether the memory that a call writes may be written (recorder.h). Any thread.
#include <ATen/ExpandUtils.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/native/Resize.h>

#include "base/error.h"
#include "base/text.h"
#include "torch/errors.h"
#include "torch/index_check.h"
#include "torch/recorder.h"

namespace tp::torch_room {

using ir::Value;

at::Tensor wrap(const Inferred& types, size_t i, ir::NodePtr node, c10::Device device) {
  const Result& r = types.results[i];
  if (!r.type) return at::Tensor();
  return make_tensor({std::move(node), static_cast<uint32_t>(i)},
                     r.strides ? std::span<const int64_t>(*r.strides) : std::span<const int64_t>(),
                     device);
}

// A tensor that is lazily negated or conjugated holds its memory's value through that.
void write_result(const at::Tensor& to, Value v) {
  Impl& p = impl_of(to);
  v = cast(std::move(v), to_dtype(to.scalar_type()));
  write(p, to.is_neg() || to.is_conj() ? with_lazy_bits(std::move(v), to) : std::move(v));
}

void write_out(const OpInfo& op, const at::Tensor& out, const Result& r, Value v) {
  bool resized = at::native::resize_output(out, ref_of(r.type.dims()));
  if (resized && r.strides && !op.row->out.row_major)
    adopt(impl_of(out), cast(std::move(v), to_dtype(out.scalar_type())), *r.strides);
  else
    write_result(out, std::move(v));
}

void write_side_effects(const OpInfo& op, ir::NodePtr node,
                        const std::function<at::Tensor(size_t)>& arg) {
  for (size_t i = 0; i < op.writes.size(); ++i) {
    at::Tensor to = arg(op.writes[i]);
    uint32_t index = static_cast<uint32_t>(op.num_returns + i);
    if (to.defined() && node->types()[index]) write_result(to, {node, index});
  }
}

void check_overlap(const at::Tensor& t) {
  if (t.is_contiguous() || t.numel() < 2) return;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) > 1 && t.stride(d) == 0)
      fail(Code::kRuntime,
           "unsupported operation: more than one element of the written-to tensor refers to a "
           "single memory location. "
           "Please clone() the tensor before performing the operation.");
}

namespace {

[[noreturn]] void refuse_overlap() {
  fail(Code::kRuntime,
       "unsupported operation: some elements of the input tensor and the written-to tensor refer "
       "to a single memory location. Please clone() the tensor before performing the operation.");
}

}  // namespace

void check_partial_overlap(const at::Tensor& written, const at::Tensor& read) {
  const Impl *w = impl_or_null(written), *r = read.defined() ? impl_or_null(read) : nullptr;
  if (!w || !r || w == r || w->alias() != r->alias()) return;
  if (!w->numel() || !r->numel()) return;
  // Eager does not look into windows with gaps either.
  if (!w->is_non_overlapping_and_dense() || !r->is_non_overlapping_and_dense()) return;
  auto begin = [](const Impl& t) {
    return t.storage_offset() * static_cast<int64_t>(t.itemsize());
  };
  auto end = [&](const Impl& t) {
    return begin(t) + t.numel() * static_cast<int64_t>(t.itemsize());
  };
  bool same = begin(*w) == begin(*r) && end(*w) == end(*r) && w->strides() == r->strides();
  if (same || begin(*w) >= end(*r) || begin(*r) >= end(*w)) return;
  refuse_overlap();
}

namespace {

// The same for ops that may not even write where they read, element by element.
void check_no_alias(const at::Tensor& written, const at::Tensor& read) {
  const Impl *w = impl_or_null(written), *r = read.defined() ? impl_or_null(read) : nullptr;
  if (w && r && w->numel() && r->numel() && w->alias() == r->alias() &&
      w->storage_offset() == r->storage_offset() && w->sizes() == r->sizes() &&
      w->strides() == r->strides())
    refuse_overlap();
  check_partial_overlap(written, read);
}

// Do the arguments that a call writes share memory with those that it reads?
void check_written(const Form& form, c10::ArrayRef<c10::IValue> args, const Inferred& types) {
  bool out = form.kind == FormKind::kOut, may_alias = form.op->row->out.may_alias;
  // What is resized has memory of its own by the time that most kernels look.
  auto resized = [&](size_t w, const at::Tensor& t) {
    size_t result = w - form.leading;
    return out && !form.op->iterates && result < types.types.size() && types.types[result] &&
           ref_of(types.types[result].dims()) != t.sizes();
  };
  size_t reads = form.leading, end = out ? args.size() : std::min<size_t>(1, reads);
  for (size_t w = out ? reads : 0; w < end; ++w) {
    if (!args[w].isTensor()) continue;
    const at::Tensor& written = args[w].toTensor();
    if (!resized(w, written)) check_overlap(written);
    auto check = out && !may_alias ? check_no_alias : check_partial_overlap;
    for (size_t r = 0; r < reads; ++r) {
      if (r != w && args[r].isTensor()) check(written, args[r].toTensor());
      if (!may_alias && args[r].isTensorList())
        for (const at::Tensor& t : args[r].toTensorVector()) check(written, t);
    }
  }
}

// Every argument that the schema writes gets the next output; a list, one for each element. What
// the op leaves as it is has an output without a type.
void inplace_results(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args,
                     const ir::NodePtr& node) {
  uint32_t next = 0;
  auto write_next = [&](const at::Tensor& t) {
    if (node->types()[next]) write_result(t, {node, next});
    ++next;
  };
  for (size_t i = 0; i < args.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    if (args[i].isTensor()) {
      write_next(args[i].toTensor());
    } else {
      for (const at::Tensor& t : args[i].toTensorVector()) write_next(t);
    }
  }
}

void out_results(const OpInfo& op, const Inferred& types, c10::ArrayRef<c10::IValue> outs,
                 const ir::NodePtr& node) {
  uint32_t next = 0;
  auto write_next = [&](const at::Tensor& t) {
    check_out(op, types.types[next], t);
    if (op.row->out.keeps_shape && t.numel() == types.types[next].numel())
      t.copy_(wrap(types, next, node, t.device()).view(t.sizes()));
    else
      write_out(op, t, types.results[next], {node, next});
    ++next;
  };
  for (const c10::IValue& v : outs) {
    if (v.isTensor()) {
      write_next(v.toTensor());
      continue;
    }
    size_t have = v.toTensorVector().size();
    if (have != types.results.size())
      fail(Code::kRuntime, cat(op.base_name, ": expected ", types.results.size(),
                               " tensors in out=, but got ", have));
    for (const at::Tensor& t : v.toTensorVector()) write_next(t);
  }
}

void functional_results(const OpInfo& op, const Inferred& types, const ir::NodePtr& node,
                        c10::Device device, Stack* stack) {
  if (op.returns_list) {
    c10::List<at::Tensor> list;
    for (size_t i = 0; i < types.results.size(); ++i) list.push_back(wrap(types, i, node, device));
    stack->emplace_back(std::move(list));
    return;
  }
  for (size_t i = 0; i < op.num_returns; ++i) stack->emplace_back(wrap(types, i, node, device));
}

// The row's arguments, in its order, of a call in some form. What an out= form has not are options
// of a factory, which follow from out=; some reductions take their dtype from it.
c10::IValue argument(const Form& form, c10::ArrayRef<c10::IValue> args, size_t i) {
  bool dtype = form.op->args[i].kind == ArgKind::kDType;
  if (i < form.leading) {
    bool theirs = dtype && form.kind == FormKind::kOut &&
                  form.op->row->out.dtype == ops::OutDtype::kComputedIn;
    if (!theirs || !args[i].isNone()) return args[i];
  }
  return dtype ? c10::IValue(args.back().toTensor().scalar_type()) : c10::IValue();
}

}  // namespace

void record_boxed(const Form& form, const c10::FunctionSchema& schema, Stack* stack) {
  const OpInfo& op = *form.op;
  size_t n = schema.arguments().size();
  auto args = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - n);
  Call call(op);
  guarded(
      [&] {
        std::optional<at::Generator> generator;
        for (size_t i = 0; i < form.leading; ++i) {
          if (op.args[i].kind == ArgKind::kGenerator && !args[i].isNone())
            generator = args[i].toGenerator();
        }
        if (form.kind == FormKind::kOut) call.outs(args.slice(form.leading));
        if (form.kind == FormKind::kInplace && args[0].isTensor()) call.writes(args[0].toTensor());
        for (size_t i = 0; i < op.args.size(); ++i) call.value(op.args[i], argument(form, args, i));
        if (op.row->special == ops::Special::kRandom) call.random(generator);
        const Inferred& types = call.infer(form.kind, [&](Stack& s) {
          for (size_t i = 0; i < op.args.size(); ++i) s.push_back(argument(form, args, i));
        });
        if (op.row->index) check_indices(op, args);
        if (form.kind != FormKind::kFunctional) check_written(form, args, types);
        ir::NodePtr node = call.node(types);
        auto arg = [&](size_t i) { return args[i].isTensor() ? args[i].toTensor() : at::Tensor(); };
        if (!op.writes.empty()) write_side_effects(op, node, arg);
        Stack results;
        if (form.kind == FormKind::kFunctional) {
          functional_results(op, types, node, call.device(), &results);
        } else if (form.kind == FormKind::kInplace) {
          inplace_results(schema, args, node);
          if (!schema.returns().empty()) results.push_back(args[0]);
        } else {
          auto outs = args.slice(form.leading);
          out_results(op, types, outs, node);
          if (!schema.returns().empty()) results.assign(outs.begin(), outs.end());
        }
        stack->resize(stack->size() - n);
        for (c10::IValue& r : results) stack->push_back(std::move(r));
      },
      [&] { return call.describe(); });
}

}  // namespace tp::torch_room
