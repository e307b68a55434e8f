"""What tests of exported programs share."""

from collections.abc import Callable
from typing import Any

import torch

from .._names import later

_TF = "torch_xla.stablehlo: programs are run by this package"
compare_exported_program_and_saved_model_result = later(
    "utils.stablehlo_test_utils.compare_exported_program_and_saved_model_result", _TF
)
load_save_model_and_inference = later(
    "utils.stablehlo_test_utils.load_save_model_and_inference", _TF
)


def has_tf_package() -> bool:
    """Whether TensorFlow is there."""
    from importlib.util import find_spec

    return find_spec("tensorflow") is not None


def wrap_func_as_nn_module(f: Callable[..., Any]) -> torch.nn.Module:
    """A module whose forward it is."""

    class Wrapped(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return f(*args)

    return Wrapped().eval()
