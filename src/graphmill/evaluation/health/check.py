"""What a health check is: one object with its figure, its thresholds, its verdict, its remedy and its line in the docs.

docs/extending/add_a_check.md works one through. The checks themselves are in :mod:`graphmill.evaluation.health.checks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray
from pydantic import create_model

from graphmill.evaluation.health.remedies import remedy_of
from graphmill.settings import Settings, setting

if TYPE_CHECKING:
    from graphmill.evaluation.health.figures import Figures
    from graphmill.evaluation.health.thresholds import HealthThresholds

Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True)
class Verdict:
    """``name`` is the figure's; ``threshold`` is the bound in force (already relative to small embeddings).

    ``meaning`` is one sentence on what the figure says at this status; ``remedy`` what to do, "" where it passes.
    """

    name: str
    value: float
    threshold: float
    status: Status
    meaning: str
    remedy: str


@dataclass(frozen=True)
class Evidence:
    """What a check may look at: the embedding X (n × d floats) with type codes (n), and what was measured of it.

    ``link_signal``: mean |AMRI| of the link ranking, nan without one. ``disease_type``: "" for none.
    """

    X: NDArray[Any]
    types: NDArray[Any]
    figures: Figures
    thresholds: HealthThresholds
    disease_type: str
    link_signal: float


@dataclass(frozen=True)
class Outcome:
    """A figure with the bound in force, and what it says at this status. ``remedy``: in place of the check's own."""

    value: float
    bound: float
    status: Status
    meaning: str
    remedy: str = ""


class Threshold:
    """A setting of :class:`~graphmill.evaluation.health.thresholds.HealthThresholds`; ``bounds`` as of ``setting``.

    ``figure``: what a calibration puts beside it, a name in the report's figures, or with ``per_type`` in its types.
    Its name ends in ``_max`` or ``_min``.
    """

    def __init__(
        self, name: str, default: float, text: str, *, figure: str = "", per_type: bool = False, **bounds: Any
    ) -> None:
        self.name, self.default, self.text, self.bounds = name, default, text, bounds
        self.figure, self.per_type = figure, per_type


def settings_of_thresholds(thresholds: Iterable[Threshold]) -> Any:
    """A settings model with a field for each of the thresholds."""
    fields: dict[str, Any] = {
        own.name: (type(own.default), setting(own.default, own.text, **own.bounds)) for own in thresholds
    }
    return create_model("Thresholds", __base__=Settings, **fields)


@dataclass(frozen=True)
class Group:
    """A check of the validation asset, which stands for several figures.

    ``picture``: the one that shows what it is about. ``absent``: said where the embedding has none of the figures.
    ``of_items``: whether systems that recommend items have it.
    """

    name: str
    text: str
    picture: str = ""
    absent: str = ""
    of_items: bool = True


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """One figure with a bound.

    ``figure`` measures it; ``good`` and ``bad`` are what it says where it holds its bound and where not, and ``breach`` is
    how grave that is. The bound is the first threshold, an upper or a lower one as its name ends, or ``needed``. A check of
    another kind gives ``judge`` in their place, which returns None where the embedding has no such figure. ``remedy``: a
    sentence, or ways to choose from by the settings that the system has (:func:`.remedies.remedy_of`).

    ``what``, ``bound`` and ``breaking`` are its line in docs/reference/checks.md: what the figure is, its bound ("" for
    the thresholds with their defaults; ``{name}`` stands for one of them), and what breaking it means ("": ``breach``).
    """

    name: str
    group: Group
    what: str
    remedy: str | tuple[str, ...]
    figure: Callable[[Evidence], float] = lambda e: math.nan
    needed: Callable[[Evidence], float] | None = None
    good: str = ""
    bad: str = ""
    breach: Literal["warn", "fail"] = "fail"
    judge: Callable[[Evidence], Outcome | None] | None = None
    thresholds: tuple[Threshold, ...] = ()
    bound: str = ""
    breaking: str = ""

    def verdict(self, evidence: Evidence, settings: Collection[str] | None) -> Verdict | None:
        """The verdict; ``settings``: names that the remedy may speak of, None for all."""
        found = self.judge(evidence) if self.judge else self._held_to_bound(evidence)
        if found is None:
            return None
        remedy = self.remedy if isinstance(self.remedy, str) else remedy_of(*self.remedy, settings=settings)
        remedy = "" if found.status == "pass" else found.remedy or remedy
        return Verdict(self.name, found.value, found.bound, found.status, found.meaning, remedy)

    def _held_to_bound(self, evidence: Evidence) -> Outcome:
        first = self.thresholds[0].name
        value = self.figure(evidence)
        bound = self.needed(evidence) if self.needed else getattr(evidence.thresholds, first)
        return self.outcome(value, bound, value <= bound if first.endswith("_max") else value >= bound)

    def outcome(self, value: float, bound: float, holds: bool, **names: str) -> Outcome:
        """The outcome of a figure that holds its bound or breaks it; ``names`` are filled into the sentence."""
        return Outcome(
            value, bound, "pass" if holds else self.breach, (self.good if holds else self.bad).format(**names)
        )

    def line(self) -> str:
        """The row of the docs' table."""
        shown = {t.name: f"`{t.name}` {t.default}".replace("-", "−") for t in self.thresholds}
        bound = self.bound.format(**shown) if self.bound else " and ".join(shown.values())
        return f"| `{self.name}` | {self.what} | {bound} | {self.breaking or self.breach} |"
