"""Pictures that compare: groups of bars, drift, and predicted probabilities with observed frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphmill.evaluation.drift.figures import DriftFigures
from graphmill.evaluation.pictures.canvas import COLOURS, GREY, blank, labelled, png, style_of


def overlap_histogram(figures: DriftFigures) -> bytes:
    """Histogram of the fraction of each node's 10 nearest neighbours that stayed, one line per type, or of the ten best
    of each list, one line per relation."""
    figure, axes = blank()
    types, kept = figures.overlaps
    bins = np.linspace(-0.05, 1.05, 12)
    # ``types`` has only types with shared nodes, in the order of their numbers.
    for number, of_type in enumerate(np.unique(types)):
        values = kept[types == of_type]
        heights, _ = np.histogram(values, bins)
        axes.plot(
            (bins[:-1] + bins[1:]) / 2,
            heights / max(len(values), 1),
            color=COLOURS[number % len(COLOURS)],
            linestyle=("-", "--", ":")[number // len(COLOURS) % 3],
            label=f"{figures.types[number].name} {values.mean():.2f}",
        )
    what = "ten best" if figures.lists else "10 nearest neighbours"
    title = f"{figures.overall.overlap_10:.0%} of the {what} stayed"
    return png(labelled(figure, axes, title, f"share of the {what} that stayed", "part of the nodes"))


SHOWN_RELATIONS = 8
"""Those with most pairs."""


def reliability_diagram(bins: Mapping[str, Sequence[tuple[float, float, int]]]) -> bytes:
    """Name → bins of (mean probability, fraction that are links, number of pairs). A calibrated curve is on the diagonal."""
    figure, axes = blank(6.5, 5.0)
    most = sorted(bins, key=lambda name: -sum(number for *_, number in bins[name]))[:SHOWN_RELATIONS]
    top = max((value for name in most for *pair, _ in bins[name] for value in pair), default=1.0) or 1.0
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.8, label="calibrated")
    for number, name in enumerate(most):
        mean, part, _ = zip(*bins[name], strict=True)
        axes.plot(mean, part, label=name, markersize=4, linewidth=1.0, **style_of(number))
    title = "The best tails of each head, by curves that were fitted without that head"
    x, y = "predicted probability, mean of a bin", "share of its links that are in validation"
    return png(labelled(figure, axes, title, x, y, fontsize="x-small"))


def grouped_bars(names: Sequence[str], series: Mapping[str, Sequence[float]], *, axis: str, title: str) -> bytes:
    """A group of bars for each name, with one bar per series ("tails" → one value per name). ``axis``: label of the
    values."""
    figure, axes = blank(7.5, max(3.0, 1.4 + 0.16 * len(names) * (len(series) + 1)))
    thickness = 0.8 / max(len(series), 1)
    for number, (label, values) in enumerate(series.items()):
        at = [place + (number - (len(series) - 1) / 2) * thickness for place in range(len(names))]
        axes.barh(at, list(values), thickness * 0.95, color=COLOURS[number % len(COLOURS)], label=label)
    axes.set_yticks(range(len(names)), list(names), fontsize="small")
    axes.invert_yaxis()
    return png(labelled(figure, axes, title, axis, legend="right"))
