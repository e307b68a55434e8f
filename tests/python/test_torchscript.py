"""torch.jit on the device: traced and scripted code computes what eager does."""

import pytest
import torch
from eager import assert_equal
from torch import nn
from torch.nn import functional as F

X = torch.linspace(-2, 2, 75).view(1, 3, 5, 5)
W = torch.linspace(-1, 1, 108).view(4, 3, 3, 3)
I = torch.tensor([1, 0])  # noqa: E741

TRACED = {
    "elementwise": lambda x, w, i: (x * 2).relu() + w.mean(),
    "conv": lambda x, w, i: F.conv2d(x, w),
    "conv_bias": lambda x, w, i: F.conv2d(x, w, w[:, 0, 0, 0], padding=1, stride=2),
    "conv_same": lambda x, w, i: F.conv2d(x, w, padding="same"),
    "conv_transpose": lambda x, w, i: F.conv_transpose2d(x, w.transpose(0, 1)),
    "views": lambda x, w, i: x[0].transpose(0, 2).reshape(-1, 3)[2:],
    "index": lambda x, w, i: x[0][i],
    "index_two": lambda x, w, i: x[0][:, i, i],
    "index_put": lambda x, w, i: x[0].index_put((i,), w[0, :2, :1, :1]),
    "mask": lambda x, w, i: x[x > 1],
    "where": lambda x, w, i: torch.where(x > 0, x, w.sum()),
    "in place": lambda x, w, i: x.clone().mul_(2).add_(w[0, 0, 0, 0]),
    "cat": lambda x, w, i: torch.cat([x, x], 1),
    "split": lambda x, w, i: x.chunk(2, -1)[1] * 2,
}


@pytest.mark.parametrize("f", TRACED.values(), ids=TRACED)
def test_trace_computes_what_was_traced(device, f):
    args = [t.to(device) for t in (X, W, I)]
    traced = torch.jit.trace(f, tuple(args), check_trace=False)
    for _ in range(3):  # the first runs are profiled
        ours = traced(*args)
    assert ours.device.type == "xla"
    assert_equal(ours, f(X, W, I))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                         nn.Linear(36, 2)).eval()  # fmt: skip


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, m_input(m))],
                         ids=["script", "trace"])  # fmt: skip
def test_module_computes_and_learns(device, make):
    m, eager = make(model().to(device)), model()
    for _ in range(3):
        ours = m(X.to(device))
    assert_equal(ours, eager(X))
    ours.sum().backward()
    eager(X).sum().backward()
    assert_equal([p.grad for p in m.parameters()], [p.grad for p in eager.parameters()])


def m_input(m: nn.Module) -> torch.Tensor:
    return X.to(next(m.parameters()).device)


def test_saved_trace_is_loaded_to_the_device(device, tmp_path):
    m = torch.jit.trace(model(), X)
    m.save(str(tmp_path / "m.pt"))
    assert_equal(torch.jit.load(str(tmp_path / "m.pt")).to(device)(X.to(device)), model()(X))
