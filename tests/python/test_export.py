"""Exported programs: plain StableHLO that JAX runs with equal values, saved, loaded, refused."""

import json
import re
import warnings

import jax_client
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_pjrt
from torch_pjrt import export, metrics


class Net(nn.Module):
    """Convolution, norm, attention and the functions that have no StableHLO op of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 5)
        self.register_buffer("shift", torch.arange(5.0))
        self.unused = nn.Parameter(torch.ones(7))

    def forward(self, x, scale=1.5):
        h = F.gelu(self.norm(self.conv(x))).flatten(2)
        h = self.attention(h, h, h, need_weights=False)[0]
        return {"y": F.softmax(self.out(h), -1) * scale + self.shift, "n": 3, "none": None}


def net() -> Net:
    torch.manual_seed(0)
    m = Net().eval()
    m.norm.running_var.uniform_(0.5, 2)
    return m


X = torch.linspace(-1, 1, 32).view(2, 1, 4, 4)


def in_jax(program, *inputs, form="text"):
    given = [t.detach().cpu() for t in inputs] + list(program.weights.values())
    return jax_client.run(getattr(program, form), given)


# ---- the text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "bytes"])
def test_jax_computes_what_eager_does(form):
    m = net()
    p = export.stablehlo(m, (X,))
    assert isinstance(p.bytes, bytes)
    (got,) = in_jax(p, X, form=form)
    torch.testing.assert_close(got, m(X)["y"].detach())


def test_the_text_is_plain_stablehlo_without_calls():
    text = export.stablehlo(net(), (X,)).text
    assert set(re.findall(r'= "(\w+)\.', text)) == {"stablehlo"}
    assert "custom_call" not in text
    assert "chlo." in export.stablehlo(net(), (X,), portable=False).text


def test_inputs_come_in_the_users_order_and_then_the_weights():
    def f(a, b, *, c, unused):
        return c["t"] - b * a

    t = [torch.full((n,), float(n)) for n in (1, 1, 1, 4)]
    p = export.stablehlo(f, (t[0], t[1]), {"unused": t[3], "c": {"t": t[2]}})
    assert [a.name for a in p.signature.arguments] == ["a", "b", "unused", "c['t']"]
    m = net()
    p = export.stablehlo(m, (X,))
    names = [a.name for a in p.signature.arguments]
    assert names[0] == "x"
    assert names[1:] == list(p.weights)
    assert set(names[1:]) <= set(m.state_dict()) - {"unused"}


def test_numbers_are_constants():
    p = export.stablehlo(lambda x: x * 2.5 + 7, (torch.ones(3),))
    assert "2.5" in p.text
    assert len(p.signature.arguments) == 1
    assert in_jax(p, torch.ones(3))[0].tolist() == [9.5] * 3


def test_tensors_that_a_function_holds_become_constants():
    held = torch.arange(3.0).to("xla") * 2
    p = export.stablehlo(lambda x: x + held, (torch.ones(3),))
    assert [a.kind for a in p.signature.arguments] == ["input", "constant"]
    assert in_jax(p, torch.ones(3))[0].tolist() == [1, 3, 5]


def test_exporting_runs_nothing_and_leaves_the_model():
    m = net().to("xla")
    torch_pjrt.sync()
    before, state = metrics.compiles(), {k: v.clone() for k, v in m.state_dict().items()}
    export.stablehlo(m, (X.to("xla"),))
    assert metrics.compiles() == before
    for k, v in m.state_dict().items():
        assert v.device.type == "xla"
        assert torch.equal(v.cpu(), state[k].cpu())


POINTS = torch.tensor(
    [
        *(-3e4, -50, -9.5, -4, -2.5, -1.5, -1, -0.999, -0.5, -1e-3, -0.0, 0, 1e-6, 0.1, 0.4999),
        *(0.7, 0.99, 1, 1.3, 2, 2.5, 3.7, 8, 10.5, 30, 90, 1e4),
        *(float("inf"), float("-inf"), float("nan")),
    ],
    dtype=torch.float64,
)
FUNCTIONS = {
    "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin, "asinh": torch.asinh,
    "atan": torch.atan, "atanh": torch.atanh, "cosh": torch.cosh, "digamma": torch.digamma,
    "erf": torch.erf, "erf_inv": torch.erfinv, "erfc": torch.erfc, "lgamma": torch.lgamma,
    "sinh": torch.sinh, "tan": torch.tan,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_functions_without_an_op_have_eagers_values(dtype):
    """One program for all of them, so that it compiles once."""
    x = POINTS.to(dtype)
    p = export.stablehlo(lambda x: [f(x) for f in FUNCTIONS.values()], (x,))
    assert "chlo." not in p.text
    for name, got, f in zip(FUNCTIONS, in_jax(p, x), FUNCTIONS.values(), strict=True):
        torch.testing.assert_close(got, f(x), equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeta_has_eagers_values(dtype):
    x = torch.tensor([1.1, 1.5, 2, 3, 7.5, 20, 60, 1, 0.5, 4, 4, 2], dtype=dtype)
    q = torch.tensor([1, 0.3, 2.5, 10, 1, 0.7, 3, 2, 2, 1e4, -1.5, 1e-3], dtype=dtype)
    p = export.stablehlo(torch.special.zeta, (x, q))
    assert "chlo." not in p.text
    torch.testing.assert_close(in_jax(p, x, q)[0], torch.special.zeta(x, q), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_functions_have_eagers_values(dtype):
    re, im = torch.meshgrid(torch.tensor([-2.0, -0.5, 0.3, 1.7]), torch.tensor([-1.2, 0.4, 3.0]))
    z = torch.complex(re, im).flatten().to(dtype)
    fs = [torch.acos, torch.acosh, torch.asin, torch.asinh, torch.atan, torch.atanh]
    fs += [torch.tan, torch.sinh, torch.cosh, lambda z: z.conj().resolve_conj()]
    p = export.stablehlo(lambda z: [f(z) for f in fs], (z,))
    assert "chlo." not in p.text
    for got, f in zip(in_jax(p, z), fs, strict=True):
        torch.testing.assert_close(got, f(z))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_next_float_is_eagers(dtype):
    x = torch.tensor([0.0, -0.0, 1, -1, 1, 3, float("inf"), float("nan"), 0.0], dtype=dtype)
    y = torch.tensor([1, -1, 2, 0, 0, 3, 0, 1, 0.0], dtype=dtype)
    p = export.stablehlo(torch.nextafter, (x, y))
    assert "chlo." not in p.text
    torch.testing.assert_close(
        in_jax(p, x, y)[0], torch.nextafter(x, y), rtol=0, atol=0, equal_nan=True
    )


def test_top_k_without_an_op_is_eagers():
    x = torch.tensor([[3.0, 1, 2, float("nan"), 5], [0, 9, 4, 8, 7]])
    p = export.stablehlo(lambda x: (*x.topk(2), *x.topk(2, largest=False)), (x,))
    assert "chlo." not in p.text
    for got, want in zip(in_jax(p, x), (*x.topk(2), *x.topk(2, largest=False)), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


# ---- saved and loaded ---------------------------------------------------------------------------


def test_a_saved_program_runs_without_the_model(tmp_path):
    m = net()
    export.stablehlo(m, (X,)).save(tmp_path)
    f = export.load(tmp_path)
    out = f(X)
    torch.testing.assert_close(out["y"].cpu(), m(X)["y"].detach())
    assert out["y"].device.type == "xla"
    assert (out["n"], out["none"]) == (3, None)
    before = metrics.compiles()
    f(X.to("xla") * 2)
    assert metrics.compiles() <= before + 1  # the product, not the program


def test_the_folder_says_what_is_in_it(tmp_path):
    p = export.stablehlo(net(), (X,))
    p.save(tmp_path)
    meta = json.loads((tmp_path / "functions/forward.meta").read_text())
    assert meta["stablehlo_version"]
    assert [x["name"] for x in meta["input_locations"]] == ["x", *p.weights]
    assert meta["input_signature"][0] == {
        "shape": [2, 1, 4, 4], "dtype": "float32", "dynamic_dims": [],
    }  # fmt: skip
    assert sorted(f.name for f in (tmp_path / "data").iterdir()) == sorted(p.weights)
    assert (tmp_path / "functions/forward.bytecode").read_bytes() == p.bytes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_weights_keep_their_dtype(dtype, tmp_path):
    m = nn.Linear(3, 2).to(dtype)
    x = torch.ones(1, 3, dtype=dtype)
    export.stablehlo(m, (x,)).save(tmp_path)
    torch.testing.assert_close(export.load(tmp_path)(x).cpu(), m(x).detach())


def test_new_values_of_weights_and_inputs_are_results(tmp_path):
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count.add_(x)
            x.mul_(10)
            return self.count * 2

    p = export.stablehlo(Counter(), (torch.ones(2),))
    assert [r.name for r in p.signature.results] == ["", "input:0", "count"]
    p.save(tmp_path)
    f, x = export.load(tmp_path), torch.ones(2)
    assert f(x).tolist() == [2, 2]
    assert x.tolist() == [10, 10]
    assert f(x).tolist() == [22, 22]
    assert f.weights["count"].tolist() == [11, 11]


def test_other_arguments_than_exported_are_told(tmp_path):
    export.stablehlo(net(), (X, 2.0)).save(tmp_path)
    f = export.load(tmp_path)
    with pytest.raises(TypeError, match=r"argument x is float32\[2, 1, 4, 4\], found float32\[1, "):
        f(X[:1], 2.0)
    with pytest.raises(TypeError, match=r"argument x is float32.*found float64"):
        f(X.double(), 2.0)
    with pytest.raises(TypeError, match=r"exported as 2\.0, found 3\.0"):
        f(X, 3.0)
    with pytest.raises(TypeError, match="takes arguments of the form"):
        f(X)


def test_a_folder_without_a_program_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no exported program in"):
        export.load(tmp_path)
    export.stablehlo(nn.Linear(1, 1), (torch.ones(1, 1),)).save(tmp_path)
    meta = tmp_path / "functions/forward.meta"
    meta.write_text(meta.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(ValueError, match="format 99"):
        export.load(tmp_path)


# ---- torch.export's programs --------------------------------------------------------------------


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("where", ["cpu", "xla"])
def test_an_exported_program_of_torch_runs_in_jax(decomposed, where):
    m = net()
    want = m(X)["y"].detach()
    ep = torch.export.export(m.to(where), (X.to(where),))
    p = export.stablehlo(ep.run_decompositions({}) if decomposed else ep)
    assert p.signature.arguments[0].name == "x"
    torch.testing.assert_close(in_jax(p, X)[0], want)


@pytest.mark.parametrize("decomposed", [False, True])
def test_an_exported_program_that_writes_a_buffer(decomposed, tmp_path):
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train()
    x = torch.arange(12.0).view(4, 3)
    ep = torch.export.export(m, (x,))
    export.stablehlo(ep.run_decompositions({}) if decomposed else ep).save(tmp_path)
    f = export.load(tmp_path)
    torch.testing.assert_close(f(x).cpu(), m(x).detach())
    torch.testing.assert_close(f.weights["1.running_mean"].cpu(), m[1].running_mean)
    assert f.weights["1.num_batches_tracked"].item() == 1


def test_an_exported_program_keeps_its_device_literals():
    class M(nn.Module):
        def forward(self, x):
            return x + torch.ones(3, device="xla") + torch.arange(3, device=x.device)

    for where in ("xla:0", "xla"):
        ep = torch.export.export(M(), (torch.ones(3, device=where),))
        assert in_jax(export.stablehlo(ep), torch.ones(3))[0].tolist() == [2, 3, 4]


def test_torch_export_saves_and_loads_weights_of_the_device(tmp_path):
    m = nn.Linear(3, 2).to("xla")
    x = torch.ones(1, 3, device="xla")
    torch.export.save(torch.export.export(m, (x,)), tmp_path / "m.pt2")
    again = torch.export.load(tmp_path / "m.pt2").module()
    assert next(again.parameters()).device.type == "xla"
    torch.testing.assert_close(again(x).cpu(), m(x).cpu())


# ---- refused ------------------------------------------------------------------------------------


class WithHostOp(nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x @ x.mT)[0]


@pytest.mark.parametrize("exported", [False, True])
def test_a_host_op_is_refused_with_its_line(exported):
    m, x = WithHostOp(), (torch.eye(3),)
    model = torch.export.export(m, x) if exported else m
    with pytest.raises(NotImplementedError, match="aten::_linalg_eigh runs on the host") as e:
        export.stablehlo(model, x)
    line = next(n for n, s in enumerate(open(__file__), 1) if "eigh(x @" in s)  # noqa: SIM115
    assert f"test_export.py:{line}" in str(e.value)
    assert "give its result as an argument" in str(e.value)


def test_random_numbers_are_refused():
    with pytest.raises(RuntimeError, match=r"draws random numbers.*\n.*test_export\.py:"):
        export.stablehlo(lambda x: F.dropout(x, 0.5), (torch.ones(3),))


def test_a_read_is_refused_with_its_line():
    def f(x):
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(RuntimeError, match="cannot be one program") as e:
        export.stablehlo(f, (torch.ones(3),))
    assert "test_export.py" in str(e.value)


def test_dynamic_shapes_are_refused():
    ep = torch.export.export(
        nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    with pytest.raises(NotImplementedError, match=r"dynamic shape.*static shapes"):
        export.stablehlo(ep)


def test_a_result_that_cannot_be_written_is_told_before_anything_is(tmp_path):
    p = export.stablehlo(lambda x: (x, torch.float32), (torch.ones(3),))
    with pytest.raises(TypeError, match="tensors, numbers, strings"):
        p.save(tmp_path / "p")
    assert not list((tmp_path / "p").rglob("*.mlir")) if (tmp_path / "p").exists() else True


def test_arguments_that_are_no_tuple_are_told():
    with pytest.raises(TypeError, match="args is a tuple"):
        export.stablehlo(nn.Linear(1, 1), torch.ones(1))


def test_without_jaxlib_the_bytes_are_the_text(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jaxlib.mlir.dialects", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = export.stablehlo(lambda x: x + 1, (torch.ones(3),))
        assert p.bytes == p.text.encode()


def test_a_graph_of_computed_values_is_a_program_too(device):
    x, y = torch.arange(3.0).to(device), torch.ones(2, 2).to(device) * 3
    torch_pjrt.sync()
    text = torch_pjrt.graph.of([y, x]).hlo
    got = jax_client.run(text, [y.cpu(), x.cpu()])
    assert [t.tolist() for t in got] == [[[3, 3], [3, 3]], [0, 1, 2]]
