"""The door of torch.compile, where torch_xla keeps it."""

from .._dynamo.dynamo_bridge import *  # noqa: F403
