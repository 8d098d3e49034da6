"""The search space: settings by path, each with choices or a range, and the budget. It is checked before the first trial."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from graphmill.errors import SettingsError
from graphmill.runs.resolve import merge, parse_settings
from graphmill.settings import Settings, abbreviated, is_identity, parse
from graphmill.systems import registry

if TYPE_CHECKING:
    import optuna

NOT_SEARCHED = {
    "system": "a space holds the settings of one system; search each system by itself and compare the leaderboards",
    "data": "figures on different graphs cannot be compared; search each graph by itself",
    "preset": "a preset only fills in other settings; name the settings that it fills in",
    "training.seed": "the best seed is only the luckiest one; search.seeds trains each trial with several",
    "training.init_from": "all trials start in the same way; set it outside the space",
}
"""Settings that cannot be searched: path → the reason."""


class SearchSettings(BaseModel):
    """The section ``search`` of a settings file or of a component's YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: dict[str, Any] = Field(
        description="Setting by path → a list of choices, or {low, high, log, step}; such as training.learning_rate"
    )
    trials: int = Field(30, ge=1, description="Number of trials, including finished ones of earlier calls")
    budget_seconds: int = Field(0, ge=0, description="Begin no trial after this much time in trials; 0: no limit")
    metric: str = Field("", description="Validation metric to maximise; empty: evaluation.selection_metric")
    seeds: int = Field(1, ge=1, description="Number of trainings for each trial, with seeds 0, 1, …; their mean counts")


@dataclass(frozen=True)
class Dimension:
    """One searched setting: ``choices``, or a range of numbers (``whole``: integers; ``log``: log scale; ``step``)."""

    path: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float = 0.0
    whole: bool = False

    def suggest(self, trial: optuna.Trial) -> Any:
        """A value for this trial."""
        if self.choices:
            return self.choices[trial.suggest_categorical(self.path, list(range(len(self.choices))))]
        if self.whole:
            return trial.suggest_int(self.path, int(self.low), int(self.high), step=int(self.step) or 1, log=self.log)
        return trial.suggest_float(self.path, self.low, self.high, step=self.step or None, log=self.log)

    def value(self, drawn: Any) -> Any:
        """The setting's value from Optuna's value, which is the index of a choice or the number itself."""
        return self.choices[int(drawn)] if self.choices else drawn

    @property
    def extremes(self) -> tuple[Any, ...]:
        """Return the values to validate: if these are valid settings, all in the range are."""
        if self.choices:
            return self.choices
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)


def dimensions_of(search: SearchSettings, values: Mapping[str, Any], where: str) -> list[Dimension]:
    """The searched settings in the order of the file.

    Raises:
        SettingsError: a path that is not a setting of the system or does not affect the result, an invalid range, a
            value that the setting refuses, a repeated choice, or an epoch that is chosen on the test split.
    """
    if not search.space:
        raise SettingsError(
            f"{where}: search.space is empty; name a setting, such as training.learning_rate: [0.01, 0.001]"
        )
    model = registry.settings_model(str(values.get("system", registry.DEFAULT)))
    result = [_dimension(path, written, model, where) for path, written in search.space.items()]
    for dimension in result:
        _require_valid(dimension, values, model, where)
    return result


def metric_of(search: SearchSettings, values: Mapping[str, Any], where: str) -> str:
    """The validation metric that is maximised.

    Raises:
        SettingsError: the final evaluation does not compute the metric, or a lower value is better.
    """
    evaluation = parse_settings(values, where).evaluation  # type: ignore[attr-defined]
    metric = search.metric or str(evaluation.selection_metric)
    if metric not in (known := evaluation.measured(final=True)):
        lower = f" (a lower {metric} is better)" if metric in evaluation.LOWER_IS_BETTER else ""
        raise SettingsError(
            f"{where}: search.metric: {metric} cannot be maximised{lower}; it is one of {', '.join(known)} (the cut-offs "
            "are those of evaluation.top_k)"
        )
    return metric


def parse_search(written: Any, where: str) -> SearchSettings:
    """Parse the section ``search``. Raises :class:`SettingsError` with its mistakes."""
    if not isinstance(written, Mapping):
        raise SettingsError(f"{where} has no section 'search' with a 'space' of settings to try")
    return parse(SearchSettings, dict(written), f"{where}: search")  # type: ignore[type-var]


def nested(path: str, value: Any) -> dict[str, Any]:
    """``"training.learning_rate", 0.1`` as ``{"training": {"learning_rate": 0.1}}``."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


def _dimension(path: str, written: Any, model: type[Settings], where: str) -> Dimension:
    annotation = _field(path, model, where)
    if isinstance(written, list):
        if len(written) < 2:
            raise SettingsError(
                f"{where}: search.space.{path}: {abbreviated(written)} leaves no choice; give two or more"
            )
        return Dimension(path, tuple(written))
    if not isinstance(written, Mapping) or not {"low", "high"} <= written.keys() <= {"low", "high", "log", "step"}:
        raise SettingsError(
            f"{where}: search.space.{path}: write a list of choices, or a range such as "
            "{low: 0.0001, high: 0.01, log: true}"
        )
    if annotation not in (int, float):
        raise SettingsError(f"{where}: search.space.{path}: only numbers have a range; write a list of choices")
    if problem := _range_problem(written, whole=annotation is int):
        raise SettingsError(f"{where}: search.space.{path}: {abbreviated(dict(written))}: {problem}")
    low, high, step = (float(written.get(name, 0)) for name in ("low", "high", "step"))
    return Dimension(path, (), low, high, written.get("log", False), step, annotation is int)


def _range_problem(written: Mapping[str, Any], *, whole: bool) -> str:
    """The error in a range, or ""."""
    low, high, step, log = written["low"], written["high"], written.get("step", 0), written.get("log", False)
    numbers = {"low": low, "high": high, "step": step}
    for name, value in numbers.items():
        # A comparison instead of isfinite, which raises for an integer that is too large for a float.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            return f"{name} must be a number, not {abbreviated(value)}"
        if whole and value != int(value):
            return f"{name} must be a whole number, as the setting is one"
    if not isinstance(log, bool):
        return f"log must be true or false, not {abbreviated(log)}"
    if not low < high:
        return "low must be below high"
    if log and (low <= 0 or step):
        return "low must be above 0 on a log scale, and a log scale has no step"
    if step < 0:
        return "step must be above 0"
    return "step is wider than the range, so only low would be tried" if step > high - low else ""


def _require_valid(dimension: Dimension, values: Mapping[str, Any], model: type[Settings], where: str) -> None:
    """Raise :class:`SettingsError` for values that the setting refuses, or that it reads as equal."""
    taken: list[Any] = []
    for value in dimension.extremes:
        settings: Any = parse_settings(merge(values, nested(dimension.path, value)), f"{where}: search.space")
        if settings.evaluation.selected_on != "valid":
            raise SettingsError(
                f"{where}: a search chooses on validation, but evaluation.selection_split: test chooses the epoch on the "
                "test split; set it to valid"
            )
        parsed = settings
        for name in dimension.path.split("."):
            parsed = getattr(parsed, name)
        if parsed in taken:
            raise SettingsError(
                f"{where}: search.space.{dimension.path}: {abbreviated(value)} is there twice; name each choice once"
            )
        taken.append(parsed)


def _field(path: str, model: type[Settings], where: str) -> Any:
    """The type of the setting at ``path``."""
    current: Any = model
    for number, name in enumerate(parts := path.split(".")):
        fields = getattr(current, "model_fields", {})
        if name not in fields:
            raise SettingsError(
                f"{where}: search.space.{path} is not a setting of this system (known: {', '.join(fields) or 'none'})"
            )
        last = number == len(parts) - 1
        if last and path in NOT_SEARCHED:
            raise SettingsError(f"{where}: search.space.{path} cannot be searched: {NOT_SEARCHED[path]}")
        if last and not is_identity(current, name):
            raise SettingsError(
                f"{where}: search.space.{path} cannot be searched: it does not change the result of a training"
            )
        current = fields[name].annotation
    if isinstance(current, type) and issubclass(current, Settings):
        raise SettingsError(
            f"{where}: search.space.{path} is a section; name a setting in it, such as "
            f"{path}.{next(iter(current.model_fields))}"
        )
    return current
