"""The settings of ``system: auto``, which trains all systems that suit the data and takes one of them.

Importable without torch: definitions and the command line read them.
"""

import re
from typing import Any, Literal

from pydantic import field_validator

from graphmill.errors import SettingsError
from graphmill.settings import Settings, setting
from graphmill.training.settings import AccelerationSettings, TrackerSettings, TrainingSettings

AUTO = "auto"
"""The name that stands for the choice where a system is named, and of the folder of its runs, beside the graph."""
FILE = "which_model.json"
FEWEST = 30
"""With fewer queries, an interval says little."""
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
_BUDGET = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|sec|min|h|)\s*")


def seconds_of(budget: str) -> float:
    """The seconds of "90s", "10min", "2h" or "600". Raises :class:`SettingsError` for any other text."""
    match = _BUDGET.fullmatch(budget)
    if match is None or not float(match[1]):
        raise SettingsError(f'"{budget}" is not a time; write a budget like "90s", "10min" or "2h"')
    return float(match[1]) * _SECONDS[match[2]]


def _same(model: type[Settings], name: str) -> Any:
    """A field with the default and the description that ``model`` gives it."""
    field = model.model_fields[name]
    return setting(field.default, str(field.description), identity=False)


class AutoTraining(Settings):
    """What all systems have in common about their training."""

    seed: int = _same(TrainingSettings, "seed")


class AutoAcceleration(Settings):
    """What all systems have in common about the machine."""

    device: Literal["auto", "cuda", "mps", "cpu"] = _same(AccelerationSettings, "device")
    memory_budget: str = _same(AccelerationSettings, "memory_budget")


class AutoSettings(Settings):
    """One choice: the shape of a ``settings.yaml`` with ``system: auto``."""

    system: Literal["auto"] = setting("auto", "All systems that suit the data, of which validation chooses one")
    data: str = setting("", "Directory of the typed graph", identity=False)
    budget: str = setting("10min", 'Time for the trainings of one call, such as "90s", "10min" or "2h"')
    systems: list[str] = setting([], "Only these systems; empty: all that suit the data")
    training: AutoTraining = setting(AutoTraining(), "Seed")
    acceleration: AutoAcceleration = setting(AutoAcceleration(), "Device and memory")
    tracker: TrackerSettings = setting(TrackerSettings(), "A tracker that receives each system's run")

    @field_validator("systems", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("budget", mode="before")
    @classmethod
    def _in_seconds(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("budget")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        try:
            seconds_of(value)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return value

    @property
    def shared(self) -> dict[str, Any]:
        """The settings that each system's training gets."""
        return self.model_dump(include={"training", "acceleration", "tracker"})
