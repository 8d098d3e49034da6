"""The curves of a training: losses by epoch, whether they are finite and fall, and pictures of losses and metrics (PNG)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.evaluation.pictures.canvas import GREY, blank, labelled, png, style_of

FEWEST_DRAWN = 3
"""With fewer epochs, a line of figures says more than a curve."""


def total_loss(losses: Mapping[str, Any]) -> float:
    """The total loss of an epoch; for a system with several phases, the sum of their totals ("cf/total" and "kg/total")."""
    if "total" in losses:
        return float(losses["total"])
    return sum(float(value) for name, value in losses.items() if name.endswith("/total"))


def weighted_losses(record: Mapping[str, Any]) -> dict[str, float]:
    """The ``losses`` of an epoch's record as parts that add up: ``total``, and each term times its weight in it."""
    losses, weights = record["losses"], record.get("coefficients") or {}
    terms = {name: weights.get(name, 1.0) * float(value) for name, value in losses.items() if not is_total(name)}
    return {"total": total_loss(losses)} | terms


def is_total(name: str) -> bool:
    """Whether a loss is the total of a training or of a phase."""
    return name.rpartition("/")[2] == "total"


@dataclass(frozen=True)
class Curve:
    """The total loss of each epoch, in order (floats; may be nan or inf)."""

    losses: Sequence[float]

    @property
    def first_nonfinite(self) -> int:
        """1-based epoch of the first loss that is not finite; 0 if all are."""
        return next((epoch for epoch, loss in enumerate(self.losses, 1) if not math.isfinite(loss)), 0)

    @property
    def drop(self) -> float:
        """Mean of the first quarter of the epochs minus that of the last; nan for fewer than two finite epochs."""
        if len(self.losses) < 2 or self.first_nonfinite:
            return math.nan
        quarter = max(1, len(self.losses) // 4)
        return float(np.mean(self.losses[:quarter]) - np.mean(self.losses[-quarter:]))


def loss_curve(records: Sequence[Mapping[str, Any]], *, x: str = "epoch") -> bytes:
    """The total loss over ``x`` and its weighted terms, which add up to it; in a second panel the terms whose weight is
    not 1, such as norms, before weighting.

    A record has the number ``x``, and the mappings "losses" and "coefficients" of names to values, as metrics.jsonl.
    Values that are not finite (also the words "nan", "inf") leave a gap and are counted in the title.
    """
    weighted: dict[str, list[tuple[float, float]]] = {}
    raw: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        weights = record.get("coefficients") or {}
        norms = {n: v for n, v in record["losses"].items() if not is_total(n) and weights.get(n, 1.0) != 1.0}
        for rows, values in ((weighted, weighted_losses(record)), (raw, norms)):
            for name, value in values.items():
                finite = float(value) if math.isfinite(float(value)) else math.nan
                rows.setdefault(name, []).append((record[x], finite))
    if len(weighted) == 2:  # the only term is the total
        weighted.pop(next(name for name in weighted if name != "total"))
    figure, ax = blank(columns=1 + bool(raw))
    panels = list(ax) if raw else [ax]
    places = {name: place for place, name in enumerate(weighted)}
    for panel, rows in zip(panels, (weighted, raw), strict=False):
        for name, each in rows.items():
            _curve(panel, places.get(name, len(places)), name.replace("/", " "), each)
    if raw:
        labelled(figure, panels[1], "Before weighting", x)
    title = _loss_title(weighted.get("total", []), weighted, x)
    labelled(figure, panels[0], "Total and weighted terms" if raw else title, x, "loss", "best" if weighted else "")
    if raw:
        figure.suptitle(title)
    return png(figure)


def _curve(ax: Any, place: int, name: str, rows: Sequence[tuple[float, float]]) -> None:
    """The (x, y) ``rows``, with markers if they are few."""
    style = style_of(place) | ({} if len(rows) < 30 else {"marker": ""})
    ax.plot(*zip(*rows, strict=True), label=name, markersize=3, linewidth=1.5, **style)


def metric_curve(records: Sequence[Mapping[str, Any]], *, selection: str = "") -> bytes:
    """Metrics of the split that chooses the epoch, from the records' mapping ``valid``. Records without it are skipped.

    ``split`` of a record names the split if it is not validation. Only the first six metrics with values between 0 and
    1 are drawn. ``selection``: the metric that chooses the best epoch; its largest value is marked.
    """
    measured = [record for record in records if record.get("valid")]
    names = list(dict.fromkeys(name for record in measured for name in record["valid"]))
    drawn = [n for n in names if all(0 <= float(r["valid"].get(n, 0.0)) <= 1 for r in measured)]
    drawn = sorted(drawn, key=lambda name: name != selection)[:6]
    figure, ax = blank()
    for place, name in enumerate(drawn):
        rows = [(r["epoch"], float(r["valid"][name])) for r in measured if name in r["valid"]]
        _curve(ax, place, name, rows)
    title = "No metric was measured"
    if drawn:
        chosen = selection if selection in drawn else drawn[0]
        best = max((r for r in measured if chosen in r["valid"]), key=lambda r: float(r["valid"][chosen]))
        ax.axvline(best["epoch"], color=GREY, linestyle="--", linewidth=0.8)
        split = "validation" if best.get("split", "valid") == "valid" else f"{best['split']}: optimistic"
        title = f"Best {chosen} {float(best['valid'][chosen]):.3g} on {split}, epoch {best['epoch']}"
    ax.set_ylim(bottom=0)
    return png(labelled(figure, ax, title, "epoch", legend="right" if drawn else ""))


def _loss_title(total: Sequence[tuple[float, float]], rows: Mapping[str, Sequence[tuple[float, float]]], x: str) -> str:
    if not total:
        return "No loss was recorded"
    finite = [row for row in total if math.isfinite(row[1])]
    gaps = sum(math.isnan(value) for each in rows.values() for _, value in each)
    broken = f"; {gaps} values are not finite" if gaps else ""
    if not finite:
        return "The loss was never finite"
    (first, before), (last, after) = finite[0], finite[-1]
    verb = "fell" if after < before else "rose" if after > before else "stayed"
    return f"Loss {verb} from {before:.4g} at {x} {first} to {after:.4g} at {x} {last}{broken}"
