"""The base of every settings model.

Each field is defined once: the command line, ``settings.yaml``, the Launchpad and the table in the docs derive from it.

Only types that survive the Launchpad are allowed: bool, int, float, str, ``Literal`` of str, lists of those, and nested
``Settings``. No ``None`` defaults, tuples or unions: ``0``, ``""`` and ``"auto"`` mean "off" or "decide for me". No name,
default or choice is a word that YAML reads as another value: ``none``, ``never`` and ``always``, not ``off`` and ``on``.
"""

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from graphmill.errors import InputError, SettingsError

LARGEST_NUMBER = 2**53 - 1
"""Of whole numbers: beyond it, a browser rounds what it shows in the Launchpad and sends back."""
LONGEST_TEXT = 4095
"""Characters of a path, as Linux bounds it."""


class Settings(BaseModel):
    """The base class: frozen, refuses unknown names, also validates defaults.

    YAML reads ``off``, ``no``, ``on`` and ``yes`` as booleans, so no choice is one of these words, and a boolean is
    accepted neither as a choice nor as a number. Text must not have null bytes; numbers must be finite unless a field
    allows it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, protected_namespaces=(), allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, value: Any, info: ValidationInfo) -> Any:
        return _as_meant(cls.model_fields[str(info.field_name)].annotation, value)


def put(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of nested ``values`` with ``value`` at the dotted ``path``; a value in place of a section is kept, and
    refused later."""
    name, _, rest = path.partition(".")
    below = values.get(name, {})
    if rest and not isinstance(below, Mapping):
        return dict(values)
    return {**values, name: put(below, rest, value) if rest else value}


SettingsT = TypeVar("SettingsT", bound=Settings)


def setting(default: Any, description: str, *, identity: bool = True, **bounds: Any) -> Any:
    """A settings field. ``identity=False`` marks an execution setting, which does not enter the run's fingerprint.

    ``bounds`` are pydantic's ``ge``, ``gt``, ``le``, ``lt``, ``min_length`` ... They are repeated in the description,
    because the Launchpad shows descriptions but not bounds.
    """
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    displayed = ", ".join(f"{words[k]} {v}" for k, v in bounds.items() if k in words)
    text = f"{description} ({displayed})" if displayed else description
    if isinstance(default, list | dict | Settings):
        bounds["default_factory"] = lambda: default
    else:
        bounds["default"] = default
    return Field(description=text, json_schema_extra={"identity": identity}, **bounds)


def require_unset(settings: Settings, names: Iterable[str], section: str, why: str) -> None:
    """Raise ``ValueError`` for a field of ``names`` that differs from its default: with ``why`` it is not read."""
    for name in names:
        if getattr(settings, name) != type(settings).model_fields[name].get_default(call_default_factory=True):
            raise ValueError(f"{section}.{name} is not read with {why}; leave it out")


def _as_meant(annotation: Any, value: Any) -> Any:
    """Converts a value from YAML for a field of this type. Raises ``ValueError`` for a value that pydantic would
    silently change."""
    if get_origin(annotation) is list and isinstance(value, list):
        return [_as_meant(get_args(annotation)[0], item) for item in value]
    if isinstance(value, bool):
        if get_origin(annotation) is Literal:
            raise ValueError(
                f"{_instead_of(value, get_args(annotation))}; YAML reads on, off, yes and no as true or false"
            )
        if annotation in (int, float):
            raise ValueError("write a number; YAML reads yes, no, on, off, true and false as something else")
    elif isinstance(value, int) and annotation in (int, float) and abs(value) > LARGEST_NUMBER:
        raise ValueError(f"write a number of at most {LARGEST_NUMBER}")
    elif isinstance(value, str):
        if "\0" in value:
            raise ValueError("it holds a null byte, which no name or path may")
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"it is longer than {LONGEST_TEXT:,} characters, which no name or path may be")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("it has bytes that are not UTF-8 text")
    return value


def _instead_of(value: bool, choices: Sequence[str]) -> str:
    """Which of a setting's ``choices`` to write instead of a boolean."""
    meant = ("always",) if value else ("none", "never")
    others = [choice for choice in choices if choice not in meant]
    word = next((choice for choice in choices if choice in meant), "")
    return f"write {word} (or {', '.join(others)})" if word else f"write one of {', '.join(others)}"


def is_identity(model: type[Settings], name: str) -> bool:
    """Whether the field enters the fingerprint."""
    extra = model.model_fields[name].json_schema_extra
    return bool(extra.get("identity", True)) if isinstance(extra, dict) else True


def identity_of(settings: Settings) -> dict[str, Any]:
    """The identity fields of ``settings`` as plain values, including nested models."""
    out: dict[str, Any] = {}
    for name in type(settings).model_fields:
        if not is_identity(type(settings), name):
            continue
        value = getattr(settings, name)
        out[name] = identity_of(value) if isinstance(value, Settings) else value
    return {name: value for name, value in out.items() if value != {}}


def parse(model: type[SettingsT], values: dict[str, Any], where: str) -> SettingsT:
    """Validates ``values`` against ``model``. Raises :class:`SettingsError` with one line per problem, with its path.

    ``where`` names the source in the message ("settings.yaml", "the Launchpad").
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_sentence(problem, model) for problem in error.errors()]
        raise SettingsError(f"{where}: " + "; ".join(lines)) from None


def _sentence(problem: Any, model: type[Settings]) -> str:
    path = ".".join(part if str(part).isprintable() else repr(part) for part in map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        known = _siblings(model, problem["loc"][:-1])
        near = get_close_matches(str(problem["loc"][-1]), known, 1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        return f"unknown setting '{path}' ({meant}known here: {', '.join(known)})"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = problem.get("input", "")
    if value is None:
        return f"{path}: it has no value; write one, or remove the line"
    if problem["type"] == "value_error" and (not path or isinstance(value, Mapping | Settings)):
        return message  # an error of a whole section, whose message names its settings
    if problem["type"] == "model_type":
        message = "it is a section: write its settings under it, one 'name: value' a line, or leave it out"
    return f"{path} = {abbreviated(value)}: {message}"


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


def abbreviated(value: Any) -> str:
    """``value`` for a message, shortened: a YAML alias can make a list endless."""
    return _SHORT.repr(value)


def _siblings(model: type[Settings], path: Any) -> list[str]:
    current: Any = model
    for part in path:
        if isinstance(part, int):  # an index of a list
            continue
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            break
        current = get_args(field.annotation)[0] if get_origin(field.annotation) is list else field.annotation
    return list(getattr(current, "model_fields", {}))


class _Plain(yaml.SafeLoader):
    """A YAML loader that refuses silent changes of values: a key given twice, 010 (which is 8), 1:30 (which is 90)."""

    def construct_yaml_int(self, node: Any) -> int:
        digits = str(node.value).lstrip("+-")
        if ":" in digits or (len(digits) > 1 and digits[0] == "0" and digits[1] not in "xb"):
            line = node.start_mark.line + 1
            raise _UnclearError(
                f"{_brief(node.value)} in line {line} is another number to YAML; write it without zeros or colons"
            )
        return int(super().construct_yaml_int(node))

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            name, line = (key.tag, key.value), key.start_mark.line + 1
            if name in lines:
                raise _UnclearError(
                    f"'{_brief(key.value)}' is given twice, in lines {lines[name]} and {line}; keep one of them"
                )
            lines[name] = line
        return node


_Plain.add_constructor("tag:yaml.org,2002:int", _Plain.construct_yaml_int)


def _brief(written: Any) -> str:
    text = str(written)
    return text if len(text) <= 60 else f"{text[:60]}…"


class _UnclearError(Exception):
    """An ambiguous YAML value; the message is a sentence."""


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML (or JSON) text. ``where``: the text's name in messages.

    Raises:
        InputError: the text is not YAML, has a key twice, or has a number that YAML would read as another one; with the
            lines.
    """
    with _one_sentence(where):
        return yaml.load(text, _Plain)


def read_yaml_documents(text: str, where: str) -> list[Any]:
    """Like :func:`read_yaml`, for a file with several documents, separated by lines of ``---``."""
    with _one_sentence(where):
        return list(yaml.load_all(text, _Plain))


@contextmanager
def _one_sentence(where: str) -> Iterator[None]:
    try:
        yield
    except _UnclearError as error:
        raise InputError(f"{where}: {error}") from None
    except RecursionError:
        raise InputError(f"{where} is not valid YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None
