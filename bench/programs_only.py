"""Imported before torch_pjrt: every graph is a program from its first sync on (docs/tiers.md)."""

import os

os.environ.setdefault("TORCH_PJRT_TIERS", "off")
