"""The search space: settings by path, each with choices or a range, and the budget. Checked before the first trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphmill.errors import SettingsError
from graphmill.runs.resolve import merge, parse_settings
from graphmill.settings import Settings, is_identity, name_of_today, parse, shown
from graphmill.systems import registry

if TYPE_CHECKING:
    import optuna

NOT_SEARCHED = {"recipe", "data", "preset", "training.seed", "training.init_from"}
"""Settings that say what is compared, or that every trial has."""
LOWER_IS_BETTER = ("mr",)


class SearchSettings(BaseModel):
    """The section ``search`` of a settings file or of a component's YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: dict[str, Any] = Field(
        description="Setting by path → a list of choices, or {low, high, log, step}; such as training.learning_rate"
    )
    sampler: Literal["tpe", "random", "grid"] = Field("tpe", description="How the next trial is chosen")
    trials: int = Field(30, ge=1, description="Trials to make, finished ones of an earlier call included")
    budget_seconds: int = Field(0, ge=0, description="No trial begins after this much time in trials; 0: no bound")
    metric: str = Field("", description="Validation metric to maximise; empty: evaluation.selection_metric")
    seeds: int = Field(1, ge=1, description="Trainings of each trial, with seeds 0, 1, …; their mean counts")
    prune: bool = Field(True, description="End a trial whose validation is below the median of the others at its epoch")
    seed: int = Field(0, ge=0, description="Seed of the sampler")


@dataclass(frozen=True)
class Dimension:
    """One searched setting: ``choices``, or a range of numbers (``whole`` ones, on a ``log`` scale, by ``step``)."""

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
        """The setting's value from what Optuna keeps: the number of a choice, or the number itself."""
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
        SettingsError: a path that is no setting of the system or decides nothing, a range without order, a value that
            the setting refuses.
    """
    if not search.space:
        raise SettingsError(
            f"{where}: search.space is empty; name a setting, such as training.learning_rate: [0.01, 0.001]"
        )
    model = registry.settings_model(str(values.get("recipe", "hgt")))
    found = [_dimension(path, written, model, where) for path, written in search.space.items()]
    for dimension in found:
        for value in dimension.extremes:
            parse_settings(merge(values, nested(dimension.path, value)), f"{where}: search.space")
    if search.sampler == "grid" and (ranges := [d.path for d in found if not d.choices]):
        raise SettingsError(f"{where}: sampler grid needs a list of choices for {', '.join(ranges)}")
    return found


def metric_of(search: SearchSettings, values: Mapping[str, Any], where: str) -> str:
    """The validation metric that is maximised. Raises :class:`SettingsError` for one of which less is better."""
    metric = search.metric or str(parse_settings(values, where).evaluation.selection_metric)  # type: ignore[attr-defined]
    if metric in LOWER_IS_BETTER:
        raise SettingsError(f"{where}: search.metric: lower values of {metric} are better; use mrr or hits@10")
    return metric


def parse_search(written: Any, where: str) -> SearchSettings:
    """The section ``search``. Raises :class:`SettingsError` with its mistakes."""
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
            raise SettingsError(f"{where}: search.space.{path}: {shown(written)} leaves no choice; give two or more")
        return Dimension(path, tuple(written))
    if not isinstance(written, Mapping) or not {"low", "high"} <= written.keys() <= {"low", "high", "log", "step"}:
        raise SettingsError(
            f"{where}: search.space.{path}: write a list of choices, or a range such as "
            "{low: 0.0001, high: 0.01, log: true}"
        )
    if annotation not in (int, float):
        raise SettingsError(f"{where}: search.space.{path}: only numbers have a range; write a list of choices")
    low, high, step, log = written["low"], written["high"], written.get("step", 0), written.get("log", False)
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (low, high, step))
    if not numbers or not low < high or step < 0 or (log and (low <= 0 or step)):
        raise SettingsError(
            f"{where}: search.space.{path}: {shown(dict(written))} is not a range: low must be below high, and on a "
            "log scale above 0 and without a step"
        )
    return Dimension(path, (), float(low), float(high), bool(log), float(step), annotation is int)


def _field(path: str, model: type[Settings], where: str) -> Any:
    """The type of the setting at ``path``."""
    current: Any = model
    for number, name in enumerate(parts := name_of_today(model, path).split(".")):
        fields = getattr(current, "model_fields", {})
        if name not in fields:
            raise SettingsError(
                f"{where}: search.space.{path} is not a setting of this system (known: {', '.join(fields) or 'none'})"
            )
        last = number == len(parts) - 1
        if path in NOT_SEARCHED or (last and not is_identity(current, name)):
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
