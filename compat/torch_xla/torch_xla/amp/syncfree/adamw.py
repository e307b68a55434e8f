from . import AdamW  # noqa: F401
