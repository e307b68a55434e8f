from . import Adam  # noqa: F401
