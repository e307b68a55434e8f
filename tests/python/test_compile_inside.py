"""torch_pjrt's own functions inside compiled code, with fullgraph: nothing breaks the graph."""

import pytest
import torch

import torch_pjrt


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_pjrt.sync()


def whole(f):
    return torch.compile(f, backend="openxla", fullgraph=True)


def test_sync_inside_a_compiled_function():
    def f(x):
        y = x + 1
        torch_pjrt.sync()
        return y * 2

    assert whole(f)(torch.ones(2, device="xla")).tolist() == [4, 4]


def test_no_cuts_inside_a_compiled_function():
    def f(x):
        with torch_pjrt.no_cuts():
            return x * 3

    assert whole(f)(torch.ones(2, device="xla")).tolist() == [3, 3]


def test_a_scope_inside_a_compiled_function():
    def f(x):
        with torch_pjrt.scope("inner"):
            return x - 1

    assert whole(f)(torch.ones(2, device="xla")).tolist() == [0, 0]


def test_module_scopes_around_a_compiled_module():
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).to("xla")
    want = m(torch.ones(1, 2, device="xla")).tolist()
    torch_pjrt.module_scopes.on()
    try:
        got = whole(m)(torch.ones(1, 2, device="xla")).tolist()
    finally:
        torch_pjrt.module_scopes.off()
    assert got == want
