"""The base of every settings model.

Each field is defined once: the command line, ``settings.yaml``, the Launchpad and the table in the docs derive from it.

Only types that survive the Launchpad are allowed: bool, int, float, str, ``Literal`` of str, lists of those, and nested
``Settings``. No ``None`` defaults, tuples or unions: ``0``, ``""`` and ``"auto"`` say "off" or "decide for me".
"""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from graphmill.errors import SettingsError


@dataclass(frozen=True)
class Retired:
    """A setting of an earlier release that is gone: what it was by default, and what to write in its place.

    Files that hold the default are read as before, and fingerprints are those of before; any other value is refused.
    """

    default: Any
    instead: str
    identity: bool = True


class Settings(BaseModel):
    """Frozen, strict about unknown names, validated also where a default is used."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())

    RETIRED: ClassVar[dict[str, Retired]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not cls.RETIRED.keys() & values.keys():
            return values
        for name, retired in cls.RETIRED.items():
            if name in values and values[name] != retired.default:
                raise ValueError(f"{name}: {values[name]} is no longer there: {retired.instead}")
        return {name: value for name, value in values.items() if name not in cls.RETIRED}


SettingsT = TypeVar("SettingsT", bound=Settings)


def setting(default: Any, description: str, *, identity: bool = True, **bounds: Any) -> Any:
    """A settings field. ``identity=False`` marks an execution setting, which does not enter the run's fingerprint.

    ``bounds`` are pydantic's ``ge``, ``gt``, ``le``, ``lt``, ``min_length`` ... They are repeated in the description,
    because the Launchpad shows descriptions and knows no bounds.
    """
    words = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    shown = ", ".join(f"{words[k]} {v}" for k, v in bounds.items() if k in words)
    text = f"{description} ({shown})" if shown else description
    if isinstance(default, list | dict | Settings):
        return Field(
            default_factory=lambda: default, description=text, json_schema_extra={"identity": identity}, **bounds
        )
    return Field(default, description=text, json_schema_extra={"identity": identity}, **bounds)


def is_identity(model: type[Settings], name: str) -> bool:
    """Whether the field enters the fingerprint."""
    extra = model.model_fields[name].json_schema_extra
    return bool(extra.get("identity", True)) if isinstance(extra, dict) else True


def identity_of(settings: Settings) -> dict[str, Any]:
    """The identity fields of ``settings`` as plain values, nested models included, in declaration order."""
    out: dict[str, Any] = {}
    for name in type(settings).model_fields:
        if not is_identity(type(settings), name):
            continue
        value = getattr(settings, name)
        out[name] = identity_of(value) if isinstance(value, Settings) else value
    return out | {name: retired.default for name, retired in type(settings).RETIRED.items() if retired.identity}


def parse(model: type[SettingsT], values: dict[str, Any], where: str) -> SettingsT:
    """Validate ``values`` against ``model``; raise :class:`SettingsError` with one line per problem, naming its path.

    ``where`` names the source in the message ("settings.yaml", "the Launchpad").
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_sentence(problem, model) for problem in error.errors()]
        raise SettingsError(f"{where}: " + "; ".join(lines)) from None


def _sentence(problem: Any, model: type[Settings]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _siblings(model, problem["loc"][:-1])
        return f"unknown setting '{path}' (known here: {', '.join(known)})"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if problem["type"] == "value_error" and not path:
        return message
    return f"{path} = {problem.get('input')!r}: {message}"


def _siblings(model: type[Settings], path: Any) -> list[str]:
    current: Any = model
    for part in path:
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            break
        current = field.annotation
    return list(getattr(current, "model_fields", {}))
