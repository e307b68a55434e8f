"""Ops that run as calls of PyTorch's CPU kernels inside a program, where those are faster."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_pjrt

Op = Callable[..., Tensor]

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "plain": ((4, 8, 16, 16), (16, 8, 3, 3), {"padding": 1}),
    "strided": ((4, 8, 17, 17), (16, 8, 3, 3), {"stride": 2}),
    "of a 2x2 image": ((2, 64, 2, 2), (64, 64, 3, 3), {"padding": 1}),
    "dilated": ((4, 8, 16, 16), (16, 8, 3, 3), {"dilation": 2}),
    "grouped": ((4, 8, 16, 16), (16, 4, 3, 3), {"groups": 2, "padding": 1}),
}
OPS: dict[str, tuple[Op, list[tuple[int, ...]], str]] = {
    **{
        f"convolution, {name}": (
            lambda x, w, b, kw=kw: F.conv2d(x, w, b, **kw),
            [x, w, (w[0],)],
            "aten::convolution",
        )
        for name, (x, w, kw) in CONVOLUTIONS.items()
    },
    "transposed convolution": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        [(4, 16, 9, 9), (16, 8, 3, 3)],
        "aten::convolution",
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        [(8, 16, 20, 20), (16,), (16,)],
        "aten::native_batch_norm",
    ),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (300,), w, b),
        [(128, 300), (300,), (300,)],
        "aten::native_layer_norm",
    ),
    "softmax": (lambda x: x.softmax(-1), [(128, 300)], "aten::_softmax"),
    "log_softmax": (lambda x: x.log_softmax(-1), [(128, 300)], "aten::_log_softmax"),
    "sort": (lambda x: x.sort(-1, descending=True).values, [(128, 300)], "aten::sort.stable"),
    "cumsum": (lambda x: x.cumsum(-1), [(128, 300)], "aten::cumsum"),
}


def results(op: Op, shapes: list[tuple[int, ...]], device: str) -> tuple[list[Tensor], str]:
    """The result and the operands' gradients, and the program's text on the device."""
    torch.manual_seed(0)
    args = [torch.randn(s).to(device).requires_grad_() for s in shapes]
    out = op(*args)
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape).to(device)).sum().backward()
    all_of = [out.detach(), *(a.grad for a in args)]
    text = torch_pjrt.graph.of(all_of).hlo if device == "xla" else ""
    return [t.cpu() for t in all_of], text


@pytest.mark.parametrize("name", OPS)
def test_large_op_is_a_call_of_the_kernel_with_eagers_values_and_gradients(name: str) -> None:
    """Both in one program, without a cut for it."""
    op, shapes, kernel = OPS[name]
    want, _ = results(op, shapes, "cpu")
    got, text = results(op, shapes, "xla")
    assert f'op = "{kernel}"' in text
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_backward_of_max_pooling_is_a_call_its_forward_is_not() -> None:
    """XLA's forward is the faster one."""
    op: Op = lambda x: F.max_pool2d(x, 3, 2, 1)  # noqa: E731
    got, text = results(op, [(8, 8, 32, 32)], "xla")
    want, _ = results(op, [(8, 8, 32, 32)], "cpu")
    assert text.count("torch_pjrt_host_op") == 1
    assert 'op = "aten::max_pool2d_with_indices_backward"' in text
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


SMALL: dict[str, Callable[[], Tensor]] = {
    "few products": lambda: F.conv2d(*(torch.ones(s, device="xla") for s in [(1, 1, 4, 4)] * 2)),
    "another dtype": lambda: F.conv2d(
        *(torch.ones(s, device="xla", dtype=torch.double) for s in ((4, 8, 16, 16), (8, 8, 3, 3)))
    ),
    "a channel by itself": lambda: F.conv2d(
        *(torch.ones(s, device="xla") for s in ((4, 8, 16, 16), (8, 1, 3, 3))), groups=8
    ),
    "few rows": lambda: torch.ones(8, 9, device="xla").softmax(-1),
    "along columns": lambda: torch.ones(300, 300, device="xla").softmax(0),
}


@pytest.mark.parametrize("name", SMALL)
def test_where_it_is_not_faster_the_program_has_its_own_code(name: str) -> None:
    """No call."""
    assert "torch_pjrt_host_op" not in torch_pjrt.graph.of([SMALL[name]()]).hlo


def test_running_statistics_of_batch_norm_are_updated() -> None:
    """They are results of the call."""

    def train(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(16).to(device)
        for _ in range(3):
            norm(torch.randn(8, 16, 20, 20).to(device) * 2 + 1)
            torch_pjrt.sync()
        return [norm.running_mean.cpu(), norm.running_var.cpu()]

    for a, b in zip(train("xla"), train("cpu"), strict=True):
        torch.testing.assert_close(a, b)


def test_an_eps_that_changes_has_its_own_value() -> None:
    """An input of the program from its first change on: no call then."""
    x = torch.randn(128, 300)
    moved = x.to("xla")
    for eps in (0.1, 0.2, 0.3):
        got = F.layer_norm(moved, (300,), eps=eps)
        torch_pjrt.sync()
        torch.testing.assert_close(got.cpu(), F.layer_norm(x, (300,), eps=eps))


def test_flag_turns_the_calls_off() -> None:
    """TORCH_PJRT_HOST_KERNELS=0."""
    code = """
import torch, torch_pjrt
x = torch.ones(4, 8, 16, 16, device="xla")
y = torch.nn.functional.conv2d(x, torch.ones(8, 8, 3, 3, device="xla"))
assert "torch_pjrt_host_op" not in torch_pjrt.graph.of([y]).hlo
assert y[0, 0, 0, 0].item() == 72
"""
    env = os.environ | {"TORCH_PJRT_HOST_KERNELS": "0"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=300)
