"""Sharding: the names, until torch_pjrt's own sharding stands behind them."""

from .xla_sharding import *  # noqa: F403
