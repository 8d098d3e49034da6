"""Odd settings files, seeded: one field of a valid file gets a value that nobody meant, or its bytes are damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import yaml

from graphmill.systems import registry
from graphmill.systems.registry import settings_model

ODD: list[Any] = [
    *(None, True, False, -1, 0, 1, 3, 7, 10**4, 2**31, 2**40, 2**63, 2**70),
    *(0.5, -0.5, 1.5, 1e-300, 1e300, float("nan"), float("inf")),
    *(
        "",
        " ",
        "auto",
        "on",
        "off",
        "none",
        "a\0b",
        "x" * 5000,
        "/dev/null",
        "1e3",
        "0x10",
        "6GiB",
        "é\u2028",
        "@",
        "a@b",
    ),
    *([], [0], [-1], [1], [1, 1], [2**40], [None], ["mrr"], ["recall", "recall"], [[]], [True], ["a\0b"]),
    *({}, {"a": 1}, {1: 2}, [{}]),
]


def setting_paths() -> dict[str, set[str]]:
    """System → every ``section.name`` that it has."""
    result = {}
    for system in registry.SYSTEMS:
        paths: set[str] = set()
        for name, field in registry.settings_model(system).model_fields.items():
            below = getattr(field.annotation, "model_fields", None)
            paths |= {f"{name}.{inner}" for inner in below} if below else {name}
        result[system] = paths
    return result


def odd_texts(values: dict[str, Any], seed: int, count: int) -> Iterator[str]:
    """``count`` YAML texts made from valid ``values``: three in four with an odd value, the others damaged as text."""
    rng = random.Random(seed)
    paths = sorted(setting_paths()[values["system"]])
    for number in range(count):
        if number % 4:
            path = rng.choice(paths)
            kind = type(_default(values["system"], path))
            like = [value for value in ODD if type(value) is kind]  # which gets further than what is of another type
            odd = rng.choice(like if like and rng.random() < 0.6 else ODD)
            yield yaml.safe_dump(_with(values, path, odd), allow_unicode=True)
        else:
            yield _damaged(yaml.safe_dump(values), rng)


def _default(system: str, path: str) -> Any:
    value: Any = settings_model(system)()
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _with(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    out = {name: dict(part) if isinstance(part, dict) else part for name, part in values.items()}
    section, _, name = path.rpartition(".")
    (out.setdefault(section, {}) if section else out)[name] = value
    return out


def _damaged(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at, kind = rng.randrange(len(lines)), rng.randrange(6)
    if kind == 0:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines[at] = rng.choice(["\t", "- ", "? ", "&a ", "*a ", "!!binary ", "%", "{", "[", "'", "  "]) + lines[at]
    elif kind == 3:
        lines[at] = (
            lines[at].rstrip("\n") + rng.choice([": 1", " *a", "0" * 5000, " # ", "}", " 2024-99-99", ":"]) + "\n"
        )
    elif kind == 4:
        return text[: rng.randrange(len(text))]
    else:
        cut = rng.randrange(len(text))
        return text[:cut] + rng.choice(["\x85", "\ufeff", "\ud7ff", ":", "\n", "\x07", "é"]) + text[cut + 1 :]
    return "".join(lines)
