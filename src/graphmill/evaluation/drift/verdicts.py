"""Names the kind of drift. Distances are multiples of the effect of another seed, and the graphs are compared, too.

Vectors alone are misleading: another seed on the same data changes half of the neighbours, a change of five per cent of
the data changes no more, and a warm start hides the loss of half of the data. So the report begins with the changes of
the graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from graphmill.evaluation.json_values import plain
from graphmill.graph.summary import GraphDifference
from graphmill.settings import Settings, setting

if TYPE_CHECKING:
    from graphmill.evaluation.drift.figures import DriftFigures
    from graphmill.evaluation.drift.lists import ListFigures

Status = Literal["pass", "warn", "fail"]
Name = Literal[
    "unchanged",
    "rotation_only",
    "seed_only",
    "moved",
    "ids_permuted",
    "type_collapsed",
    "data_lost",
    "data_lost_hidden",
    "nodes_vanished",
]
Figures = TypeVar("Figures", bound="DriftFigures | ListFigures", covariant=True)
SAME = 0.999
"""With at least this mean cosine, vectors count as the same."""
ASSUMED_OVERLAP = 0.5
"""Fraction of neighbours that another seed is assumed to keep, if it was not measured."""


class DriftThresholds(Settings):
    """The bounds above which an embedding has drifted."""

    moved_warn: float = setting(
        1.2, "Warn when the vectors lost this many times as many neighbours as another seed makes them lose", gt=0
    )
    moved_fail: float = setting(
        1.4, "Fail when the vectors lost this many times as many neighbours as another seed makes them lose", gt=0
    )
    lost_warn: float = setting(0.02, "Warn when this share of the graph's node pairs or nodes is gone", ge=0)
    lost_fail: float = setting(0.2, "Fail when this share of the graph's node pairs or nodes is gone", ge=0)
    hidden_max: float = setting(
        0.7,
        "When data was lost: if the vectors moved less than this many times as far as another seed moves them (by "
        "neighbours or by cosine), a warm start hides the loss",
        ge=0,
    )
    collapsed_max: float = setting(
        0.1, "A type has collapsed if its spread, divided by its spread before, is below this", gt=0, lt=1
    )
    seeds: int = setting(
        2,
        "Number of further seeds to train once, to measure the effect of a seed; 0: assume that a seed changes half "
        "of the neighbours",
        ge=0,
    )


@dataclass(frozen=True)
class SeedNoise:
    """The effect of another seed alone: means over ``pairs`` of runs with the same data and settings, or assumed values
    (``measured``).

    ``by_type``: overlap@10 of each type.
    """

    overlap_10: float = ASSUMED_OVERLAP
    overlap_50: float = ASSUMED_OVERLAP
    cka: float = math.nan
    cosine_aligned: float = math.nan
    by_type: dict[str, float] | None = None
    pairs: int = 0

    @property
    def measured(self) -> bool:
        """Whether it was measured by training runs."""
        return self.pairs > 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain(asdict(self))


@dataclass(frozen=True)
class DriftVerdict:
    """One finding, with its message and what to do about it ("" for nothing)."""

    name: Name
    status: Status
    meaning: str
    remedy: str = ""


@dataclass(frozen=True)
class DriftReport(Generic[Figures]):
    """``findings``, the most serious first. ``multiple``: neighbours (or places in lists) lost divided by those that
    another seed loses."""

    figures: Figures
    noise: SeedNoise
    graph: GraphDifference | None
    multiple: float
    findings: tuple[DriftVerdict, ...]

    @property
    def name(self) -> Name:
        """The name of the most serious finding."""
        return self.findings[0].name

    @property
    def status(self) -> Status:
        """The status of the most serious finding."""
        return self.findings[0].status

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        changed = None
        if self.graph is not None:
            changed = asdict(self.graph) | {"lost_share": self.graph.lost_share, "added_share": self.graph.added_share}
        return plain(
            {
                "name": self.name,
                "status": self.status,
                "multiple": self.multiple,
                "findings": [asdict(finding) for finding in self.findings],
                "seed_noise": self.noise.to_dict(),
                "graph": changed,
                **self.figures.to_dict(),
            }
        )


def drift_report(
    figures: DriftFigures,
    noise: SeedNoise | None = None,
    graph: GraphDifference | None = None,
    thresholds: DriftThresholds | None = None,
) -> DriftReport[DriftFigures]:
    """Combine the figures, the seed's effect and the graph's change. ``graph`` None: not known, for plain files."""
    bounds, unit = thresholds or DriftThresholds(), noise or SeedNoise()
    multiple = (1 - figures.overall.overlap_10) / max(1 - unit.overlap_10, 0.01)
    near = min((multiple, "neighbours changed"), (_turned(figures, unit), "vectors turned"))
    result = [*_ids(figures, unit), *_collapsed(figures, bounds), *_vanished(figures, bounds)]
    result += data_lost(graph, bounds, *near)
    explained = bool(result)
    if not any(finding.name == "ids_permuted" for finding in result):
        result.append(_moved(figures, multiple, unit, bounds, explained))
    return DriftReport(figures, unit, graph, multiple, by_gravity(result))


def by_gravity(findings: Sequence[DriftVerdict]) -> tuple[DriftVerdict, ...]:
    """The findings, the most serious first."""
    gravity = {"fail": 0, "warn": 1, "pass": 2}
    return tuple(sorted(findings, key=lambda finding: gravity[finding.status]))


def _ids(figures: DriftFigures, unit: SeedNoise) -> list[DriftVerdict]:
    """Detect shuffled ids: neighbours at chance level although the spectrum is the same.

    If another seed keeps no neighbours either (after very little training), this cannot be detected.
    """
    all_of_it = figures.overall
    # Compare within each type, because the types themselves may not have moved.
    cka = sum(each.cka * each.shared for each in figures.types) / all_of_it.shared
    by_chance = all_of_it.overlap_10 <= 1.3 * all_of_it.chance_10 and cka <= 1.5 * all_of_it.chance_cka
    telling = unit.overlap_10 > 1.5 * all_of_it.chance_10
    if not (by_chance and telling) or all_of_it.chance_10 > 0.3 or figures.spectrum_change > 0.1:
        return []
    return [
        DriftVerdict(
            "ids_permuted",
            "fail",
            f"Neighbours agree no better than by chance ({all_of_it.overlap_10:.3f}), but the vectors have the same "
            "spectrum: they belong to other ids than before.",
            "Compare how ids and rows are paired in both exports. Do not use these vectors anywhere that looks them "
            "up by id.",
        )
    ]


def _collapsed(figures: DriftFigures, bounds: DriftThresholds) -> list[DriftVerdict]:
    return [
        DriftVerdict(
            "type_collapsed",
            "fail",
            f"The vectors of type '{each.name}' spread {each.spread_ratio:.2g} times as much as before: they have "
            "collapsed.",
            "See the type's checks in the validation, and check which of its relations the graph still has.",
        )
        for each in figures.types
        if each.shared >= 10 and each.spread_ratio < bounds.collapsed_max
    ]


def _vanished(figures: DriftFigures, bounds: DriftThresholds) -> list[DriftVerdict]:
    gone = figures.overall.vanished / max(figures.overall.vanished + figures.overall.shared, 1)
    if gone < bounds.lost_warn:
        return []
    return [
        DriftVerdict(
            "nodes_vanished",
            "fail" if gone >= bounds.lost_fail else "warn",
            f"{figures.overall.vanished:,} nodes ({gone:.1%}) have no vector any more.",
            "The table shows which types; a source may be missing, or graph.include_node_types may exclude them.",
        )
    ]


def data_lost(
    graph: GraphDifference | None, bounds: DriftThresholds, near: float = math.inf, how: str = ""
) -> list[DriftVerdict]:
    """The finding on lost node pairs, if there are enough. ``near``: by how many times the effect of another seed ``how``
    (neighbours changed, or vectors turned); below a bound, the vectors hide the loss."""
    if graph is None or graph.lost_share < bounds.lost_warn:
        return []
    largest = sorted(graph.relations.items(), key=lambda item: item[1][0] - item[1][1], reverse=True)
    where = ", ".join(f"{name} {a:,} → {b:,}" for name, (a, b) in largest[:3] if a > b)
    said = f"{graph.lost_share:.1%} of the graph's node pairs are gone" + (f" ({where})" if where else "")
    remedy = (
        "If the data should not have shrunk: check the sources and their rejected rows before this version goes live."
    )
    status: Status = "fail" if graph.lost_share >= bounds.lost_fail else "warn"
    if near >= bounds.hidden_max:
        return [DriftVerdict("data_lost", status, f"{said}.", remedy)]
    return [
        DriftVerdict(
            "data_lost_hidden",
            status,
            f"{said}, and the vectors do not show it: {how} {near:.2g} times as much as by another "
            "seed, as after a warm start (training.init_from).",
            f"{remedy} Train from scratch to see the effect of the data.",
        )
    ]


def _turned(figures: DriftFigures, unit: SeedNoise) -> float:
    """Cosine lost after alignment, divided by the loss with another seed. It is near 0 after a warm start, even one
    that trained long enough to change neighbours. It is inf if the seed's effect was not measured.
    """
    if math.isnan(unit.cosine_aligned):
        return math.inf
    return (1 - figures.overall.cosine_aligned) / max(1 - unit.cosine_aligned, 0.01)


def _moved(
    figures: DriftFigures, multiple: float, unit: SeedNoise, bounds: DriftThresholds, explained: bool
) -> DriftVerdict:
    all_of_it = figures.overall
    kept = f"{all_of_it.overlap_10:.0%} of the 10 nearest neighbours stayed"
    if all_of_it.cosine_aligned >= SAME:
        if all_of_it.cosine_raw >= SAME:
            return DriftVerdict("unchanged", "pass", "The vectors are the same.")
        return DriftVerdict("rotation_only", "pass", f"The vectors are the same but for a rotation ({kept}).")
    how = "" if unit.measured else " (the effect of a seed is assumed, not measured)"
    said = f"{kept}: {multiple:.2g} times the change that another seed brings{how}."
    return moved(said, multiple, bounds, explained)


def moved(said: str, multiple: float, bounds: DriftThresholds, explained: bool) -> DriftVerdict:
    """The finding on a movement of so many times the effect of another seed. ``explained``: other findings say why."""
    if multiple < bounds.moved_warn:
        return DriftVerdict("seed_only", "pass", said)
    remedy = "The findings above say why." if explained else "Compare settings and data of the two runs."
    # A finding whose cause has its own name is not reported as a second failure.
    status: Status = "fail" if multiple >= bounds.moved_fail and not explained else "warn"
    return DriftVerdict("moved", status, said, remedy)
