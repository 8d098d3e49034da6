"""Converts results to values that strict JSON can hold."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def readable(value: Any, *, not_finite: type[str] | None = str) -> Any:
    """``value`` for JSON: arrays become lists; paths and keys become text.

    inf and nan become words, or null with ``not_finite=None``.
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else not_finite and not_finite(float(value))
    if isinstance(value, Mapping):
        return {str(key): readable(item, not_finite=not_finite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item, not_finite=not_finite) for item in value]
    if isinstance(value, Path):
        return str(value)
    return readable(value.tolist(), not_finite=not_finite)  # numpy arrays and scalars, tensors


def plain(value: Any) -> Any:
    """:func:`readable` with null for inf and nan."""
    return readable(value, not_finite=None)


def flat(values: Mapping[str, Any], mark: str = ".", prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings, with names joined by ``mark``."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        out |= flat(value, mark, f"{prefix}{name}{mark}") if isinstance(value, Mapping) else {prefix + name: value}
    return out
