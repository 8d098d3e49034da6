"""Generates the Launchpad's nested ``dg.Config`` from the library's pydantic settings.

Dagster cannot nest plain pydantic models, does not show bounds, and fails only inside the run if a bound is violated.
So the generated classes have the same names, defaults and descriptions, but no constraints. :func:`to_settings` passes
the values to the settings model, whose errors say what to do. This module works for every system.

The browser rewrites the text of an asset's Launchpad as YAML 1.2; Dagster reads it as YAML 1.1. Where these differ, the
same text has another value, and the run could not be launched:

- ``1e-8`` is a number for the browser, but text for Dagster, which wants a point. So a number may be any value here, and
  :func:`to_settings` reads it. A user can also write ``1e-3``.
- ``no`` or ``1:30`` is text for the browser, which leaves its quotes out, but a boolean or a number for Dagster; the text
  ``1e-3``, to which Dagster gives no quotes, is a number for the browser. So such a text has quotes of its own in the
  Launchpad: ``'"no"'``.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import dagster as dg
import yaml
from pydantic import Field, create_model
from yaml.resolver import Resolver

from graphmill.runs.resolve import merge
from graphmill.settings import Settings, SettingsT, parse, put

_SCALARS = (bool, int, float, str)
_NOT_TEXT_IN_YAML_1_2 = re.compile(
    r"|~|[nN]ull|NULL|[tT]rue|TRUE|[fF]alse|FALSE|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
"""What is not text to the browser: the core schema of YAML 1.2, section 10.3.2."""


def config_class(settings: Settings, *, without: Collection[str] = ()) -> type[dg.Config]:
    """The ``dg.Config`` class that mirrors ``type(settings)``; the values of ``settings`` are its defaults.

    ``without``: dotted paths of fields that the Launchpad does not show (``"acceleration.device"``). A field of a type
    that the Launchpad does not support raises ``TypeError``, which names it: this is a bug in the settings model, not a
    user's mistake.
    """
    known = set(paths(type(settings)))
    if unknown := sorted(set(without) - known):
        raise ValueError(f"{type(settings).__name__} has no field {unknown[0]!r} to leave out")
    return _mirror(settings, prefix="", without=frozenset(without))


def to_settings(config: dg.Config, settings: SettingsT, *, given: Mapping[str, Any] | None = None) -> SettingsT:
    """The settings from the Launchpad's ``config``.

    ``settings`` is the instance given to :func:`config_class`; it supplies the fields that the Launchpad does not show.
    ``given`` overrides by dotted path (``{"acceleration.device": "cpu"}``). Raises
    :class:`graphmill.errors.SettingsError`, with one sentence per problem, if a value is out of bounds or two values
    contradict each other.
    """
    values = merge(settings.model_dump(), _plain(config))
    for path, value in (given or {}).items():
        values = put(values, path, value)
    return parse(type(settings), values, "the Launchpad")


def paths(model: type[Settings], prefix: str = "") -> Iterator[str]:
    """The dotted path of every field of ``model``, sections (nested models) included."""
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from paths(field.annotation, f"{prefix}{name}.")


def _mirror(settings: Settings, prefix: str, without: frozenset[str]) -> type[dg.Config]:
    model = type(settings)
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        path = prefix + name
        if path in without:
            continue
        value = getattr(settings, name)
        if isinstance(value, Settings):
            section = _mirror(value, f"{path}.", without)
            # The Launchpad shows the class docstring as a section's text; the field's own description explains its
            # place here.
            fields[name] = (section, Field(default=section(), description=field.description or section.__doc__))
        else:
            annotation, default = _launchpad_type(field.annotation, value, f"{model.__name__}.{name}")
            fields[name] = (annotation, Field(default=default, description=field.description))
    return create_model(f"{model.__name__}Config", __base__=dg.Config, __doc__=model.__doc__, **fields)


def _launchpad_type(annotation: Any, default: Any, where: str) -> tuple[Any, Any]:
    """The annotation and default that Dagster understands for a settings field."""
    if annotation in _SCALARS:
        # Optional, because Dagster accepts an empty value for a field with a default; to_settings refuses it.
        return _scalar_type(annotation) | None, _in_quotes(default)
    if _is_choice(annotation):
        return annotation, default
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        if item in _SCALARS:
            return list[_scalar_type(item)] | None, [_in_quotes(each) for each in default]  # type: ignore[misc]
        if _is_choice(item):
            # Dagster supports Literal as a field's type, but not as a list's item type, and does not convert enums in a
            # list's default.
            return list[_enumeration(get_args(item))], list(default)  # type: ignore[misc]
    raise TypeError(
        f"{where}: {annotation} does not survive the Launchpad; "
        "use bool, int, float, str, Literal of str, a list of those, or a nested Settings"
    )


def _scalar_type(annotation: Any) -> Any:
    return Any if annotation is float else annotation


def _in_quotes(value: Any) -> Any:
    """``value``; in quotes if it is a text that the browser and Dagster do not both read as text, or both not."""
    if not isinstance(value, str):
        return value
    kind = Resolver().resolve(yaml.ScalarNode, value, (True, False)).rpartition(":")[2]
    text_to_dagster, text_to_browser = kind in ("str", "timestamp"), not _NOT_TEXT_IN_YAML_1_2.fullmatch(value)
    return value if text_to_dagster == text_to_browser else f'"{value}"'


def _enumeration(values: tuple[str, ...]) -> Any:
    # Enum types are compared by name across the whole schema, so equal choices must have equal names.
    return Enum(f"OneOf[{', '.join(values)}]", {value: value for value in values}, type=str)


def _is_choice(annotation: Any) -> bool:
    return get_origin(annotation) is Literal and all(isinstance(value, str) for value in get_args(annotation))


def _plain(value: Any) -> Any:
    """Config objects and enum members as dictionaries and strings; texts without the quotes of :func:`_in_quotes`."""
    if isinstance(value, dg.Config):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str) and value == _in_quotes(value[1:-1]):
        return value[1:-1]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
