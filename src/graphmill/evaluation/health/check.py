"""The definition of a health check: one object with its figure, thresholds, verdict, remedy and line in the docs.

docs/extending/add_a_check.md has an example. The checks are in :mod:`graphmill.evaluation.health.checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from graphmill.evaluation.markdown import number

if TYPE_CHECKING:
    from graphmill.evaluation.health.checks import HealthThresholds
    from graphmill.evaluation.health.figures import Figures

_NOT_BY_SOFTMAX = {"contrastive_weight"}
_SETTING = re.compile(r"[a-z]+(?:_[a-z0-9]+)+|regularisation")


def setting_names(values: Mapping[str, Any]) -> frozenset[str]:
    """The names of a run's settings without their sections: {"model": {"num_layers": 2}} gives num_layers.

    With ``loss: softmax``, settings that it does not read are left out.
    """
    names: set[str] = set()
    for name, value in values.items():
        names |= setting_names(value) if isinstance(value, Mapping) else {name}
    unread = _NOT_BY_SOFTMAX if values.get("loss") == "softmax" and "contrastive_weight" in values else set()
    return frozenset(names - unread)


def remedy_of(*ways: str, settings: Collection[str] | None = None) -> str:
    """One sentence of the options that apply, such as "Raise a_setting, lower b_setting, or train longer.".

    An option that names a setting (words joined by _, or regularisation) applies if ``settings``, the names of the
    system's settings, has it. With None (an unknown system), all apply. An option without a setting always applies.
    """
    usable = [way for way in ways if settings is None or all(name in settings for name in _SETTING.findall(way))]
    *others, last = usable
    separator = ", or " if len(others) > 1 else " or "
    text = separator.join([", ".join(others), last]) if others else last
    return text[0].upper() + text[1:] + "."


Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True)
class Verdict:
    """``name`` is the name of the figure. ``threshold`` is the bound applied (already adapted to small embeddings).

    ``meaning`` explains the figure at this status in one sentence. ``remedy`` says what to do, "" if it passes; what a check
    judges has none, or one that replaces the check's own.
    """

    name: str
    value: float
    threshold: float
    status: Status
    meaning: str
    remedy: str = ""


NAMED_FIGURES = 3
"""Figures out of bounds that a summary explains; it counts the others."""


def bounds_sentence(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """How many figures are within their bounds; the worst of the others by name, each with its meaning and remedy.

    ``verdicts``: fields of :class:`Verdict`. The text is Markdown.
    """
    bad = sorted((each for each in verdicts if each["status"] != "pass"), key=lambda each: each["status"] != "fail")
    text = f"{len(verdicts) - len(bad)} of {len(verdicts)} figures are within their bounds"
    if not bad:
        return f"{text}."
    named = (
        f"**{each['name'].replace('_', ' ')}** ({number(each['value'])}; bound {number(each['threshold'])}): "
        f"{each['meaning']} {each['remedy']}".strip()
        for each in bad[:NAMED_FIGURES]
    )
    more = f" And {len(bad) - NAMED_FIGURES} more, in the table." if len(bad) > NAMED_FIGURES else ""
    return f"{text}. Out of bounds: {' '.join(named)}{more}"


@dataclass(frozen=True)
class CheckInput:
    """The input of a check: the embedding X (n × d floats) with type codes (n), and its measured figures.

    ``link_signal``: mean |AMRI| of the link ranking, nan without one.
    """

    X: NDArray[Any]
    types: NDArray[Any]
    figures: Figures
    thresholds: HealthThresholds
    link_signal: float


class Threshold:
    """A setting of :class:`~graphmill.evaluation.health.checks.HealthThresholds`. ``bounds``: as in ``setting``.

    The threshold's name ends in ``_max`` or ``_min``.
    """

    def __init__(self, name: str, default: float, text: str, **bounds: Any) -> None:
        self.name, self.default, self.text, self.bounds = name, default, text, bounds


@dataclass(frozen=True)
class Group:
    """A check of the validation asset, which covers several figures.

    ``picture``: the picture that illustrates it. ``absent``: the message if the embedding has none of the figures.
    """

    name: str
    text: str
    picture: str = ""
    absent: str = ""


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """One figure with a bound.

    ``figure`` computes it; None if the embedding has no such figure. ``good`` and ``bad`` are the messages if it keeps
    or breaks its bound, and ``breach`` is the status if it breaks it. The bound is the first threshold (an upper or
    lower one, as its name says) or ``needed``. A check of another kind defines ``judge`` instead, which may return
    None, too. ``remedy``: a sentence, or options that are chosen by the system's settings
    (:func:`remedy_of`).

    ``what``, ``bound`` and ``breaking`` make its line in docs/reference/checks.md: the meaning of the figure, its bound
    ("": the thresholds with their defaults; ``{name}`` stands for one of them), and the meaning of breaking it ("":
    ``breach``).
    """

    name: str
    group: Group
    what: str
    remedy: str | tuple[str, ...]
    figure: Callable[[CheckInput], float | None] = lambda e: None
    needed: Callable[[CheckInput], float] | None = None
    good: str = ""
    bad: str = ""
    breach: Literal["warn", "fail"] = "fail"
    judge: Callable[[CheckInput], Verdict | None] | None = None
    thresholds: tuple[Threshold, ...] = ()
    bound: str = ""
    breaking: str = ""

    def verdict(self, evidence: CheckInput, settings: Collection[str] | None) -> Verdict | None:
        """The verdict. ``settings``: names of settings that the remedy may mention, None for all."""
        result = self.judge(evidence) if self.judge else self._held_to_bound(evidence)
        if result is None:
            return None
        remedy = self.remedy if isinstance(self.remedy, str) else remedy_of(*self.remedy, settings=settings)
        remedy = "" if result.status == "pass" else result.remedy or remedy
        return replace(result, remedy=remedy)

    def _held_to_bound(self, evidence: CheckInput) -> Verdict | None:
        first = self.thresholds[0].name if self.thresholds else ""
        if (value := self.figure(evidence)) is None:
            return None
        bound = self.needed(evidence) if self.needed else getattr(evidence.thresholds, first)
        return self.outcome(value, bound, value >= bound if first.endswith("_min") else value <= bound)

    def outcome(self, value: float, bound: float, holds: bool, **names: str) -> Verdict:
        """The verdict on a figure that keeps or breaks its bound. ``names`` are filled into the message."""
        meaning = (self.good if holds else self.bad).format(**names)
        return Verdict(self.name, value, bound, "pass" if holds else self.breach, meaning)

    def line(self) -> str:
        """The check's row in the table of the docs."""
        displayed = {t.name: f"`{t.name}` {t.default}".replace("-", "−") for t in self.thresholds}
        bound = self.bound.format(**displayed) if self.bound else " and ".join(displayed.values())
        return f"| `{self.name}` | {self.what} | {bound} | {self.breaking or self.breach} |"
