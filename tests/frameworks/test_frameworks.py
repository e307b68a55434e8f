"""Frameworks run unchanged on the device: results are the CPU's, programs and cuts are counted."""

import pytest
import torch

# name: the most programs that it may compile, and whether values are bfloat16's
PROGRAMS = {
    "trainer": (60, False),
    "trainer_bf16": (60, True),
    "pipelines": (120, False),
    "peft_lora": (30, False),
    "diffusers_pipelines": (60, False),
    "torchmetrics_values": (30, False),
    "lightning_fit": (30, False),
    "accelerate_loop": (30, False),
    "accelerate_launch": (30, False),
    "reference_loop": (30, False),
}


SHORT = ("peft_lora", "torchmetrics_values", "lightning_fit", "accelerate_loop", "reference_loop")


@pytest.mark.parametrize(
    "name",
    [n if n in SHORT else pytest.param(n, marks=pytest.mark.nightly) for n in PROGRAMS],
)
def test_a_framework_gives_what_it_gives_on_the_cpu(end_to_end, name):
    found = end_to_end(name)
    most, bf16 = PROGRAMS[name]
    bounds = {"rtol": 1.6e-2, "atol": 1e-2} if bf16 else {"rtol": 1e-4, "atol": 1e-5}
    assert found["xla"].keys() == found["cpu"].keys()
    for key, value in found["xla"].items():
        want = found["cpu"][key]
        if isinstance(value, str) or (isinstance(value, list) and isinstance(value[0], str)):
            assert value == want, key
        else:
            got, right = (torch.tensor(v, dtype=torch.float64) for v in (value, want))
            torch.testing.assert_close(got, right, **bounds, msg=lambda m, k=key: f"{k}: {m}")
    assert found["programs"] <= most, found
