"""TORCH_PJRT_TIERS: which graphs PyTorch's CPU kernels compute instead of a program."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_pjrt

Compiles = Callable[[], Any]


def interpreted() -> int:
    """Graphs computed without a program so far."""
    return torch_pjrt.metrics.counters().get("Interpreted", 0)


def small(start: int, size: int) -> torch.Tensor:
    """A whole-number graph of a few ops."""
    x = torch.full((size,), start, device="xla")
    return torch.cat([x * 2, (x > 3).to(torch.long)])


def test_a_small_whole_number_graph_is_interpreted_once_then_compiled(compiles: Compiles) -> None:
    """The first time no program, the second time one, the third time that one."""
    first = interpreted()
    counts = []
    for _ in range(3):
        with compiles() as seen:
            assert small(4, 7).tolist() == [8] * 7 + [1] * 7
        counts.append(seen.count)
    assert counts == [0, 1, 0]
    assert interpreted() - first == 1


WRITES = {
    "a whole row": lambda t, k: t[0].fill_(k),
    "a transposed view": lambda t, k: t.t().copy_(torch.full_like(t.t(), k)),
    "an expanded value": lambda t, k: t.copy_(k.expand_as(t)),
    "a part, then the whole": lambda t, k: (t[:, 1:].fill_(k), t.copy_(k.expand_as(t))),
}


@pytest.mark.parametrize("name", WRITES)
def test_an_interpreted_write_of_one_value_fills_its_memory(name: str) -> None:
    """The value that is written has fewer elements than the memory."""

    def program(device: str) -> list[torch.Tensor]:
        t = torch.arange(6, device=device).view(1, 6)
        WRITES[name](t, torch.tensor(5, device=device))
        chosen = torch.where(torch.ones_like(t).bool(), t, torch.tensor(7, device=device))
        return [chosen, t.t() + 1, t[:, 2:].flip(1)]

    first = interpreted()
    ours = [x.cpu() for x in program("xla")]
    assert interpreted() > first
    for want, got in zip(program("cpu"), ours, strict=True):
        assert torch.equal(want, got)


def test_graphs_that_grow_never_compile(compiles: Compiles) -> None:
    """As token ids do."""
    ids = torch.ones(3, dtype=torch.long, device="xla")
    with compiles() as seen:
        for i in range(20):
            ids = torch.cat([ids, ids[-1:] + 1])
            assert ids[-1].item() == i + 2
    assert seen.count <= 1  # the last element, once it came twice


@pytest.mark.programs
def test_floats_compile_at_once(compiles: Compiles) -> None:
    """Their last bits may differ between kernels and programs."""
    with compiles() as seen:
        assert (torch.ones(3, device="xla") * 1.5).tolist() == [1.5] * 3
    assert seen.count == 1


def test_explain_tells_what_was_interpreted() -> None:
    """With the line."""
    assert small(1, 11)[0].item() == 2
    lines = [i for i in torch_pjrt.explain().interpreted if "test_tiers" in i.site]
    assert lines
    assert "seen once" in str(lines[0]) or "times" in str(lines[0])
    assert "interpreted" in str(torch_pjrt.explain())


def test_deterministic_mode_compiles_at_once(compiles: Compiles) -> None:
    """It asks for programs only."""
    torch.use_deterministic_algorithms(True)
    try:
        with compiles() as seen:
            assert small(4, 13).tolist() == [8] * 13 + [1] * 13
    finally:
        torch.use_deterministic_algorithms(False)
    assert seen.count == 1


def test_a_kernel_that_raises_loses_nothing() -> None:
    """Eager's error, at the read; what does not depend on it is computed."""
    x = torch.arange(4, device="xla") + 1
    good = x * 2
    i = torch.tensor([2, 3], device="xla") + 5
    bad = x.gather(0, i)
    with pytest.raises(RuntimeError, match="index 7 is out of bounds"):
        bad.tolist()
    assert good.tolist() == [2, 4, 6, 8]
    assert x.tolist() == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="index 7 is out of bounds"):
        bad.tolist()


def run(code: str, **env: str) -> str:
    """The output of a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TORCH_PJRT_CACHE": "off"} | env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


VARYING = """
import torch, torch_pjrt
from torch import nn
import torch.nn.functional as F
def train(device):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU(),
                      nn.Flatten(), nn.Linear(48, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    opt = torch.optim.Adam(m.parameters(), lr=.01)
    g = torch.Generator().manual_seed(1)
    out = []
    for n in (3, 4, 5, 6, 3, 4, 3, 3):
        x = torch.randn(n, 1, 4, 4, generator=g).to(device)
        y = torch.randint(0, 3, (n,), generator=g).to(device)
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        torch_pjrt.sync()
        out.append(loss.detach())
    return [v.item() for v in out], [p.detach().cpu() for p in m.parameters()]
want, want_p = train("cpu")
got, got_p = train("xla")
torch.testing.assert_close(torch.tensor(got), torch.tensor(want))
for a, b in zip(got_p, want_p): torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
r = []
for n in range(3):
    torch.manual_seed(5)
    x = torch.rand(5, device="xla") + torch.rand(7, device="xla").sum()
    torch_pjrt.sync(); r.append(x.tolist())
assert r[0] == r[1] == r[2], r
c = torch_pjrt.metrics.counters()
print(torch_pjrt.metrics.compiles(), c.get("Interpreted", 0))
"""


def test_interpreted_training_equals_eager() -> None:
    """Steps of varying size, all tiers: eager's losses and weights, the same random numbers."""
    _, count = (int(v) for v in run(VARYING, TORCH_PJRT_TIERS="on").split())
    assert count >= 6


def test_off_interprets_nothing() -> None:
    """The flag's other end."""
    _, count = (int(v) for v in run(VARYING, TORCH_PJRT_TIERS="off").split())
    assert count == 0


OCCURRENCES = """
import torch, torch_pjrt
x = torch.ones(4, device="xla"); torch_pjrt.sync()
def one(n):
    y = torch.ones(n, device="xla") * 1.5 + .25
    torch_pjrt.sync()
for n in SIZES: one(n)
torch_pjrt.wait()
print(torch_pjrt.metrics.counters().get("Interpreted", 0))
"""


@pytest.mark.parametrize(
    ("sizes", "interpreted_of_them"),
    [
        ("[3] * 6", 2),  # a line with one graph: the third time it is a program
        ("[3, 5] * 20", 16),  # two: each eight times
        ("[3, 5, 7] * 12", 36),  # more: none of them came 32 times
    ],
)
def test_a_line_that_brings_different_graphs_needs_more_of_each(
    sizes: str, interpreted_of_them: int
) -> None:
    """A compile costs what hundreds of interpretations save."""
    code = OCCURRENCES.replace("SIZES", sizes)
    assert int(run(code, TORCH_PJRT_TIERS="on")) == interpreted_of_them


STRIDES = """
import torch, torch_pjrt
import torch.nn.functional as F
def gradients(device):
    torch.manual_seed(0)
    x = torch.randn(2, 6, 3).to(device).requires_grad_()
    w = torch.randn(6).to(device).requires_grad_()
    F.group_norm(x, 2, w, w * 2).sum().backward()
    return [x.grad.cpu(), w.grad.cpu()]
for a, b in zip(gradients("xla"), gradients("cpu")): torch.testing.assert_close(a, b)
print(torch_pjrt.metrics.counters()["Interpreted"])
"""


def test_kernels_that_count_on_contiguous_operands_get_them() -> None:
    """The gradient of a sum is an expanded value; group norm's kernel reads its memory."""
    assert int(run(STRIDES, TORCH_PJRT_TIERS="on")) >= 1


# ---- a block's own setting ------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["off", "on"])
def test_a_block_has_its_own_setting(setting: str) -> None:
    """Whatever the flag says."""
    first = interpreted()
    x = torch.ones(5 if setting == "on" else 6, device="xla")
    torch_pjrt.sync(wait=True)
    with torch_pjrt.tiers(setting):
        assert (x * 2.5 + 0.125).sum().item() == 2.625 * len(x)
    assert interpreted() - first == (setting == "on")


def test_another_word_is_refused_and_changes_nothing() -> None:
    """In the words of the flag."""
    with pytest.raises(ValueError, match=r"tiers: expected off, small, varying or on, found 'all'"):
        torch_pjrt.tiers("all")
    with pytest.raises(ValueError, match=r"tiers: expected off, small, varying or on, found ''"):
        torch_pjrt.tiers("")


def test_a_decorated_function_has_its_setting_in_each_thread() -> None:
    """One that ends while it runs elsewhere puts back its own thread's."""
    entered, release = threading.Event(), threading.Event()

    @torch_pjrt.tiers("off")
    def inside(body: Callable[[], None]) -> None:
        body()

    def other_body() -> None:
        entered.set()
        release.wait(60)

    def other() -> None:
        with torch_pjrt.tiers("small"):
            inside(other_body)

    thread = threading.Thread(target=other)

    def first_body() -> None:
        thread.start()
        entered.wait(60)

    with torch_pjrt.tiers("on"):
        inside(first_body)  # ends while the other thread is inside
        assert torch_pjrt._C.exchange_thread_tier("on") == "on"
    release.set()
    thread.join(120)


def test_a_compile_beside_is_counted_when_it_is_handed_over() -> None:
    """So that counts depend on occurrences, not on time."""
    counts = []
    with torch_pjrt.tiers("on"):
        for _ in range(4):
            before = torch_pjrt.metrics.compiles()
            y = torch.ones(11, device="xla").mul(0.5).exp()
            torch_pjrt.sync()
            counts.append(torch_pjrt.metrics.compiles() - before)
            del y
    assert counts == [0, 1, 0, 0]


def test_torch_pjrt_compile_is_a_program_from_the_first_call_on() -> None:
    """As torch.compile and capture."""
    first = interpreted()
    with torch_pjrt.tiers("on"):
        step = torch_pjrt.compile(lambda x: x.mul(0.75).exp().sum())
        assert step(torch.zeros(13, device="xla")).item() == 13
    assert interpreted() == first


# ---- loops and branches ---------------------------------------------------------------------


def recurrent(device: str) -> list[torch.Tensor]:
    """An LSTM's results and gradients among other ops."""
    torch.manual_seed(0)
    net = torch.nn.LSTM(5, 7, batch_first=True)
    x = torch.randn(2, 4, 5)
    net, x = net.to(device), x.to(device).requires_grad_()
    torch_pjrt.sync()
    y, (h, _) = net((x * 1.5).exp())
    (y.sigmoid().sum() + h.sum()).backward()
    return [t.detach().cpu() for t in (y, h, x.grad, net.weight_hh_l0.grad)]


def test_a_loop_in_an_interpreted_graph_is_a_program_of_its_own() -> None:
    """Explained as such, never as a recompile."""
    with torch_pjrt.tiers("on"):
        first = interpreted()
        torch_pjrt.explain.clear()  # it keeps the newest thousand
        got = recurrent("xla")
        assert interpreted() > first
    torch.testing.assert_close(got, recurrent("cpu"))
    made = torch_pjrt.explain().compiles
    assert made
    assert not any(c.unexpected for c in made)
    assert all("an op of an interpreted graph" in str(c) for c in made)


def test_a_loop_keeps_its_body_where_glue_is_peeled_off() -> None:
    """The same core with other whole-number ops around it."""

    def peeled() -> int:
        return torch_pjrt.metrics.counters().get("PeeledSync", 0)

    net = torch.nn.GRU(3, 4).to("xla")
    x = torch.ones(5, 1, 3, device="xla")
    with torch.no_grad():
        torch_pjrt.sync(wait=True)
        first, seen = peeled(), []
        for n in range(2, 6):
            mask = torch.arange(n, device="xla") % 2
            y = net(x * mask.sum())[0]
            torch_pjrt.sync()
            seen.append((n // 2, y.cpu()))
    assert peeled() > first
    cpu = net.cpu()
    for scale, y in seen:
        torch.testing.assert_close(y, cpu(torch.full((5, 1, 3), float(scale)))[0].detach())


SPLIT = """
import torch, torch_pjrt
def many(device):
    torch.manual_seed(0)
    net = torch.nn.GRU(3, 3)
    x = torch.randn(4, 2, 3)
    net, x = net.to(device), x.to(device)
    torch_pjrt.sync()
    kept = []
    with torch.no_grad():
        for i in range(40):
            for _ in range(6): x = x * 0.5 + 1
            x = net(x)[0]
            kept.append(x)
    torch_pjrt.sync()
    return [t.cpu() for t in kept]
torch.testing.assert_close(many("xla"), many("cpu"))
print(torch_pjrt.metrics.counters().get("SplitSync", 0))
"""


def test_a_loop_keeps_its_body_where_a_long_graph_is_split() -> None:
    """Segments are copies of their nodes."""
    assert int(run(SPLIT, TORCH_PJRT_SPLIT_NODES="64")) > 0


# ---- told -----------------------------------------------------------------------------------


def test_an_interpreted_graph_is_explained_and_so_is_its_compile_later() -> None:
    """By the nearest graph known, though nothing was compiled yet."""

    def step(n: int) -> None:
        x = torch.ones(n, device="xla")
        torch_pjrt.sync()
        y = x.mul(0.375).cosh()
        torch_pjrt.sync()
        del y

    with torch_pjrt.tiers("on"):
        for _ in range(3):
            step(17)
        step(18)
        told = torch_pjrt.explain().new_graphs[-1]
        assert (told.interpreted, told.unexpected, told.seconds) == (True, True, 0.0)
        assert "f32[17] -> f32[18]" in told.reasons[0].text
        assert "interpreted: seen once" in str(told)
        assert str(told.reasons[0]) in str(torch_pjrt.explain())
        for _ in range(8):  # of two graphs at a line each is compiled beside its eighth
            step(18)
        compiled = torch_pjrt.explain().recompiles[-1]
    assert compiled.key == told.key
    assert compiled.reasons == told.reasons


def test_the_last_graph_is_the_interpreted_one() -> None:
    """It has its text, and no program."""
    with torch_pjrt.tiers("on"):
        y = torch.ones(19, device="xla").mul(0.625).acosh()
        torch_pjrt.sync()
    g = torch_pjrt.graph.last()
    assert "aten::acosh" in g.text
    assert g.program() is None
    del y
