"""Names that move."""

from .._names import deprecated as _deprecated

deprecated = _deprecated
