"""``docs/reference/settings.md`` from the settings models: ``python .ci/settings_page.py``, which ``make pages`` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_origin

from graphmill.ingest.formats import FORMATS
from graphmill.settings import Settings, is_identity
from graphmill.systems import registry
from graphmill.training.settings import (
    AccelerationSettings,
    EvaluationSettings,
    ExportSettings,
    TrackerSettings,
    TrainingSettings,
)

SHARED: dict[str, type[Settings]] = {
    "training": TrainingSettings,
    "acceleration": AccelerationSettings,
    "evaluation": EvaluationSettings,
    "export": ExportSettings,
    "tracker": TrackerSettings,
}
_HEAD = """# Settings

Written by `make pages`; do not edit. A settings file (`graphmill train settings.yaml`) and Dagster's Launchpad have the
same fields. Only `system` and `data` are required. A `preset` fills fields that are not written.

**Identity**: *yes* means that another value starts another run; *no* means that the value may change when a run is
continued.
"""

_SOURCES = """## Sources

These are the keys of a source in a dataset's `defs.yaml`, in addition to `name`, `format` and `path`
([dagster](../explanation/dagster.md)). In Python they are the fields of the reader's settings.
"""


def settings_markdown() -> str:
    """The whole page."""
    parts = [_HEAD, "## Shared by all systems\n"]
    for name, model in SHARED.items():
        parts.append(f"### `{name}`\n\n{model.__doc__}\n\n{_table(model, list(model.model_fields))}")
    for system, entry in registry.SYSTEMS.items():
        about = f"{entry.about}. Optimizer: {_optimizer(system)}. Presets: {_presets(system)}.{_sharding(system)}"
        parts.append(f"## System `{system}`\n\n{about}\n")
        for name, field in registry.settings_model(system).model_fields.items():
            model = field.annotation  # type: ignore[assignment]
            if not (isinstance(model, type) and issubclass(model, Settings)):
                continue
            names = _own(name, model)
            if names:
                about = (
                    "The settings whose default or choice of values differs from the shared ones."
                    if name in SHARED
                    else model.__doc__
                )
                parts.append(f"### `{system}`: `{name}`\n\n{about}\n\n{_table(model, names)}")
    parts.append(_SOURCES)
    for name, format in FORMATS.items():
        model = format.settings
        parts.append(f"### Format `{name}`\n\n{model.__doc__}\n\n{_table(model, list(model.model_fields))}")
        parts += _nested(f"`{name}`", model)
    return "\n".join(parts)


def _optimizer(system: str) -> str:
    return str(getattr(registry.settings_model(system).model_fields["training"].annotation, "OPTIMIZER"))  # noqa: B009


def _nested(where: str, model: type[Settings]) -> list[str]:
    """Tables of the mappings, and of the lists of mappings, among a model's fields."""
    parts = []
    for key, field in model.model_fields.items():
        if below := _settings_in(field.annotation):
            parts.append(f"{where}: `{key}`. {below.__doc__}\n\n{_table(below, list(below.model_fields))}")
            parts += _nested(f"{where}: `{key}`", below)
    return parts


def _settings_in(annotation: Any) -> type[Settings] | None:
    inner = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    return inner if isinstance(inner, type) and issubclass(inner, Settings) else None


def _own(section: str, model: type[Settings]) -> list[str]:
    if section not in SHARED:
        return list(model.model_fields)
    shared = SHARED[section].model_fields
    return [
        name
        for name, field in model.model_fields.items()
        if name not in shared
        or _default(field) != _default(shared[name])
        or field.annotation != shared[name].annotation
    ]


def _table(model: type[Settings], names: list[str]) -> str:
    lines = ["| setting | values | default | identity | meaning |", "| --- | --- | --- | --- | --- |"]
    for name in names:
        field = model.model_fields[name]
        cells = [f"`{name}`", _values(field.annotation), f"`{_shown(_default(field))}`"]
        cells += ["yes" if is_identity(model, name) else "no", (field.description or "").replace("|", "\\|")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _default(field: Any) -> Any:
    return field.get_default(call_default_factory=True)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Settings):
        return "{}"
    return '""' if value == "" else str(value).replace("|", "\\|")


def _values(annotation: Any) -> str:
    if get_args(annotation) and get_origin(annotation) is not list:
        return ", ".join(str(value) for value in get_args(annotation))
    names = {bool: "true, false", int: "integer", float: "number", str: "text"}
    if get_origin(annotation) is list:
        kind = "mappings (below)" if _settings_in(annotation) else names.get(get_args(annotation)[0], "text")
        return f"list of {kind}"
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return "a mapping (below)"
    return names.get(annotation, getattr(annotation, "__name__", "text"))


def _sharding(system: str) -> str:
    if not registry.settings_model(system).shards_rows:
        return ""
    return " Tables can be divided by rows over several processes (`acceleration.sharding`)."


def _presets(system: str) -> str:
    return ", ".join(f"`{name}`" for name in ("auto", *registry.presets(system)))


if __name__ == "__main__":
    page = Path(__file__).resolve().parents[1] / "docs" / "reference" / "settings.md"
    page.write_text(settings_markdown(), encoding="utf-8")
