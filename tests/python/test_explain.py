"""Each reason for a recompile is told in exactly its words; each cut is counted by its line."""

import contextlib
import io
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import torch_pjrt

HERE = Path(__file__).name


def line_of(mark: str) -> str:
    """ "test_explain.py:12" for the line that ends in the comment `mark`."""
    lines = Path(__file__).read_text().splitlines()
    found = [i for i, x in enumerate(lines, 1) if x.endswith("# " + mark)]
    assert len(found) == 1, (mark, found)
    return f"{HERE}:{found[0]}"


def run(make: Callable[[], object]) -> torch_pjrt._explain.Compile | None:
    """Syncs what `make` leaves alive; the compile that this took, if any."""
    before = torch_pjrt.metrics.compiles()
    kept = make()
    torch_pjrt.sync()
    del kept
    compiled = torch_pjrt.metrics.compiles() > before
    return torch_pjrt.explain(last=True) if compiled else None


def why(first: Callable[[], object], then: Callable[[], object]) -> list[str]:
    """The reasons why `then` compiles after `first`."""
    torch_pjrt.sync(wait=True)
    run(first)
    found = run(then)
    assert found is not None, "nothing was compiled"
    return [str(r) for r in found.reasons]


# ---- reasons --------------------------------------------------------------------------------


def test_an_argument_of_another_shape(device):
    def step(n: int) -> torch.Tensor:
        x = torch.ones(7, n).to(device)  # grows
        return x.sin().tan() * 2

    assert why(lambda: step(11), lambda: step(12)) == [
        f"arg 0 f32[7,11] -> f32[7,12] ({line_of('grows')})"
    ]


def test_an_argument_of_another_dtype(device):
    def step(dtype: torch.dtype) -> torch.Tensor:
        x = torch.ones(7, 13, dtype=dtype).to(device)  # another dtype
        return x.cos().tan() * 2

    assert why(lambda: step(torch.float32), lambda: step(torch.float64)) == [
        f"arg 0 f32[7,13] -> f64[7,13] ({line_of('another dtype')})"
    ]


def test_only_the_argument_that_changed_is_named(device):
    a, b = torch.ones(5, 5).to(device), torch.ones(5, 1).to(device)
    c = torch.ones(5, 5).to(device)  # the changed one
    assert why(lambda: (a.sin() + b) * b.exp2(), lambda: (a.sin() + c) * c.exp2()) == [
        f"arg 1 f32[5,1] -> f32[5,5] ({line_of('the changed one')})"
    ]


def test_a_new_op(device):
    x = torch.ones(7, 17).to(device)

    def step(more: bool) -> torch.Tensor:
        y = x.sinh()
        if more:
            y = y.clamp(min=0.1)  # the new op
        return y.cosh()

    assert why(lambda: step(False), lambda: step(True)) == [
        f"new op aten.clamp at {line_of('the new op')}"
    ]


def test_an_op_that_is_gone(device):
    x = torch.ones(7, 18).to(device)

    def step(more: bool) -> torch.Tensor:
        y = x.asinh()
        if more:
            y = y.floor()  # soon gone
        return y.acosh()

    assert why(lambda: step(True), lambda: step(False)) == [
        f"op aten.floor at {line_of('soon gone')} is no longer there"
    ]


def test_a_tensor_newly_alive(device):
    x = torch.ones(10).to(device)

    def step(keep: bool) -> object:
        inner = x.atan()  # newly alive
        y = inner.expm1()
        return (inner, y) if keep else y

    assert why(lambda: step(False), lambda: step(True)) == [
        f"tensor f32[10] newly alive (made at {line_of('newly alive')})"
    ]


def test_a_tensor_no_longer_alive(device):
    x = torch.ones(11).to(device)

    def step(keep: bool) -> object:
        inner = x.atanh()  # no longer alive
        y = inner.log1p()
        return (inner, y) if keep else y

    assert why(lambda: step(True), lambda: step(False)) == [
        f"tensor f32[11] no longer alive (made at {line_of('no longer alive')})"
    ]


def test_a_baked_number(device):
    x = torch.ones(3, 19).to(device)

    def step(eps: float) -> torch.Tensor:
        return F.layer_norm(x.erf(), (19,), eps=eps)  # baked

    assert why(lambda: step(0.2), lambda: step(0.1)) == [
        f"number 0.1 at {line_of('baked')} was baked (eps of aten.native_layer_norm, 0.2 before)"
    ]


def test_a_number_that_shapes(device):
    x = torch.ones(29, 3).to(device)

    def step(n: int) -> torch.Tensor:
        return x[:n].erfc().sum()  # a size

    place = line_of("a size")
    assert why(lambda: step(4), lambda: step(5)) == [
        f"size of torch_pjrt.view [4,3] -> [5,3] ({place})"
    ]


def test_the_kind_of_a_number(device):
    x = torch.ones(7, 23).to(device)
    assert why(lambda: x.rsqrt() * 2, lambda: x.rsqrt() * 2.5) == ["number int -> float"]


def test_other_wiring_of_the_same_ops(device):
    x, y = torch.ones(31).to(device), torch.ones(31).to(device)
    assert why(lambda: (x * y).exp() - x, lambda: (x * y).exp() - y) == [
        "the same ops and arguments, wired otherwise (which argument feeds which op)"
    ]


def test_an_evicted_program(device):
    x = torch.ones(37).to(device)
    torch_pjrt.sync(wait=True)

    def step() -> torch.Tensor:
        return x.sigmoid().digamma()

    run(step)
    torch_pjrt._C.clear_programs()
    found = run(step)
    assert [str(r) for r in found.reasons] == [
        "the program was there, but left the cache (XLA_COMPILATION_CACHE_SIZE, or cleared)"
    ]


def test_a_read_compiles_for_itself(device):
    x = torch.ones(41).to(device)
    torch_pjrt.sync(wait=True)
    y = x.lgamma().square()
    torch_pjrt.sync()
    del y
    y = x.lgamma().square()
    y.cpu()
    assert [str(r) for r in torch_pjrt.explain(last=True).reasons] == [
        "compiled for a read where before it was for a sync, or the other way round"
    ]


def test_the_nearest_graph_is_the_one_compared_with(device):
    x = torch.ones(43).to(device)

    def long(n: int, last: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        y = x
        for _ in range(n):
            y = y.tanh()
        return last(y)

    run(lambda: long(20, torch.neg))
    run(lambda: long(5, torch.neg))
    found = run(lambda: long(20, torch.ceil))
    assert {r.kind for r in found.reasons} <= {"new op", "gone op", "alive", "dead"}
    assert sum(r.kind == "new op" for r in found.reasons) == 1


# ---- how it is told -------------------------------------------------------------------------


def test_the_first_compile_of_a_line_is_expected_and_the_second_is_not(device):
    seen = []
    for n in (3, 4):
        (torch.ones(n, 47).to(device).exp() + n).cpu()
        seen.append(torch_pjrt.explain(last=True).unexpected)
    assert seen == [False, True]


def test_a_recompile_is_one_line_of_the_logger(device, caplog):
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for n in (5, 6):
            (torch.ones(n, 53).to(device).log2() + n).cpu()
    lines = [r.getMessage() for r in caplog.records if r.name == "torch_pjrt"]
    assert len(lines) == 1
    assert re.fullmatch(
        rf"recompiled at {HERE}:\d+ in \w+ in \d+ ms, \d+ ops, key [0-9a-f]{{8}}: "
        rf"arg 0 f32\[5,53\] -> f32\[6,53\] \({HERE}:\d+\)",
        lines[0],
    ), lines


def test_a_loop_that_recompiles_forever_is_not_told_forever(device, caplog):
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for n in range(1, 24):
            (torch.ones(n, 59).to(device).log10() + n).cpu()
    told = [r for r in caplog.records if "recompiled" in r.getMessage()]
    assert 8 <= len(told) <= 11


def test_explain_prints_the_last_compile(device):
    for n in (7, 8):
        (torch.ones(n, 61).to(device).log() + n).cpu()
    text = str(torch_pjrt.explain(last=True))
    assert text.startswith("compile ")
    assert "  arg 0 f32[7,61] -> f32[8,61]" in text
    assert text in str(torch_pjrt.explain()).replace("\n  ", "\n") or "arg 0" in text


def test_a_fixed_loop_is_compiled_once_and_says_nothing(device, caplog):
    w = torch.ones(67, 3).to(device)
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for _ in range(5):
            w = w * 0.5
            torch_pjrt.sync()
    assert [r for r in caplog.records if "recompiled" in r.getMessage()] == []


def test_the_log_goes_to_stderr_where_nobody_set_logging_up(run_python):
    code = """
import torch, torch_pjrt
for n in (2, 3):
    (torch.ones(n).to("xla") * 2).cpu()
"""
    done = run_python(code=code)
    assert "torch_pjrt: recompiled at <string>:4 in" in done.stderr, done.stderr
    configured = "import logging; logging.basicConfig(format='LOG %(name)s %(message)s')\n" + code
    done = run_python(code=configured)
    assert "LOG torch_pjrt recompiled at <string>:5" in done.stderr
    assert "torch_pjrt: recompiled" not in done.stderr


# ---- cuts -----------------------------------------------------------------------------------


def printed(t: torch.Tensor) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        print(t)  # kind: print


CUTS = {
    "item": lambda t: t.sum().item(),  # kind: item
    "bool": lambda t: bool(t.sum()),  # kind: bool
    "cpu": lambda t: t.cpu(),  # kind: cpu
    "print": printed,
    "aten::nonzero on the CPU": lambda t: torch.nonzero(t),  # kind: aten::nonzero on the CPU
}


def cuts_now() -> dict[tuple[str, str], int]:
    return {(r.kind, r.place.text): r.cuts for r in torch_pjrt.explain().cuts}


@pytest.mark.parametrize("kind", CUTS)
def test_a_cut_is_counted_by_kind_and_line(kind, device):
    x = torch.ones(3).to(device)
    torch_pjrt.sync(wait=True)
    at = kind, line_of(f"kind: {kind}")
    before = cuts_now().get(at, 0)
    for _ in range(3):
        CUTS[kind](x + 1)
    assert cuts_now()[at] == before + 3


def test_numpy_and_lists_are_cuts_too(device):
    x = torch.ones(3).to(device)
    for read in (lambda t: t.cpu().numpy(), lambda t: t.tolist(), lambda t: float(t.sum())):
        before = sum(cuts_now().values())
        read(x + 1)
        assert sum(cuts_now().values()) == before + 1


def test_reading_what_is_computed_already_is_no_cut(device):
    x = torch.ones(3).to(device) + 1
    torch_pjrt.sync(wait=True)
    before = sum(cuts_now().values())
    assert x.sum(0, keepdim=True).shape == (1,)
    x.cpu()
    assert sum(cuts_now().values()) == before


@pytest.mark.parametrize("kind", CUTS)
def test_no_cuts_raises_at_the_line_of_each_kind(kind, device):
    y = torch.ones(3).to(device) + 1
    with torch_pjrt.no_cuts(), pytest.raises(RuntimeError) as caught:
        CUTS[kind](y)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"no_cuts: {kind} would cut the graph at {line_of(f'kind: {kind}')}")
    assert torch.equal(y.cpu(), torch.full((3,), 2.0))  # and outside it is read


def test_no_cuts_lets_computed_values_be_read(device):
    y = torch.ones(3).to(device) + 1
    with torch_pjrt.no_cuts():
        torch_pjrt.sync()
        assert y.tolist() == [2.0] * 3


def test_a_line_that_cuts_often_is_warned_about_once(device, caplog):
    x = torch.ones(3).to(device)
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for _ in range(30):
            (x + 1).cpu()  # often
    told = [r.getMessage() for r in caplog.records if "has cut the graph" in r.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"{line_of('often')}: cpu has cut the graph 20 times and waited ")


# ---- across processes -----------------------------------------------------------------------


def test_a_new_process_says_why_what_is_stored_was_of_no_use(run_python, tmp_path):
    code = """
import torch, torch_pjrt
(torch.ones(5, 89).to("xla") * 2).cpu()
e = torch_pjrt.explain(last=True)
print(torch_pjrt.metrics.compiles(), [r.kind for r in e.reasons] if e else None)
"""
    keep = {"code": code, "TORCH_PJRT_CACHE": str(tmp_path / "cache")}
    first, again = run_python(**keep), run_python(**keep)
    assert (first.stdout, first.stderr) == ("1 []\n", "")
    assert (again.stdout, again.stderr) == ("0 None\n", "")
    other = run_python(**keep, TORCH_PJRT_CPU_DEVICES="2")
    assert other.stdout == "1 ['environment']\n"
    assert re.search(
        r"recompiled at <string>:3 in \d+ ms, \d+ ops, key \w+: the plugin, its options or flags: "
        r"went .*TORCH_PJRT_CPU_DEVICES=1.* -> .*TORCH_PJRT_CPU_DEVICES=2",
        other.stderr,
    ), other.stderr
