"""Hugging Face `generate` on device xla: eager's tokens, and few programs of the model."""

from functools import cache

import pytest
import torch

import torch_pjrt

transformers = pytest.importorskip("transformers")  # a test requirement

BIG = 60  # nodes, leaves and numbers among them: programs of more are the model's
PROMPT = torch.tensor([[5, 9, 17, 23, 11, 42, 3, 8]])


@cache
def model() -> torch.nn.Module:
    """A Llama of one small block with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).eval()


STATIC = {"cache_implementation": "static", "disable_compile": True}


def tokens(device: str, length: int, **options: object) -> torch.Tensor:
    """What `generate` gives for PROMPT, as many new tokens as asked for; s64 on the CPU."""
    options = {"max_new_tokens": length, "do_sample": False, **options}
    m = model().to(device)
    return m.generate(PROMPT.to(device), **options).cpu()


def big_compiles() -> set[str]:
    """Keys of the model's programs compiled so far; explain() forgets the oldest in time."""
    return {c.key for c in torch_pjrt.explain().compiles if c.nodes > BIG}


def test_static_cache_takes_few_programs_whatever_the_length() -> None:
    """Greedy, 64 tokens: at most 4 programs; shorter runs compile no other."""
    expected = {n: tokens("cpu", n, **STATIC) for n in (64, 40)}
    before = big_compiles()
    assert torch.equal(tokens("xla", 64, **STATIC), expected[64])
    assert len(big_compiles() - before) <= 4
    before = big_compiles()
    assert torch.equal(tokens("xla", 40, **STATIC), expected[40])
    assert big_compiles() <= before


def test_sampling_with_a_static_cache_takes_few_programs_and_follows_the_seed() -> None:
    """The same seed gives the same tokens; at most 4 programs."""
    before = big_compiles()
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append(tokens("xla", 12, do_sample=True, top_k=8, temperature=0.7, **STATIC))
    assert torch.equal(runs[0], runs[1])
    assert runs[0].shape == (1, 20)
    assert len(big_compiles() - before) <= 4


def test_beam_search_gives_eagers_tokens() -> None:
    """Three beams, dynamic cache."""
    expected = tokens("cpu", 3, num_beams=3)
    assert torch.equal(tokens("xla", 3, num_beams=3), expected)


def test_dynamic_cache_gives_eagers_tokens() -> None:
    """The model's own shapes grow."""
    expected = tokens("cpu", 3)
    assert torch.equal(tokens("xla", 3), expected)
