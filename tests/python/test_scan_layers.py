"""scan_layers: equal blocks as one loop."""

import copy
import time

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import torch_pjrt
from torch_pjrt import scan_layers

D = "xla"


class Block(nn.Module):
    def __init__(self, size=16, p=0.0):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.p = p

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, 4, c // 4).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(b, t, c)), self.p, self.training)
        y = self.down(F.gelu(self.up(self.ln2(x))))
        return x + F.dropout(y, self.p, self.training)


def blocks(n, dtype=torch.float64, **kw):
    torch.manual_seed(0)
    return nn.ModuleList([Block(**kw) for _ in range(n)]).to(dtype)


def plain(layers, x, *args):
    for layer in layers:
        x = layer(x, *args)
    return x


def step(run, layers, dtype=torch.float64):
    """Output, gradients of the input and of every parameter."""
    x = torch.linspace(-1, 1, 2 * 8 * 16, dtype=dtype).view(2, 8, 16).to(D).requires_grad_()
    for p in layers.parameters():
        p.grad = None
    y = run(layers, x)
    (y.float() * y.float()).sum().backward()
    torch_pjrt.sync()
    return [t.detach().cpu() for t in (y, x.grad, *(p.grad for p in layers.parameters()))]


def close(a, b, tolerance=1e-6):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert (x.dtype, x.stride()) == (y.dtype, y.stride())
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


def test_numbers_gradients_and_dropout_are_those_of_the_plain_loop(compiles):
    layers = blocks(3, p=0.2).to(D)
    torch.manual_seed(7)
    want = step(plain, layers)
    after = torch.rand(2, device=D).cpu()
    with compiles() as seen:
        for _ in range(2):
            torch.manual_seed(7)
            close(step(scan_layers, layers), want)
            assert torch.equal(torch.rand(2, device=D).cpu(), after)
    assert seen.count <= 2  # the step, and rand


def test_compile_time_does_not_grow_with_depth():
    took = {}
    step(scan_layers, blocks(1, torch.float32).to(D), torch.float32)  # what starts once
    for n in (2, 24):
        layers = blocks(n, torch.float32).to(D)
        torch_pjrt.sync(wait=True)
        start = time.process_time()
        step(scan_layers, layers, torch.float32)
        took[n] = time.process_time() - start
    assert took[24] <= 1.5 * took[2]


def test_depth_records_no_more_ops_of_the_body():
    x = torch.ones(2, 8, 16, dtype=torch.float64, device=D)
    text = torch_pjrt.graph.of(scan_layers(blocks(6).to(D), x)).text
    counts = {n: text.count(f"= aten::{n}(") for n in ("gelu", "native_layer_norm", "addmm")}
    one = torch_pjrt.graph.of(blocks(1).to(D)[0](x)).text
    assert counts == {n: one.count(f"= aten::{n}(") for n in counts}
    assert counts["gelu"] == 1


@pytest.mark.programs
def test_under_autocast_and_checkpoint():
    layers = blocks(2, torch.float32, p=0.1).to(D)

    def cast(run):
        def f(layers, x):
            with torch.autocast(D, dtype=torch.bfloat16):
                return run(layers, x)

        return f

    def kept(run):
        return lambda layers, x: checkpoint(run, layers, x, use_reentrant=False)

    for around in (cast, kept):
        torch.manual_seed(7)
        want = step(around(plain), layers, torch.float32)
        torch.manual_seed(7)
        close(
            step(around(scan_layers), layers, torch.float32), want, 2e-2 if around is cast else 1e-5
        )


def test_no_grad_frozen_and_shared_parameters():
    layers = blocks(3).to(D)
    shared = layers[0].up
    for layer in layers:
        layer.up = shared
        layer.qkv.weight.requires_grad_(False)
    torch.manual_seed(7)
    for p in layers.parameters():
        p.grad = None
    x = torch.ones(2, 8, 16, dtype=torch.float64, device=D)

    def gradients(run):
        for p in layers.parameters():
            p.grad = None
        run(layers, x).sum().backward()
        return [None if p.grad is None else p.grad.cpu() for p in layers.parameters()]

    for a, b in zip(gradients(scan_layers), gradients(plain), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    with torch.no_grad():
        out = scan_layers(layers, x)
    torch.testing.assert_close(out.cpu(), plain(layers, x).detach().cpu(), rtol=1e-9, atol=1e-12)


def test_more_arguments_and_states_that_are_trees():
    class Gated(nn.Linear):
        def forward(self, state, scale, *, twice=False):
            x, n = state["x"], state["n"]
            y = torch.tanh(super().forward(x)) * scale
            return {"x": y * 2 if twice else y, "n": n + 1}

    torch.manual_seed(0)
    layers = nn.ModuleList([Gated(4, 4) for _ in range(3)]).double()

    def run(device, scanned):
        own = copy.deepcopy(layers).to(device)
        scale = torch.linspace(0, 1, 4, dtype=torch.float64).to(device).requires_grad_()
        state = {
            "x": torch.ones(2, 4, dtype=torch.float64).to(device),
            "n": torch.tensor(1).to(device),
        }
        if scanned:
            state = scan_layers(own, state, scale, twice=True)
        else:
            for layer in own:
                state = layer(state, scale, twice=True)
        state["x"].sum().backward()
        return [t.detach().cpu() for t in (state["x"], state["n"], scale.grad, own[1].weight.grad)]

    close(run(D, True), run("cpu", False))


def test_on_the_cpu_and_of_one_layer_it_is_the_plain_loop():
    layers = blocks(2)
    x = torch.ones(1, 2, 16, dtype=torch.float64)
    assert torch.equal(scan_layers(layers, x), plain(layers, x))
    one = blocks(1).to(D)
    assert "torch_pjrt.loop" not in torch_pjrt.graph.of(scan_layers(one, x.to(D))).text
    assert scan_layers([], 3) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: setattr(b[1], "p", 0.5), "differ in p: 0.0 and 0.5"),
        (lambda b: b[1].eval(), "differ in training"),
        (lambda b: setattr(b[1], "ln1", nn.Identity()), "the class of ln1"),
        (lambda b: setattr(b[1], "up", nn.Linear(16, 64, bias=False)), "differ in up"),
        (lambda b: setattr(b[1].up, "weight", nn.Parameter(torch.ones(9, 9))), r"up\.weight"),
    ],
)
def test_layers_that_differ_are_named(change, words):
    layers = blocks(2)
    change(layers)
    layers.to(D)
    x = torch.ones(1, 2, 16, dtype=torch.float64, device=D)
    with pytest.raises(ValueError, match=words):
        scan_layers(layers, x)


def test_an_attribute_that_changes_nothing_may_be_ignored():
    layers = blocks(2)
    for i, layer in enumerate(layers):
        layer.index = i
    layers.to(D)
    x = torch.ones(1, 2, 16, dtype=torch.float64, device=D)
    with pytest.raises(ValueError, match="differ in index: 0 and 1"):
        scan_layers(layers, x)
    torch.testing.assert_close(
        scan_layers(layers, x, ignore=["index"]).cpu(), plain(layers, x).cpu()
    )


def test_a_layer_that_changes_the_shape_or_writes_its_buffers_is_refused():
    x = torch.ones(2, 4, device=D)
    with pytest.raises(RuntimeError, match="carried value 0 to stay"):
        scan_layers([nn.Flatten(0).to(D), nn.Flatten(0).to(D)], x)
    norms = nn.ModuleList([nn.BatchNorm1d(4), nn.BatchNorm1d(4)]).to(D)
    with pytest.raises(RuntimeError, match="writes argument"):
        scan_layers(norms, x)


def test_inside_torch_compile_it_is_the_plain_loop():
    torch._dynamo.reset()
    layers = blocks(2).to(D)
    x = torch.ones(1, 2, 16, dtype=torch.float64, device=D)
    out = torch.compile(lambda x: scan_layers(layers, x), fullgraph=True)(x)
    torch.testing.assert_close(out.detach().cpu(), plain(layers, x).detach().cpu())


class Kept(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.up, self.down, self.p = nn.Linear(16, 8), nn.Linear(8, 16), p

    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False)

    def run(self, x):
        return x + F.dropout(self.down(torch.tanh(self.up(x))), self.p)


def test_checkpoint_inside_a_layer_computes_it_again_in_the_backward_loop():
    layers = nn.ModuleList([Kept(0.0) for _ in range(3)]).double().to(D)
    close(step(scan_layers, layers), step(plain, layers))


def test_a_checkpoint_inside_that_draws_is_refused_in_words():
    layers = nn.ModuleList([Kept(0.5) for _ in range(3)]).to(D)
    out = scan_layers(layers, torch.ones(2, 16, device=D))
    with pytest.raises(RuntimeError, match="checkpoint around the loop"):
        out.sum().backward()
