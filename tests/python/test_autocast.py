"""Autocast on the device follows CUDA's lists: which ops run low, high, or in the widest dtype.

The lists are read from PyTorch's header, and every op in them is called in bfloat16 and float16.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import moved, tensors_in
from torch.testing._internal.autocast_test_lists import AutocastTestLists

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
LOW = [torch.bfloat16, torch.float16]


def listed(name: str) -> list[str]:
    """The overloads of a list in the header, as 'conv_transpose2d.input'."""
    block = re.search(rf"#define AT_FORALL_{name}\(_\)(.*?\n)\n", HEADER.read_text(), re.S)
    assert block, name
    found = re.findall(r"_\((\w+)(?:, (\w+))?\)", block[1])
    return [f"{op}.{overload}" if overload else op for op, overload in found]


LOWER, HIGH = listed("LOWER_PRECISION_FP"), listed("FP32")
HIGH_BY_DTYPE, WIDEST = listed("FP32_SET_OPT_DTYPE"), listed("PROMOTE")
NORM = ["norm.Scalar", "norm.ScalarOpt_dim"]  # the header's list of other signatures

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def function(name: str) -> Callable[..., Any]:
    for room in (torch, torch._C._nn, torch._C._linalg):
        if hasattr(room, name):
            return getattr(room, name)
    return getattr(torch.ops.aten, name)


def pytorchs_calls() -> dict[str, list[Call]]:
    """What PyTorch's own CUDA tests call, by op."""
    lists = AutocastTestLists("cpu")
    calls: dict[str, list[Call]] = {}
    names = ("torch_fp16", "torch_fp32", "torch_need_autocast_promote", "linalg_fp16")
    for name in (*names, "nn_fp16", "nn_fp32"):
        for op, args, *more in getattr(lists, name):
            options = next((m for m in more if isinstance(m, dict)), {})
            if not op.startswith("cudnn") and op != "einsum":
                calls.setdefault(op, []).append((function(op), args, options))
    return calls


def our_calls() -> dict[str, list[Call]]:
    """The listed ops that PyTorch's tests leave out."""
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    low, line = x.half(), torch.randn(1, 2, 6).half()
    image, cube = torch.randn(1, 2, 4, 4).half(), torch.randn(1, 2, 3, 3, 3).half()
    heads, nn = torch.randn(1, 2, 4, 8), torch._C._nn
    aten = torch.ops.aten
    calls: dict[str, list[Any]] = {
        "einsum": [(torch.einsum, ("ij,jk->ik", [x, y]))],
        "scaled_dot_product_attention": [(nn.scaled_dot_product_attention, (heads, heads, heads))],
        "_scaled_dot_product_flash_attention": [],
        "_thnn_fused_lstm_cell": [], "_thnn_fused_gru_cell": [],
        "native_layer_norm": [(torch.native_layer_norm, (low, [4], None, None, 1e-5))],
        "frobenius_norm": [(aten.frobenius_norm.dim, (low, [0, 1]))],
        "nuclear_norm": [(torch.nuclear_norm, (low,)), (torch.nuclear_norm, (low, (0, 1)))],
        "huber_loss": [(nn.huber_loss, (low, y.half()))],
        "linalg_vector_norm": [(torch.linalg.vector_norm, (low,))],
        "linalg_matrix_norm": [
            (torch.linalg.matrix_norm, (low,)), (torch.linalg.matrix_norm, (low, 1)),
        ],
        "pow": [(torch.pow, (2.0, low)), (torch.pow, (low.abs(), low)), (torch.pow, (low, 2))],
        "upsample_nearest1d": [(nn.upsample_nearest1d, (line, [12]))],
        "_upsample_nearest_exact1d": [(nn._upsample_nearest_exact1d, (line, [12]))],
        "upsample_nearest2d": [(nn.upsample_nearest2d, (image, [8, 8]))],
        "_upsample_nearest_exact2d": [(nn._upsample_nearest_exact2d, (image, [8, 8]))],
        "upsample_nearest3d": [(nn.upsample_nearest3d, (cube, [6, 6, 6]))],
        "_upsample_nearest_exact3d": [(nn._upsample_nearest_exact3d, (cube, [6, 6, 6]))],
        "upsample_linear1d": [(nn.upsample_linear1d, (line, [12], False))],
        "upsample_bilinear2d": [(nn.upsample_bilinear2d, (image, [8, 8], False))],
        "_upsample_bilinear2d_aa": [(nn._upsample_bilinear2d_aa, (image, [8, 8], False))],
        "upsample_trilinear3d": [(nn.upsample_trilinear3d, (cube, [6, 6, 6], False))],
        "upsample_bicubic2d": [(nn.upsample_bicubic2d, (image, [8, 8], False))],
        "_upsample_bicubic2d_aa": [(nn._upsample_bicubic2d_aa, (image, [8, 8], False))],
    }  # fmt: skip
    return {op: [(*c, {}) for c in found] for op, found in calls.items()}


CALLS = pytorchs_calls()
for _op, _calls in our_calls().items():
    CALLS.setdefault(_op, []).extend(_calls)
# These have kernels for CUDA alone; that they are registered is tested.
FOR_CUDA = {
    "_scaled_dot_product_flash_attention",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
}


def cast(tree: Any, dtype: torch.dtype) -> Any:
    """Half tensors in the dtype under test."""
    if isinstance(tree, torch.Tensor):
        return tree.to(dtype) if tree.dtype == torch.float16 else tree
    return type(tree)(cast(x, dtype) for x in tree) if isinstance(tree, tuple | list) else tree


def dtypes_of(call: Call, dtype: torch.dtype) -> set[torch.dtype]:
    """The dtypes that an op's results have under autocast."""
    op, args, options = call
    with torch.autocast("xla", dtype=dtype):
        out = op(*moved(cast(args, dtype)), **options)
    return {t.dtype for t in tensors_in(out) if t.is_floating_point()}


def calls_of(names: list[str]) -> list[Any]:
    ops = dict.fromkeys(n.split(".")[0] for n in names)
    return [
        pytest.param(call, id=f"{op}-{i}") for op in ops for i, call in enumerate(CALLS.get(op, []))
    ]


low_dtypes = pytest.mark.parametrize("dtype", LOW, ids=["bf16", "f16"])


@low_dtypes
@pytest.mark.parametrize("call", calls_of(LOWER))
def test_runs_low(call, dtype):
    assert dtypes_of(call, dtype) == {dtype}


@low_dtypes
@pytest.mark.parametrize("call", calls_of([*HIGH, *HIGH_BY_DTYPE, *NORM]))
def test_runs_in_float32(call, dtype):
    assert dtypes_of(call, dtype) == {torch.float32}


@low_dtypes
@pytest.mark.parametrize("call", calls_of(WIDEST))
def test_runs_in_the_widest_dtype(call, dtype):
    assert dtypes_of(call, dtype) == {torch.float32}


@low_dtypes
@pytest.mark.parametrize("op", ["prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum"])
def test_a_dtype_asked_for_wins(op, dtype):
    x = torch.ones(3, 3, device="xla", dtype=dtype)
    args = () if op in ("prod", "sum") else (0,)
    with torch.autocast("xla", dtype=dtype):
        assert getattr(torch, op)(x, *args, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("name", [*LOWER, *HIGH, *HIGH_BY_DTYPE, *WIDEST, *NORM])
def test_every_listed_overload_is_registered(name):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastXLA")


def test_every_listed_op_is_called():
    ops = {n.split(".")[0] for n in [*LOWER, *HIGH, *HIGH_BY_DTYPE, *WIDEST, *NORM]}
    assert len(ops) > 90
    assert {op for op in ops if not CALLS.get(op)} == FOR_CUDA


@low_dtypes
def test_binary_cross_entropy_is_refused(dtype):
    x = torch.rand(3, device="xla")
    with (
        torch.autocast("xla", dtype=dtype),
        pytest.raises(RuntimeError, match="unsafe to autocast"),
    ):
        torch.nn.functional.binary_cross_entropy(x, x)


@low_dtypes
@pytest.mark.parametrize("op", ["add", "mul", "div", "sub", "maximum"])
def test_unlisted_ops_promote_as_they_always_do(op, dtype):
    x = torch.ones(3, device="xla")
    with torch.autocast("xla", dtype=dtype):
        assert getattr(torch, op)(x, x.to(dtype)).dtype == torch.float32
        assert getattr(torch, op)(x.to(dtype), x.to(dtype)).dtype == dtype
        assert torch.cat([x, x.to(dtype)]).dtype == torch.float32


def test_float64_and_integers_are_left_alone():
    x = torch.ones(3, 3, dtype=torch.float64, device="xla")
    with torch.autocast("xla"):
        assert (x @ x).dtype == torch.float64
        assert x.exp().dtype == torch.float64
        assert (x.long() * 2).dtype == torch.int64


def test_a_weight_is_cast_once_and_gets_float32_gradients(device, compiles):
    w = torch.ones(4, 4, device=device, requires_grad=True)
    x = torch.ones(4, 4, device=device)
    with torch.autocast("xla"):
        y = (x @ w) @ w
    y.float().sum().backward()
    assert w.grad.dtype == torch.float32
    assert w.grad.cpu().unique().tolist() == [32.0]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_and_their_states_have_the_low_dtype(kind, dtype):
    """As cuDNN's kernels give them on CUDA; the CPU's LSTM does the same in bfloat16."""
    torch.manual_seed(0)
    module = kind(3, 4, num_layers=2, bidirectional=True)
    x = torch.randn(5, 2, 3)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 3])
    eager, _ = module(x)
    module.to("xla")
    for given in (x.to("xla"), packed.to("xla")):
        with torch.autocast("xla", dtype):
            out, state = module(given)
        states = state if isinstance(state, tuple) else (state,)
        assert {t.dtype for t in states} == {dtype}
        assert (out if given is not packed and torch.is_tensor(out) else out.data).dtype == dtype
    with torch.autocast("xla", dtype):
        out, _ = module(x.to("xla"))
        out.float().square().sum().backward()
    torch.testing.assert_close(out.float().cpu(), eager, rtol=0.05, atol=0.05)
    assert {p.grad.dtype for p in module.parameters()} == {torch.float32}
