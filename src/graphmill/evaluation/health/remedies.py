"""Remedies for a figure, in terms of the settings of the system that made the embedding."""

import re
from collections.abc import Collection, Mapping
from typing import Any

_NOT_BY_SOFTMAX = {"contrastive_weight"}
_SETTING = re.compile(r"[a-z]+(?:_[a-z0-9]+)+|regularisation")


def setting_names(values: Mapping[str, Any]) -> frozenset[str]:
    """The names of a run's settings without their sections: {"model": {"num_layers": 2}} gives num_layers.

    With ``loss: softmax``, settings that it does not read are left out.
    """
    names: set[str] = set()
    for name, value in values.items():
        names |= setting_names(value) if isinstance(value, Mapping) else {name}
    unread = _NOT_BY_SOFTMAX if values.get("loss") == "softmax" and "contrastive_weight" in values else set()
    return frozenset(names - unread)


def remedy_of(*ways: str, settings: Collection[str] | None = None) -> str:
    """One sentence of the options that apply: "Raise a_setting, lower b_setting, or train longer."

    An option that names a setting (words joined by _, or regularisation) applies if ``settings``, the names of the
    system's settings, has it. With None (an unknown system), all apply. An option without a setting always applies.
    """
    usable = [way for way in ways if settings is None or all(name in settings for name in _SETTING.findall(way))]
    *others, last = usable
    separator = ", or " if len(others) > 1 else " or "
    text = separator.join([", ".join(others), last]) if others else last
    return text[0].upper() + text[1:] + "."
