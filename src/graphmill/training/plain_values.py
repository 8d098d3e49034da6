"""Converts plain Python values to standard JSON and back exactly, with inf, nan and tuples."""

from __future__ import annotations

import math
from typing import Any


def encode(value: Any) -> Any:
    """``value`` in standard JSON: inf and nan become ``{"$float": "inf"}``, and tuples become ``{"$tuple": [...]}``.

    Raises:
        TypeError: a value or key that :func:`decode` could not restore exactly.
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            escape = len(value) == 1 and next(iter(value)).startswith("$")
            return {("$" + key if escape else key): encode(item) for key, item in value.items()}
        raise TypeError(f"a checkpoint's state has string keys only, not {sorted(map(repr, value))[:3]}")
    raise TypeError(f"a checkpoint's state holds plain values only, not {type(value).__name__}")


def decode(value: Any) -> Any:
    """The inverse of :func:`encode`."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        key, item = next(iter(value.items()))
        if key == "$float":
            return float(item)
        if key == "$tuple":
            return tuple(decode(part) for part in item)
        if key.startswith("$$"):
            return {key[1:]: decode(item)}
    return {key: decode(item) for key, item in value.items()}
