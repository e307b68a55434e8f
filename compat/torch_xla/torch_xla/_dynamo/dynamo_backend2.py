"""A backend for torch.compile."""

from typing import Any

from torch_pjrt._compile import openxla


def dynamo_backend(fx: Any, args: Any) -> Any:
    return openxla(fx, args)
