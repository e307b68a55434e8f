"""Collectives with gradients."""

from typing import Any

import torch

from . import _collectives as c

__all__ = [
    "AllGather", "AllReduce", "AllReduceSumLayer", "SyncBatchNorm", "all_gather", "all_reduce",
    "distributed_mm",
]  # fmt: skip


class AllReduce(torch.autograd.Function):
    """A sum over the processes; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, scale: Any = None, groups: Any = None) -> Any:
        ctx.how = (scale, groups)
        return c.all_reduce(c.REDUCE_SUM, input, 1.0 if scale is None else scale, groups)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scale, groups = ctx.how
        out = c.all_reduce(c.REDUCE_SUM, grads[0], 1.0 if scale is None else scale, groups)
        return out, None, None


class AllGather(torch.autograd.Function):
    """Side by side; the gradient is the sum of this process's parts."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, dim: int = 0) -> Any:
        ctx.dim, ctx.length = dim, input.shape[dim]
        return c.all_gather(input, dim)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        from .. import _processes

        whole = c.all_reduce(c.REDUCE_SUM, grads[0])
        return whole.narrow(ctx.dim, _processes.rank() * ctx.length, ctx.length), None


class AllReduceSumLayer(torch.autograd.Function):
    """A sum over the processes of which each takes its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return c.all_reduce(c.REDUCE_SUM, x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return c.all_reduce(c.REDUCE_SUM, grads[0])


def all_reduce(value: torch.Tensor, scale: float | None = None, groups: Any = None) -> Any:
    return AllReduce.apply(value, scale, groups)


def all_gather(value: torch.Tensor, dim: int = 0) -> Any:
    return AllGather.apply(value, dim)


def distributed_mm(w: torch.Tensor, x: torch.Tensor, split: int = 1) -> torch.Tensor:
    """`w` of all processes, one under the other, times `x`; `split` changes no value."""
    return torch.matmul(all_gather(w), x)


class SyncBatchNorm(torch.nn.Module):
    """Batch normalisation over the batches of all processes: [N, C, ...]."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dims = [d for d in range(x.dim()) if d != 1]
        if self.training:
            mean, var = self._statistics(x, dims)
        else:
            mean, var = self.running_mean, self.running_var
        view = [1, -1, *(1,) * (x.dim() - 2)]
        scaled = (x - mean.view(view)) * torch.rsqrt(var.view(view) + self.eps)
        return scaled * self.weight.view(view) + self.bias.view(view)

    def _statistics(self, x: torch.Tensor, dims: list[int]) -> tuple[Any, Any]:
        from .. import _processes

        scale = 1.0 / _processes.world()
        mean = all_reduce(x.mean(dims), scale)
        square = all_reduce((x * x).mean(dims), scale)
        var = square - mean * mean
        count = x.numel() / x.shape[1] * _processes.world()
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            unbiased = var * (count / (count - 1))
            self.running_var += self.momentum * (unbiased - self.running_var)
        return mean, var
