"""What to do about a figure, in the words of the system that made the embedding."""

import re
from collections.abc import Collection, Mapping
from typing import Any

_NOT_BY_SOFTMAX = {"contrastive_weight", "negatives_per_positive"}
_SETTING = re.compile(r"[a-z]+(?:_[a-z0-9]+)+|regularisation")


def setting_names(values: Mapping[str, Any]) -> frozenset[str]:
    """The names in a run's settings, sections opened: {"model": {"num_layers": 2}} gives num_layers.

    Those that a softmax does not read are left out beside ``loss: softmax``.
    """
    names: set[str] = set()
    for name, value in values.items():
        names |= setting_names(value) if isinstance(value, Mapping) else {name}
    return frozenset(names - _NOT_BY_SOFTMAX if values.get("loss") == "softmax" else names)


def remedy_of(*ways: str, settings: Collection[str] | None = None) -> str:
    """One sentence of the ways that apply: "Raise a_setting, lower b_setting, or train longer."

    A way that names a setting (words joined by _, or regularisation) applies where ``settings``, the names that the
    system has, holds it; None, an embedding of an unknown system, takes all. A way without one always applies.
    """
    usable = [way for way in ways if settings is None or all(name in settings for name in _SETTING.findall(way))]
    *others, last = usable
    separator = ", or " if len(others) > 1 else " or "
    text = separator.join([", ".join(others), last]) if others else last
    return text[0].upper() + text[1:] + "."
