"""Names the kind of drift, from what changed in the vectors or lists and in the graphs.

Vectors alone are misleading: another seed on the same data changes a half to two thirds of the neighbours, a change of
five per cent of the data changes no more, and a warm start hides the loss of half of the data. So the graphs are
compared, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphmill.evaluation.drift.figures import DriftFigures
from graphmill.evaluation.json_values import plain
from graphmill.graph.summary import GraphDifference
from graphmill.settings import Settings, setting

Status = Literal["pass", "warn", "fail"]
Name = Literal[
    "unchanged",
    "rotation_only",
    "moved_little",
    "moved",
    "data_lost",
    "nodes_vanished",
]
SAME = 0.999
"""With at least this mean cosine, vectors count as the same."""


class DriftThresholds(Settings):
    """The bounds above which an embedding has drifted."""

    changed_warn: float = setting(
        0.75,
        "Warn when at least this share of the nearest neighbours (of the ten best items or tails) changed; another "
        "seed alone changes a half to two thirds",
        gt=0,
        le=1,
    )
    changed_fail: float = setting(
        0.85, "Fail when at least this share of the nearest neighbours (of the ten best) changed", gt=0, le=1
    )
    lost_warn: float = setting(0.02, "Warn when this share of the graph's node pairs or nodes is gone", ge=0)
    lost_fail: float = setting(0.2, "Fail when this share of the graph's node pairs or nodes is gone", ge=0)


@dataclass(frozen=True)
class DriftVerdict:
    """One finding, with its message and what to do about it ("" for nothing)."""

    name: Name
    status: Status
    meaning: str
    remedy: str = ""


@dataclass(frozen=True)
class DriftReport:
    """``findings``, the most serious first."""

    figures: DriftFigures
    graph: GraphDifference | None
    findings: tuple[DriftVerdict, ...]

    @property
    def name(self) -> Name:
        """The name of the most serious finding."""
        return self.findings[0].name

    @property
    def status(self) -> Status:
        """The status of the most serious finding."""
        return self.findings[0].status

    @property
    def changed(self) -> float:
        """The share of the ten nearest neighbours, or of the ten best items or tails, that changed."""
        return 1 - self.figures.overall.overlap_10

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        graph = None
        if self.graph is not None:
            graph = asdict(self.graph) | {"lost_share": self.graph.lost_share, "added_share": self.graph.added_share}
        return plain(
            {
                "name": self.name,
                "status": self.status,
                "changed": self.changed,
                "findings": [asdict(finding) for finding in self.findings],
                "graph": graph,
                **self.figures.to_dict(),
            }
        )


def drift_report(
    figures: DriftFigures, graph: GraphDifference | None = None, thresholds: DriftThresholds | None = None
) -> DriftReport:
    """Combine the figures and the graph's change. ``graph`` None: not known, for plain files."""
    bounds = thresholds or DriftThresholds()
    result = [*_vanished(figures, bounds), *_data_lost(graph, bounds)]
    result.append(_moved(figures, bounds, explained=bool(result)))
    gravity = {"fail": 0, "warn": 1, "pass": 2}
    return DriftReport(figures, graph, tuple(sorted(result, key=lambda finding: gravity[finding.status])))


def _vanished(figures: DriftFigures, bounds: DriftThresholds) -> Iterator[DriftVerdict]:
    gone = figures.overall.vanished / max(figures.overall.vanished + figures.overall.shared, 1)
    if gone < bounds.lost_warn:
        return
    yield DriftVerdict(
        "nodes_vanished",
        "fail" if gone >= bounds.lost_fail else "warn",
        f"{figures.overall.vanished:,} nodes ({gone:.1%}) have no vector any more.",
        "The table shows which types; a source may be missing, or graph.include_node_types may exclude them.",
    )


def _data_lost(graph: GraphDifference | None, bounds: DriftThresholds) -> Iterator[DriftVerdict]:
    """The finding on lost node pairs, if there are enough. Vectors alone need not show the loss."""
    if graph is None or graph.lost_share < bounds.lost_warn:
        return
    largest = sorted(graph.relations.items(), key=lambda item: item[1][0] - item[1][1], reverse=True)
    where = ", ".join(f"{name} {a:,} → {b:,}" for name, (a, b) in largest[:3] if a > b)
    yield DriftVerdict(
        "data_lost",
        "fail" if graph.lost_share >= bounds.lost_fail else "warn",
        f"{graph.lost_share:.1%} of the graph's node pairs are gone" + (f" ({where})." if where else "."),
        "If the data should not have shrunk: check the sources and their rejected rows before this version goes "
        "live. A warm start (training.init_from) keeps what the lost data taught; train from scratch to see the "
        "effect.",
    )


def _moved(figures: DriftFigures, bounds: DriftThresholds, explained: bool) -> DriftVerdict:
    """``explained``: other findings say why."""
    overall, changed = figures.overall, 1 - figures.overall.overlap_10
    kept = f"{overall.overlap_10:.0%} of the 10 nearest neighbours stayed"
    if figures.lists:
        kept = f"{overall.overlap_10:.0%} of the ten best stayed, in {overall.shared:,} lists"
        if not changed:
            return DriftVerdict("unchanged", "pass", f"All {overall.shared:,} lists of the ten best are the same.")
    if overall.cosine_aligned >= SAME:
        if overall.cosine_raw >= SAME:
            return DriftVerdict("unchanged", "pass", "The vectors are the same.")
        return DriftVerdict("rotation_only", "pass", f"The vectors are the same but for a rotation ({kept}).")
    if changed < bounds.changed_warn:
        return DriftVerdict("moved_little", "pass", f"{kept}; another seed alone changes a half to two thirds.")
    compare = "Compare settings and data of the two runs, and how ids and rows are paired."
    remedy = "The findings above say why." if explained else compare
    # A finding whose cause has its own name is not reported as a second failure.
    status: Status = "fail" if changed >= bounds.changed_fail and not explained else "warn"
    return DriftVerdict("moved", status, f"{kept}: fewer than another seed alone keeps.", remedy)
