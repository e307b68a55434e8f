"""The version that frameworks compare: that of the PyTorch which torch_pjrt is built for."""

__version__ = "2.13.0"
__torch_gitrev__ = "torch_pjrt"
__xla_gitrev__ = "torch_pjrt"
