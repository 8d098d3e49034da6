"""Which of the measured systems is chosen, and why; the table of all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from graphmill.evaluation.json_values import plain
from graphmill.evaluation.ranking.paired_difference import paired_bootstrap
from graphmill.evaluation.ranking.per_query import QueryValues
from graphmill.memory import format_size
from graphmill.runs.messages import duration
from graphmill.systems.auto import FEWEST

LEVEL = 0.99
"""Least share of the best figure of a system that is level with the best, so that few queries do not hide a loss."""
FASTER, SHORTEST = 10.0, 60.0
"""How many times as long a training must take as another one to cost more, and the seconds below which none does: less is
not worth a figure that is lower, be it by chance."""


@dataclass(frozen=True)
class Candidate:
    """One system with its ``settings``, such as ``objective.regularisation=0.1`` ("": its defaults).

    ``state``: finished, or the reason why it has no figure (``reason`` is a sentence).

    ``figure`` on validation with its 95 % interval, ``low`` to ``high``; ``below``: the 95 % interval of the best figure
    minus this one, on the same queries. ``seconds`` of the training, ``memory``: its planned peak in bytes,
    ``size``: bytes of what is exported, before compression.
    """

    system: str
    state: str
    reason: str = ""
    figure: float | None = None
    low: float | None = None
    high: float | None = None
    below: tuple[float, float] | None = None
    seconds: float = 0.0
    memory: int = 0
    size: int = 0
    abilities: tuple[str, ...] = ()
    run: str = ""
    settings: str = ""

    @property
    def name(self) -> str:
        """The system with its settings, for people."""
        return f"{self.system} ({self.settings})" if self.settings else self.system


@dataclass(frozen=True)
class Choice:
    """The choice: ``system`` and its ``run``, the ``sentence`` that says why, and all ``candidates``, the best first.

    ``metric``: of the figures, on ``queries`` validation queries. ``test``: metrics of the chosen run alone. ``made_of``:
    hash of the data, settings, budget and version; a later call with the same keeps the choice.
    """

    system: str
    run: str
    sentence: str
    metric: str
    queries: int
    candidates: tuple[Candidate, ...]
    test: dict[str, float] = field(default_factory=dict)
    folder: str = ""
    made_of: dict[str, Any] = field(default_factory=dict)

    columns = ("", "system", "validation", "95 %", "time", "memory", "export", "has")

    def rows(self) -> list[list[str]]:
        """A line for each system, the best first; an arrow marks the chosen one."""
        return [
            [
                "→" if each.run == self.run else "",
                each.name,
                f"{each.figure:.4f}",
                f"{each.low:.4f} to {each.high:.4f}",
                duration(each.seconds),
                format_size(each.memory),
                format_size(each.size),
                ", ".join(each.abilities),
            ]
            if each.figure is not None
            else ["", each.name, each.state, "", "", "", "", each.reason]
            for each in self.candidates
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def read(cls, path: Path) -> Choice | None:
        """The choice in a file; None if there is none, or it has other fields."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**values, "candidates": tuple(Candidate(**each) for each in values["candidates"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None


def chosen_of(candidates: list[Candidate], measured: Mapping[str, QueryValues]) -> Choice:
    """The cheapest of the systems that are level with the best within chance; of equally cheap ones the best, and of those
    with the same figure the first of ``candidates``."""
    finished = sorted((each for each in candidates if each.figure is not None), key=lambda each: -(each.figure or 0.0))
    first, ranked = measured[finished[0].run], []
    for each in finished:
        mine = measured[each.run]
        difference = paired_bootstrap(first.values, mine.values, groups=first.groups, units=first.units)
        ranked.append(replace(each, below=(difference.low, difference.high)))
    least = LEVEL * first.mean
    best_of = {each.system: each for each in reversed(ranked)}  # of each system its best settings
    systems = [each for each in ranked if each is best_of[each.system]]
    level = [each for each in systems if each.below and each.below[0] <= 0 and (each.figure or 0.0) >= least]
    quickest, order = min(each.seconds for each in level), [each.run for each in candidates]
    cheap = [each for each in level if not _costs_more(each.seconds, quickest)]
    chosen = min(cheap, key=lambda each: (-(each.figure or 0.0), order.index(each.run)))
    text = _sentence(chosen, level, systems, first.metric)
    if len(first.values) < FEWEST:
        text += f" Only {len(first.values)} validation queries decide: hold out more (graph.split.valid)."
    rest = [each for each in candidates if each.figure is None]
    about = chosen.system, chosen.run, text, first.metric, len(first.values)
    return Choice(*about, (*ranked, *rest))


def _costs_more(seconds: float, other: float) -> bool:
    """Whether a training of so many seconds costs more than one of ``other`` seconds."""
    return seconds > max(FASTER * other, SHORTEST)


def _sentence(chosen: Candidate, level: list[Candidate], ranked: list[Candidate], metric: str) -> str:
    """``ranked``: each system by its best settings, the best first; ``level``: those that are level with the best."""
    best = ranked[0]
    equal = sum(each.figure == best.figure for each in ranked)
    if equal > 1 and chosen.figure == best.figure:
        share = "all" if equal == len(ranked) else f"{equal} of"
        return (
            f"Use {chosen.name}: {share} {len(ranked)} systems have {metric} {best.figure:.4f} on validation, so these data "
            "do not tell them apart, and none of them is much cheaper."
        )
    if chosen is not best:
        times = best.seconds / max(chosen.seconds, 1.0)
        cheaper = f"{times:.0f} times cheaper" if times >= 2 else "a little cheaper"
        return (
            f"Use {chosen.name}: level with {best.name} within chance ({metric} {chosen.figure:.4f} beside "
            f"{best.figure:.4f} on validation), {cheaper}."
        )
    if len(ranked) == 1:
        return f"Use {best.name}: it alone has finished ({metric} {best.figure:.4f} on validation)."
    others = [each for each in level if each is not best]
    rival = others[0] if others else ranked[1]
    how = "level within chance, and not much cheaper" if others else "which is less"
    how += ", though perhaps by chance" if not others and rival.below and rival.below[0] <= 0 else ""
    return (
        f"Use {best.name}: the best of {len(ranked)} ({metric} {best.figure:.4f} on validation); {rival.name} has "
        f"{rival.figure:.4f}, {how}."
    )
