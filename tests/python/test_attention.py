"""Attention of half types: products of halves that add up in float32, as exact as eager's."""

import re

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt

HALVES = (torch.bfloat16, torch.float16)


def heads(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attend(device: str, dtype: torch.dtype, **how) -> list[torch.Tensor]:
    """The result and the three gradients."""
    groups = 4 if how.get("enable_gqa") else 1
    q = heads(2, 4, 6, 8, seed=1, dtype=dtype).to(device).requires_grad_()
    k, v = (
        heads(2, 4 // groups, 10, 8, seed=s, dtype=dtype).to(device).requires_grad_()
        for s in (2, 3)
    )
    mask = how.pop("attn_mask", None)
    if mask is not None:
        mask = mask.to(device)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **how)
    weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(dtype).to(device)
    (out * weights).sum().backward()
    return [t.detach().cpu().double() for t in (out, q.grad, k.grad, v.grad)]


CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "negative scale": {"scale": -0.3},
    "float mask": {"attn_mask": heads(6, 10, seed=4, dtype=torch.float32)},
    "bool mask": {"attn_mask": torch.arange(60).reshape(6, 10) % 3 != 0},
    "a row that sees nothing": {"attn_mask": torch.arange(60).reshape(6, 10) > 9},
    "groups": {"enable_gqa": True},
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_it_is_as_exact_as_eager(case, dtype):
    how = CASES[case]
    if (mask := how.get("attn_mask")) is not None and mask.is_floating_point():
        how = how | {"attn_mask": mask.to(dtype)}
    truth = attend("cpu", torch.float64, **(
        how | ({"attn_mask": how["attn_mask"].double()} if how.get("attn_mask") is not None
               and how["attn_mask"].is_floating_point() else {})))  # fmt: skip
    eager, ours = attend("cpu", dtype, **how), attend("xla", dtype, **how)
    step = torch.finfo(dtype).eps
    for o, e, t in zip(ours, eager, truth, strict=True):
        size = t.abs().max().item()
        # The inputs' own rounding is in both; a rounding of the result and one of the
        # probabilities are allowed beside it.
        assert (o - t).abs().max() <= (e - t).abs().max() + 2 * step * size


def products(hlo: str) -> list[str]:
    """The operands' element types of each product."""
    found = re.findall(r'"stablehlo.dot_general"\(.*: \((.*)\) -> tensor<[^>]*x(\w+)>', hlo)
    return [" ".join([*re.findall(r"x([a-z]\w*)>", taken), given]) for taken, given in found]


def step(dtype: torch.dtype) -> torch_pjrt.graph.Graph:
    q, k, v = (heads(2, 4, 6, 8, seed=s, dtype=dtype).to("xla").requires_grad_() for s in (1, 2, 3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    return torch_pjrt.graph.of([q.grad, k.grad, v.grad])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_all_six_products_are_of_halves_and_add_up_in_float32(dtype):
    name = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    hlo = step(dtype).hlo
    found = products(hlo)
    assert found == [f"{name} {name} f32"] * len(found)
    assert len(found) == 5  # the sixth, the result itself, is not asked for
    assert "HIGHEST" not in hlo


def test_products_of_float32_stay_what_they_are():
    found = products(step(torch.float32).hlo)
    assert set(found) == {"f32 f32 f32"}


def test_halves_that_a_program_lifts_itself_multiply_as_they_are():
    x, y = (heads(3, 4, 5, seed=s, dtype=torch.bfloat16).to("xla") for s in (1, 2))
    lifted = x.float() @ y.float().transpose(1, 2)
    assert products(torch_pjrt.graph.of([lifted]).hlo) == ["bf16 bf16 f32"]
    mixed = (x.float() * 1.1) @ y.float().transpose(1, 2)
    assert products(torch_pjrt.graph.of([mixed]).hlo) == ["f32 f32 f32"]
    want = x.cpu().float() @ y.cpu().float().transpose(1, 2)
    torch.testing.assert_close(lifted.cpu(), want)


def test_dropout_keeps_a_share_of_the_probabilities():
    q, k, v = (heads(2, 4, 64, 8, seed=s, dtype=torch.bfloat16).to("xla") for s in (1, 2, 3))
    torch.manual_seed(0)
    one = F.scaled_dot_product_attention(q, k, torch.ones_like(v), dropout_p=0.5).float().cpu()
    assert 0.9 < one.mean() < 1.1
    assert one.std() > 0.05
    torch.manual_seed(0)
    again = F.scaled_dot_product_attention(q, k, torch.ones_like(v), dropout_p=0.5).float().cpu()
    assert torch.equal(one, again)
