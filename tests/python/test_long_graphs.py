"""Loops without a sync, and chains whose values are kept, run as small programs of their rounds."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_pjrt
from torch_pjrt import metrics


def counted(name: str) -> int:
    return metrics.counters().get(name, 0)


@pytest.fixture
def split(device):
    """How many syncs of the test were split, and into how many runs of programs."""
    torch_pjrt.sync(wait=True)
    before = counted("SplitSync"), counted("SplitRun")
    return lambda: (counted("SplitSync") - before[0], counted("SplitRun") - before[1])


def instructions(hlo: str) -> int:
    return len(re.findall(r" = ", hlo))


def test_kept_values_of_a_chain_are_computed_once(device, compiles, split):
    x = torch.rand(8, 8)
    want, y = [], x
    for _ in range(200):
        y = y * 0.5 + 1
        want.append(y)
    y, kept = x.to(device), []
    with compiles() as seen:
        for _ in range(200):
            y = y * 0.5 + 1
            kept.append(y)
        torch_pjrt.sync()
    assert seen.count <= 3
    assert split()[0] == 1
    assert instructions(torch_pjrt.graph.last().hlo) < 500
    assert all(torch.equal(a.cpu(), b) for a, b in zip(kept, want, strict=True))


def test_a_chain_that_is_kept_and_never_repeats_is_cut_too(device, split):
    x = torch.rand(8, 8)

    def run(y: torch.Tensor) -> list[torch.Tensor]:
        kept = []
        for i in range(24):
            for k in range(i):
                y = y * 0.5 if k % 2 else y - 0.25
                if k % 3 != 1:
                    kept.append(y)
        return kept

    got = run(x.to(device))
    torch_pjrt.sync()
    assert split() > (0, 1)
    for a, b in zip(got, run(x), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-6, atol=1e-6)


def test_rows_that_are_written_one_by_one_compile_a_few_programs(device, compiles, split):
    x, want = torch.zeros(300, 4).to(device), torch.zeros(300, 4)
    torch_pjrt.sync()
    with compiles() as seen:
        for i in range(300):
            x[i] += i
        torch_pjrt.sync()
    for i in range(300):
        want[i] += i
    assert seen.count <= 5
    assert split()[0] == 1
    assert torch.equal(x.cpu(), want)


def test_a_long_sum_compiles_a_few_programs(device, compiles, split):
    x, y = torch.rand(10).to(device), torch.zeros(10).to(device)
    want = torch.zeros(10)
    torch_pjrt.sync()
    with compiles() as seen:
        for i in range(1000):
            y = y + (0.001 * i) * x
        torch_pjrt.sync()
    for i in range(1000):
        want = want + (0.001 * i) * x.cpu()
    assert seen.count <= 6
    assert split()[0] == 1
    torch.testing.assert_close(y.cpu(), want, rtol=1e-5, atol=1e-5)


def training(net: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, sync: bool) -> float:
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    loss = x.sum()
    for _ in range(steps):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        if sync:
            torch_pjrt.sync()
    return loss.item()


@pytest.fixture
def setting():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    return net, torch.randn(5, 4), torch.randn(5, 2)


def test_a_training_loop_that_reads_at_its_end_compiles_a_step(device, compiles, split, setting):
    host, x, y = setting
    net, other = copy.deepcopy(host).to(device), copy.deepcopy(host).to(device)
    x, y = x.to(device), y.to(device)
    torch_pjrt.sync(wait=True)
    with compiles() as seen:
        got = training(net, x, y, 40, sync=False)
    assert seen.count <= 4, [c.nodes for c in torch_pjrt.explain().compiles]
    assert split()[0] == 1
    assert split()[1] >= 40
    with compiles() as again:
        training(copy.deepcopy(host).to(device), x, y, 40, sync=False)
    assert again.count == 0
    assert got == pytest.approx(training(other, x, y, 40, sync=True), rel=1e-5)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-5, atol=1e-6)


def test_weights_are_updated_in_place_through_the_rounds(device, setting):
    host, x, y = setting
    net, x, y = host.to(device), x.to(device), y.to(device)
    opt = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    torch_pjrt.sync(wait=True)
    before = counted("DonatedBuffers")
    for _ in range(60):
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    torch_pjrt.sync()
    # Four weights and four momenta a program, of two steps.
    assert counted("DonatedBuffers") - before >= 8 * 20


def test_what_is_kept_of_an_old_value_stays(device):
    w = torch.ones(6).to(device)
    torch_pjrt.sync()
    old = w.clone()
    for _ in range(300):
        w.mul_(0.99).add_(0.01)
    torch_pjrt.sync()
    assert torch.equal(old.cpu(), torch.ones(6))


def test_layers_and_short_loops_are_one_program(device, compiles, split):
    net = nn.Sequential(*[nn.Linear(6, 6) for _ in range(40)]).to(device)
    x = torch.rand(2, 6).to(device)
    torch_pjrt.sync(wait=True)
    with compiles() as seen:
        y = net(x)
        for _ in range(20):
            y = y.exp().log1p()
        torch_pjrt.sync()
    assert (seen.count, split()[0]) == (1, 0)


def test_a_random_loop_draws_what_it_draws_step_by_step(device, split):
    def run(sync: bool) -> torch.Tensor:
        torch_pjrt.manual_seed(3)
        x = torch.zeros(7).to(device)
        for _ in range(300):
            x = x * 0.9 + torch.randn_like(x)
            if sync:
                torch_pjrt.sync()
        torch_pjrt.sync()
        return x.cpu()

    a = run(sync=False)
    assert split()[0] == 1
    torch.testing.assert_close(a, run(sync=True), rtol=1e-5, atol=1e-5)


LOOP = """
import torch, torch_pjrt
from torch_pjrt import metrics
x = torch.ones(3).to("xla")
{before}
for i in range({rounds}):
    x = torch.sin(x) * 0.5 + i
{after}
print(x.sum().item() if {read} else "")
for name in ("AutomaticCut", "SplitSync", "UncachedCompile"):
    print(name, metrics.counters().get(name, 0))
print("pending", torch_pjrt.state(x))
"""


def numbers(out: str) -> dict[str, int]:
    return {k: int(v) for k, v in re.findall(r"(\w+) (\d+)$", out, re.M)}


def test_a_loop_that_never_syncs_is_cut_at_the_end_of_a_round(run_python):
    code = LOOP.format(before="", rounds=3000, after="", read=True)
    done = run_python(code=code, TORCH_PJRT_CUT_NODES="1000", TORCH_PJRT_CACHE="off")
    seen = numbers(done.stdout)
    assert seen["AutomaticCut"] >= 3, done.stdout + done.stderr
    assert seen["UncachedCompile"] <= 8, done.stdout  # whole rounds, in powers of two
    assert re.search(r"\d+ steps were recorded at <string>:\d+", done.stderr), done.stderr
    assert done.stderr.count("steps were recorded") == 1
    assert "torch_pjrt.sync() at the end of a step" in done.stderr
    x = torch.ones(3)
    for i in range(3000):
        x = torch.sin(x) * 0.5 + i
    assert float(done.stdout.split()[0]) == pytest.approx(x.sum().item(), rel=1e-5)


def test_cuts_are_off_where_the_flag_is_zero_and_inside_no_cuts(run_python):
    for before, cut in (("", "0"), ("torch_pjrt.no_cuts().__enter__()", "1000")):
        code = LOOP.format(before=before, rounds=1500, after="", read=False)
        done = run_python(code=code, TORCH_PJRT_CUT_NODES=cut, TORCH_PJRT_CACHE="off")
        assert numbers(done.stdout)["AutomaticCut"] == 0, done.stdout
        assert "pending ir" in done.stdout


def test_results_that_are_dropped_are_not_waited_for(run_python):
    code = """
import torch, torch_pjrt
from torch_pjrt import metrics
x = torch.ones(3).to("xla")
for i in range(5000):
    torch.sin(x) + i
print("AutomaticCut", metrics.counters().get("AutomaticCut", 0))
"""
    done = run_python(code=code, TORCH_PJRT_CUT_NODES="500")
    assert numbers(done.stdout)["AutomaticCut"] == 0, done.stdout
    assert done.stderr == ""
