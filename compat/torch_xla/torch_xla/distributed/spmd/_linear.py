"""Linear layers of inputs with many dimensions."""

from typing import Any

import torch


class XLAPatchedLinear(torch.autograd.Function):
    """`input @ weight.T + bias` without folding the input's dimensions into one."""

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        ctx.save_for_backward(input, weight)
        ctx.with_bias = bias is not None
        out = torch.einsum("...n,mn->...m", input, weight)
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        of_x = torch.einsum("...m,mn->...n", grad, weight) if ctx.needs_input_grad[0] else None
        of_weight = torch.einsum("...m,...n->mn", grad, x) if ctx.needs_input_grad[1] else None
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(0) if ctx.with_bias else None
        return of_x, of_weight, of_bias


def xla_patched_nn_linear_forward(m: torch.nn.Linear, input: torch.Tensor) -> Any:
    return XLAPatchedLinear.apply(input, m.weight, m.bias)


class EinsumLinear(torch.nn.Linear):
    """torch.nn.Linear by XLAPatchedLinear."""

    def forward(self, input: torch.Tensor) -> Any:
        return xla_patched_nn_linear_forward(self, input)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module, patched_function: Any = None) -> Any:
    """Each torch.nn.Linear inside gets that forward."""
    forward = patched_function or xla_patched_nn_linear_forward
    for m in module.modules():
        if isinstance(m, torch.nn.Linear):
            m.forward = lambda x, m=m: forward(m, x)  # type: ignore[misc]
    return module
