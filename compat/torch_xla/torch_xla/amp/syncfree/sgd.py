from . import SGD  # noqa: F401
