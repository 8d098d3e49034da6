"""The pages of settings from the settings models: ``python .ci/settings_page.py``, which ``make pages`` runs.

``docs/reference/settings.md`` has what all systems share, ``docs/reference/settings/`` a page a system with its own
settings, and a page with those of the formats. Systems with the same module and the same tables share a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from graphmill.ingest.formats import FORMATS
from graphmill.settings import Settings, is_identity
from graphmill.systems import registry
from graphmill.systems.base import ClosedFormTraining
from graphmill.training.settings import (
    AccelerationSettings,
    EvaluationSettings,
    ExportSettings,
    TrackerSettings,
    TrainingSettings,
)

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
SHARED: dict[str, type[Settings]] = {
    "training": TrainingSettings,
    "acceleration": AccelerationSettings,
    "evaluation": EvaluationSettings,
    "export": ExportSettings,
    "tracker": TrackerSettings,
}
_HEAD = """# Settings

Written by `make pages`; do not edit. A settings file (`graphmill train settings.yaml`) and Dagster's Launchpad have the
same fields. Only `data` is required: without `system` it is `blend`. A `preset` fills fields that are not written.

Another value starts another run. Only settings marked ° may change when a run is continued.

A line has the setting, its default, the other values in brackets, and its meaning. A text without a default is empty.
The settings of a [source](settings/sources.md) of data have a page of their own.

## By system

Each page has the settings and defaults of its system that this page lacks.

"""
_SOURCES = """# Settings of sources

Written by `make pages`; do not edit. These are the keys of a source in a dataset's `defs.yaml`, in addition to `name`,
`format` and `path` ([files and formats](../ingestion.md)). In Python they are the fields of the reader's settings.
Another value gives other data; a setting marked ° does not. A line is read as on the page of [settings](../settings.md).
"""
MANY = 3  # A setting of so many systems' modules, word for word the same, stands on the page of all.


def written() -> dict[Path, str]:
    """All pages: path → text."""
    pages, rows = {}, dict[str, str]()
    for names, tables in _groups():
        stem = names[0] if len(names) == 1 else registry.entry(names[0]).module.rpartition(".")[2]
        head = f"# Settings of {', '.join(f'`{name}`' for name in names)}\n\nWritten by `make pages`; do not edit. "
        head += "All other settings are [shared](../settings.md).\n\n"
        pages[REFERENCE / "settings" / f"{stem}.md"] = head + _about(names) + tables
        rows |= {name: f"- [`{name}`](settings/{stem}.md): {registry.entry(name).about}" for name in names}
    listed = "\n".join(rows[name] for name in registry.SYSTEMS)
    shared = [f"## `{name}`\n\n{model.__doc__}\n\n{_list(model, model.model_fields)}" for name, model in SHARED.items()]
    several = [f"{row} *{', '.join(names)}*." for (_, row), names in _several().items()]
    shared.append(
        "\n".join(["## Of several systems\n", "The names at the end are those of the systems.\n", *several, ""])
    )
    pages[REFERENCE / "settings.md"] = "\n".join([_HEAD + listed + "\n", *shared])
    pages[REFERENCE / "settings" / "sources.md"] = _sources()
    return pages


def _groups() -> Iterable[tuple[list[str], str]]:
    """The systems of each page, and its tables."""
    groups = dict[tuple[str, str], list[str]]()
    for name in registry.SYSTEMS:
        groups.setdefault((registry.entry(name).module, _tables(name)), []).append(name)
    return ((names, tables) for (_, tables), names in groups.items())


def _about(systems: list[str]) -> str:
    """What the systems of a page are, then what applies to several of them once."""
    parts, lines = [], dict[str, list[str]]()
    for system in systems:
        parts.append(f"- **`{system}`**: {registry.entry(system).about}.")
        model = registry.settings_model(system)
        optimizer = getattr(model.model_fields["training"].annotation, "OPTIMIZER")  # noqa: B009
        presets = ", ".join(f"`{name}`" for name in ("auto", *registry.presets(system)))
        closed = issubclass(model.model_fields["training"].annotation, ClosedFormTraining)  # type: ignore[arg-type]
        text = "One step computes the whole model." if closed else f"Optimizer: {optimizer}."
        text += f" Presets: {presets}."
        if model.shards_rows:
            text += " `acceleration.sharding: rows` can divide its tables over several processes."
        if defaults := [f"`{section}.{name}: {_written(value)}`" for section, name, value in _other_defaults(model)]:
            text += f"\n\nDefaults that differ: {', '.join(defaults)}."
        lines.setdefault(text, []).append(f"`{system}`")
    several = [(f"{', '.join(names)}. " if len(lines) > 1 else "") + text for text, names in lines.items()]
    return "\n\n".join(["\n".join(parts), *several]) + "\n\n"


def _other_defaults(model: type[Settings]) -> Iterable[tuple[str, str, Any]]:
    """Section, name and default of the shared settings that have another default here."""
    for section, base in SHARED.items():
        for name, field in _fields(model, section).items():
            if name in base.model_fields and _default(field) != _default(base.model_fields[name]):
                yield section, name, _default(field)


def _of_system(system: str) -> dict[str, list[str]]:
    """Section → the system's settings that are not shared, or that have other values than the shared ones."""
    model, result = registry.settings_model(system), dict[str, list[str]]()
    for section in model.model_fields:
        shared = SHARED[section].model_fields if section in SHARED else {}
        fields = _fields(model, section)
        result[section] = [n for n, f in fields.items() if n not in shared or f.annotation != shared[n].annotation]
    return result


@cache
def _several() -> dict[tuple[str, str], list[str]]:
    """Section and line of each setting that is word for word that of many systems → these."""
    uses = dict[tuple[str, str], list[str]]()
    for system in registry.SYSTEMS:
        for section, names in _of_system(system).items():
            for name in names:
                part = registry.settings_model(system).model_fields[section].annotation
                uses.setdefault((section, _line(part, name, f"{section}.")), []).append(system)  # type: ignore[arg-type]
    return {use: names for use, names in uses.items() if len({registry.entry(name).module for name in names}) >= MANY}


def _tables(system: str) -> str:
    """A list for each section with the system's own settings, and the names of those of several systems."""
    model, parts, elsewhere = registry.settings_model(system), [], []
    for section, names in _of_system(system).items():
        part: Any = model.model_fields[section].annotation
        several = [n for n in names if (section, _line(part, n, f"{section}.")) in _several()]
        elsewhere += [f"`{section}.{name}`" for name in several]
        if names := [name for name in names if name not in several]:
            about = "" if section in SHARED else f"{part.__doc__}\n\n"
            parts.append(f"## `{section}`\n\n{about}{_list(part, names)}")
    if elsewhere:
        link = "[of several systems](../settings.md#of-several-systems)"
        parts.insert(0, f"It also has these settings {link}: {', '.join(elsewhere)}.\n")
    return "\n".join(parts)


def _fields(model: type[Settings], section: str) -> dict[str, Any]:
    part = model.model_fields[section].annotation
    return dict(part.model_fields) if isinstance(part, type) and issubclass(part, Settings) else {}


def _sources() -> str:
    """The page of the formats; lines that several formats have word for word stand once, with the formats' names."""
    uses = dict[str, list[str]]()
    for name, format in FORMATS.items():
        for field in format.settings.model_fields:
            uses.setdefault(_any_file(_line(format.settings, field)), []).append(name)
    shared = {line: names for line, names in uses.items() if len(names) > 1}
    parts = [_SOURCES, "## Settings of several formats\n", "The names at the end are those of the formats.\n"]
    parts.append("\n".join(f"{line} *{', '.join(names)}*." for line, names in shared.items()) + "\n")
    for name, format in FORMATS.items():
        model = format.settings
        fields = [field for field in model.model_fields if _any_file(_line(model, field)) not in shared]
        parts += [f"## Format `{name}`\n", _list(model, fields) if fields else "It has those above.\n"]
        parts += _nested(f"`{name}`", model)
    return "\n".join(parts)


def _any_file(line: str) -> str:
    """A line that formats of one file, of several files and of a folder share."""
    return re.sub(r"(?i)refuse the (file|files|data set)\b", "refuse the source", line)


def _nested(where: str, model: type[Settings]) -> list[str]:
    """Tables of the mappings, and of the lists of mappings, among a model's fields."""
    parts = []
    for key, field in model.model_fields.items():
        if below := _settings_in(field.annotation):
            parts.append(f"{where}: `{key}`. {below.__doc__}\n\n{_list(below, below.model_fields)}")
            parts += _nested(f"{where}: `{key}`", below)
    return parts


def _settings_in(annotation: Any) -> type[Settings] | None:
    inner = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    return inner if isinstance(inner, type) and issubclass(inner, Settings) else None


def _list(model: type[Settings], names: Iterable[str]) -> str:
    """A line each; a setting of the head and that of the tail have one, where they say the same."""
    lines, left = [], {name: _line(model, name) for name in names}
    for name, line in left.items():
        twin = name.replace("tail", "head")
        if twin != name and left.get(twin, "").replace("head", "tail") == line:
            continue
        tail = name.replace("head", "tail")
        both = tail != name and left.get(tail) == line.replace("head", "tail")
        ends, about = f"`{name}`, `{tail}", line.removeprefix(f"- `{name}").replace("head", "end")
        lines.append(f"- {ends}{about}" if both else line)
    return "\n".join(lines) + "\n"


def _line(model: type[Settings], name: str, section: str = "") -> str:
    """``- `name: default` (other, values): meaning``."""
    field = model.model_fields[name]
    default, mark = _written(_default(field)), "" if is_identity(model, name) else "°"
    text = f"- `{section}{name}{f': {default}' if default else ''}`{mark}{_others(field.annotation, default)}"
    about = (field.description or "").rstrip(".")
    return f"{text}: {about}."


def _default(field: Any) -> Any:
    return field.get_default(call_default_factory=True)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return "" if isinstance(value, Settings) else str(value)


def _others(annotation: Any, default: str) -> str:
    """The other values of a choice, or what a default does not show of the kind of values."""
    if _settings_in(annotation):
        return " (mappings, below)" if get_origin(annotation) is list else " (a mapping, below)"
    if get_origin(annotation) is list:
        return " (list)" if default == "[]" else ""
    if get_origin(annotation) is dict:
        return " (a mapping)"
    if others := [str(value) for value in get_args(annotation) if str(value) != default]:
        return f" ({', '.join(others)})"
    return ""


if __name__ == "__main__":
    pages = written()
    (REFERENCE / "settings").mkdir(exist_ok=True)
    for old in set((REFERENCE / "settings").glob("*.md")) - set(pages):
        old.unlink()
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
