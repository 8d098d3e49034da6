"""Parts of the YAML that both component types use, and the conversion of a section to a settings model.

The library's own settings model validates a section. ``dg check defs`` shows an error as one sentence, with file and
line.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import dagster as dg
from pydantic import Field

from graphmill.errors import SettingsError
from graphmill.settings import Settings, parse

SettingsT = TypeVar("SettingsT", bound=Settings)
_TEMPLATE = re.compile(r"\{[{%#]")


class Schedule(dg.Model, dg.Resolvable):
    """When to retrain. The schedule is off until a user starts it."""

    cron: str = Field(description='Five cron fields, such as "0 3 * * 1".')
    timezone: str = Field("UTC", description="Name in the time zone database, such as Europe/Berlin.")


class Freshness(dg.Model, dg.Resolvable):
    """Limits of the embeddings' age."""

    warn_hours: float = Field(0, description="Age from which the check warns, in hours; 0: no warning.")
    fail_hours: float = Field(description="Age from which the check fails, in hours (> 0).")


class Watch(dg.Model, dg.Resolvable):
    """A sensor that launches the whole chain when a source file has changed. It is off until a user starts it."""

    enabled: bool = Field(False, description="Whether to add a sensor.")
    interval_seconds: int = Field(60, description="Time between two checks of the files, in seconds (≥ 5).")


def section(model: type[SettingsT], name: str) -> dg.Resolver:
    """Make a resolver that turns the YAML section ``name`` into ``model``."""

    def resolve(context: dg.ResolutionContext, value: Any) -> SettingsT:
        return as_settings(model, resolved(context, value), name)

    return dg.Resolver(resolve, model_field_type=dict[str, Any], description=model.__doc__)


def resolved(context: dg.ResolutionContext, value: Any) -> Any:
    """``value`` with its templates (``{{ env.X }}``) filled in. A text without one stays that text, whereas Dagster's own
    way makes a number of ``"17"``."""
    if isinstance(value, Mapping):
        return {name: resolved(context.at_path(name), inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolved(context.at_path(number), inner) for number, inner in enumerate(value)]
    return context.resolve_value(value) if isinstance(value, str) and _TEMPLATE.search(value) else value


def as_settings(model: type[SettingsT], value: Any, name: str) -> SettingsT:
    """``value`` (a mapping, or already a ``model``) as ``model``. Raises :class:`SettingsError` for an invalid one."""
    if isinstance(value, model):
        return value
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} must be a mapping, not {value!r}")
    return parse(model, dict(value), name)
