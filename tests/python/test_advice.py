"""Messages and findings name the user's own line beside a library's, and say what to do."""

import importlib
import logging
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from fake_plugin import fake_env
from torch import nn

import torch_pjrt

HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def distributions_check():
    """As at the start of a process: packages that other tests import switch it off for all."""
    kind = torch.distributions.Distribution
    before = kind._validate_args
    kind.set_default_validate_args(True)
    yield
    kind.set_default_validate_args(before)


def line_of(mark: str) -> str:
    """ "test_advice.py:12" for the line that ends in the comment `mark`."""
    lines = Path(__file__).read_text().splitlines()
    found = [i for i, x in enumerate(lines, 1) if x.endswith("# " + mark)]
    assert len(found) == 1, (mark, found)
    return f"{HERE}:{found[0]}"


LIBRARY = """
import torch

def upload(x):
    return x.to("xla")

def sync():
    import torch_pjrt
    torch_pjrt.sync()

def value(t):
    return t.sum().item()

def host(t):
    return torch.linalg.eigvalsh(t)

def bad(t):
    return t + torch.ones(7, device="xla")

def twice(f, x):
    return f(x) * 2
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """An installed package: a module below a folder site-packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    name = f"somelib_{abs(hash(tmp_path))}"
    (folder / f"{name}.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module(name)
    sys.modules.pop(name)


def told(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "torch_pjrt"]


# ---- the user's own line --------------------------------------------------------------------


def test_a_recompile_in_a_library_names_both_lines(library, device, caplog):
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for n in (3, 4):
            x = library.upload(torch.ones(n, 71))  # own upload
            y = x.exp2() + 1
            library.sync()  # own sync
            del y
    name = library.__name__
    text = told(caplog)[-1]
    assert f"recompiled at {name}.py:9 in sync, called from {line_of('own sync')} in test_" in text
    assert f"({name}.py:5, first reached from {line_of('own upload')})" in text
    found = torch_pjrt.explain(last=True)
    assert found.reasons[0].place.own.text == line_of("own upload")
    assert found.reasons[0].place.file.endswith(f"{name}.py")


def test_a_cut_in_a_library_is_counted_by_both_lines(library, device):
    x = torch.ones(3).to(device)
    for _ in range(3):
        library.value(x + 1)  # first reader
        library.value(x + 2)  # second reader
    cuts = {r.place.own.text: r.cuts for r in torch_pjrt.explain().cuts if r.place.own}
    assert cuts[line_of("first reader")] == cuts[line_of("second reader")] == 3


def test_no_cuts_in_a_library_names_both_lines(library, device):
    x = torch.ones(3).to(device) + 1
    with torch_pjrt.no_cuts(), pytest.raises(RuntimeError) as caught:
        library.value(x)  # forbidden here
    first = str(caught.value).splitlines()[0]
    assert f"{library.__name__}.py:12 in value, called from {line_of('forbidden here')}" in first


def test_an_error_in_a_library_names_both_lines(library, device):
    with pytest.raises(RuntimeError, match="size of tensor") as caught:
        library.bad(torch.ones(3).to(device))  # bad call
    called = f"called at {library.__name__}.py:18 in bad, called from {line_of('bad call')}"
    assert called in str(caught.value)


def test_own_code_that_a_library_calls_is_named_alone(library, device):
    x = torch.ones(3).to(device)
    with torch_pjrt.no_cuts(), pytest.raises(RuntimeError) as caught:
        library.twice(lambda t: (t + 1).sum().item(), x)  # own inside
    first = str(caught.value).splitlines()[0]
    assert line_of("own inside") in first
    assert "called from" not in first


def test_pythons_own_library_is_not_the_user(device):
    import functools

    x = torch.ones(3).to(device)
    with torch_pjrt.no_cuts(), pytest.raises(RuntimeError) as caught:
        functools.reduce(lambda a, b: a, [1], (x + 1).sum().item())  # plain
    assert line_of("plain") in str(caught.value)
    import statistics

    with torch_pjrt.no_cuts(), pytest.raises(RuntimeError) as caught:
        statistics.fmean([(x + 1).sum()])  # of statistics
    text = str(caught.value).splitlines()[0]
    assert re.search(
        r"at statistics\.py:\d+ in fmean, called from " + line_of("of statistics"), text
    )


def test_files_of_one_name_are_told_apart_by_their_paths(run_python, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
        (tmp_path / folder / "ops.py").write_text("def f(x):\n    return (x + 1).sum().item()\n")
    code = """
import torch, torch_pjrt
from a import ops as first
from b import ops as second
x = torch.ones(3).to("xla")
first.f(x)
second.f(x)
print(*sorted(r.place.text for r in torch_pjrt.explain().cuts))
"""
    done = run_python(code=code, PYTHONPATH=str(tmp_path))
    assert done.stdout == f"{tmp_path}/a/ops.py:2 {tmp_path}/b/ops.py:2\n", done.stderr


# ---- what to do -----------------------------------------------------------------------------


def findings(run_python, body: str, **env: str) -> str:
    code = "import torch, torch_pjrt\nimport torch.nn.functional as F\n" + textwrap.dedent(body)
    code += "\nfor f in torch_pjrt.explain.findings(): print(f.kind, '|', f)\n"
    done = run_python(code=code, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


UNSYNCED = {
    "training": """
        w = torch.ones(8, 8).to("xla").requires_grad_()
        opt = torch.optim.SGD([w], lr=0.1)
        for step in range(150):
            loss = (w @ w).softmax(1).var()
            loss.backward()
            opt.step()
            opt.zero_grad()
        print(loss.item())
    """,
    "inference": """
        x = torch.ones(8, 8).to("xla")
        kept = []
        for step in range(300):
            kept.append(F.gelu(x @ x + step).softmax(1).sum())
        torch_pjrt.sync()
    """,
    "a state that goes round": """
        x = torch.ones(8, 8).to("xla")
        for step in range(400):
            x = torch.tanh(x @ x) + x.mean()
        torch_pjrt.sync()
    """,
}


@pytest.mark.parametrize("name", UNSYNCED)
def test_a_loop_that_never_syncs_is_told_to(run_python, fake, name):
    text = findings(run_python, UNSYNCED[name], **fake_env(fake))
    assert "no sync | Many steps are one graph" in text, text
    assert "torch_pjrt.sync() at the end of each step" in text


@pytest.mark.parametrize("name", UNSYNCED)
def test_the_same_loop_with_a_sync_is_not(run_python, fake, name):
    lines = textwrap.dedent(UNSYNCED[name]).strip().splitlines()
    body = [
        line + "\n    torch_pjrt.sync()"
        if line.startswith("    ") and (i + 1 == len(lines) or not lines[i + 1].startswith("    "))
        else line
        for i, line in enumerate(lines)
    ]
    text = findings(run_python, "\n".join(body), **fake_env(fake))
    assert "no sync" not in text, text


def test_a_model_of_many_equal_layers_is_one_step(run_python, fake):
    text = findings(
        run_python,
        """
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 16), torch.nn.TransformerEncoder(layer, 10), torch.nn.Linear(16, 3)
        ).to("xla")
        opt = torch.optim.Adam(net.parameters())
        x, y = torch.randn(2, 5, 4).to("xla"), torch.zeros(2, 5, dtype=torch.int64).to("xla")
        for _ in range(2):
            F.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()
            opt.step()
            opt.zero_grad()
            torch_pjrt.sync()
        assert max(c.nodes for c in torch_pjrt.explain().compiles) > 1000
        """,
        **fake_env(fake),
    )
    assert "no sync" not in text, text


def test_recording_for_ever_is_told_while_it_goes_on(run_python):
    code = """
import torch, torch_pjrt
x = torch.ones(2).to("xla")
for i in range(20_000):
    x = x + 1
import os; os._exit(0)
"""
    done = run_python(code=code)
    assert "steps were recorded at <string>:5 without a sync between them" in done.stderr
    assert "try: call torch_pjrt.sync() at the end of a step" in done.stderr
    assert done.stderr.count("steps were recorded") == 1


def test_recording_what_is_dropped_again_says_nothing(run_python):
    code = """
import time, torch, torch_pjrt
x = torch.ones(2).to("xla")
for i in range(600_000):
    x + 1
time.sleep(1)
print("end")
"""
    done = run_python(code=code)
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_shapes_that_never_repeat_are_led_to_buckets_and_eager_mode(run_python):
    text = findings(
        run_python,
        """
        for n in range(2, 9):
            (torch.ones(n, 3).to("xla").exp() * 2).sum().item()
        """,
    )
    assert "growing shapes | Shapes never repeat" in text
    assert "buckets" in text
    assert "torch_pjrt.eager_mode()" in text
    told_once = [
        x for x in text.splitlines() if x.startswith("  try: pad to a few sizes (buckets)")
    ]
    assert told_once, text


def test_shapes_that_repeat_are_led_to_buckets_alone(run_python):
    text = findings(
        run_python,
        """
        for n in [2, 3, 4, 5, 6, 7] * 3:
            (torch.ones(n, 3).to("xla").exp() * 2).sum().item()
        """,
    )
    assert "growing shapes | Shapes change from step to step" in text, text
    finding = text[text.index("growing shapes |") :]
    assert "eager_mode" not in finding.splitlines()[1]


def test_the_third_recompile_of_a_line_says_what_to_do(device, caplog):
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for n in range(2, 7):
            (torch.ones(n, 73).to(device).exp() + n).cpu()
    lines = told(caplog)
    assert ["try: " in x for x in lines] == [False, False, True, True]
    assert "buckets" in lines[-1]


CHECKED = {
    "distributions": (
        lambda x: torch.distributions.Normal(x, x).log_prob(x),
        "validate_args=False",
    ),
    "distributions' support": (
        lambda x: torch.distributions.Bernoulli(probs=x / 9).log_prob(torch.ones_like(x)),
        "validate_args=False",
    ),
    "clip_grad_norm_": (lambda x: clip(x), "error_if_nonfinite=False"),
    "print": (lambda x: str(x + 1), "print it every few steps"),
    "plain": (lambda x: x.sum().item(), "keep the value on the device"),
}


def clip(grad: torch.Tensor) -> torch.Tensor:
    p = nn.Parameter(torch.ones_like(grad))
    p.grad = grad
    return nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("name", CHECKED)
def test_a_read_of_pytorchs_own_says_how_to_do_without(name, device, caplog):
    torch_pjrt.explain.clear()
    x = torch.ones(3).to(device)
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for _ in range(25):
            CHECKED[name][0](x + 1)
    assert any("has cut the graph" in t and CHECKED[name][1] in t for t in told(caplog))
    assert any(CHECKED[name][1] in r.advice for r in torch_pjrt.explain().cuts)


def test_the_finding_says_it_too(run_python):
    text = findings(
        run_python,
        """
        x = torch.ones(3).to("xla")
        for _ in range(12):
            torch.distributions.Normal(x + 1, x + 1)
        """,
    )
    assert "read in the loop |" in text, text
    assert "set_default_validate_args(False)" in text


def test_no_cuts_says_it_too(device):
    x = torch.ones(3).to(device) + 1
    with torch_pjrt.no_cuts(), pytest.raises(RuntimeError, match="validate_args=False"):
        torch.distributions.Normal(x, x)


def test_without_the_checks_there_is_no_cut(device, compiles):
    x = torch.ones(3).to(device)
    with compiles() as seen:
        torch.distributions.Normal(x + 1, x + 1, validate_args=False).log_prob(x)
    assert seen.cuts == 0


# ---- a second model -------------------------------------------------------------------------


def train(model: nn.Module, x: torch.Tensor, steps: int = 2) -> None:
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        model(x).var().backward()
        opt.step()
        opt.zero_grad()
        torch_pjrt.sync()


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten()
    )


def recurrent() -> nn.Module:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 5), nn.Linear(5, 5)

        def forward(self, x):
            h = self.a(x).tanh()
            for _ in range(12):
                h = torch.sigmoid(self.b(h).cumsum(1))
            return h

    return Net()


SECOND = {
    "another kind": convolutional,
    "more layers": lambda: nn.Sequential(
        *[nn.Sequential(nn.Linear(16, 16), nn.SiLU()) for _ in range(9)]
    ),
    "loops": recurrent,
    "another width": lambda: nn.Sequential(
        nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 6)
    ),
}


@pytest.mark.parametrize("name", SECOND)
def test_a_second_models_first_compile_is_a_new_graph(name, device, caplog):
    x = torch.ones(3, 16).to(device)
    first = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    train(first.to(device), x)
    seen = len(torch_pjrt.explain().compiles)
    with caplog.at_level(logging.INFO, "torch_pjrt"):
        train(SECOND[name]().to(device), x)
    new = torch_pjrt.explain().compiles[seen:]
    assert new[0].fresh, str(new[0])
    assert not new[0].unexpected
    assert "a new graph: it shares" in str(new[0])
    lines = [t for t in told(caplog) if "recompiled" in t]
    assert not any(re.search(r"and \d\d+ more", t) for t in lines), lines


def test_a_new_batch_size_is_no_new_graph(device):
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(6)]).to(device)
    train(model, torch.ones(3, 16).to(device))
    seen = len(torch_pjrt.explain().compiles)
    train(model, torch.ones(5, 16).to(device))
    assert [c.fresh for c in torch_pjrt.explain().compiles[seen:]][:1] == [False]
