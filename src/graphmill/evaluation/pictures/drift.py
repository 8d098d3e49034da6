"""Pictures of drift: the neighbours that each type kept, and the nodes that moved most."""

import numpy as np

from graphmill.evaluation.drift.figures import DriftFigures
from graphmill.evaluation.drift.lists import ListFigures
from graphmill.evaluation.pictures.canvas import COLOURS, GREY, blank, labelled, png


def overlap_histogram(figures: DriftFigures | ListFigures, usual: float) -> bytes:
    """Histogram of the fraction of each node's 10 nearest neighbours that stayed, one line per type, or of the ten best
    of each list, one line per relation. ``usual``: the fraction with another seed."""
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
    axes.axvline(usual, color=GREY, linewidth=0.8, label=f"another seed {usual:.2f}")
    what = "10 nearest neighbours" if isinstance(figures, DriftFigures) else "ten best"
    title = f"{figures.overall.overlap_10:.0%} of the {what} stayed"
    return png(labelled(figure, axes, title, f"share of the {what} that stayed", "part of the nodes"))


def moved_arrows(figures: DriftFigures) -> bytes:
    """The most moved nodes in the earlier vectors' first two principal components, aligned; all others in grey."""
    figure, axes = blank(7.0, 5.5)
    found = figures.projection
    axes.scatter(found.background[:, 0], found.background[:, 1], s=3, color=GREY, alpha=0.35, linewidths=0)
    for name, start, end in zip(found.names, found.before, found.after, strict=True):
        axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": COLOURS[5], "linewidth": 0.9})
        axes.text(end[0], end[1], name[:24], fontsize="x-small")
    # annotate() does not widen the axes.
    axes.update_datalim(np.concatenate((found.before, found.after)))
    axes.autoscale_view()
    title = f"The {len(found.names)} nodes that moved most"
    return png(labelled(figure, axes, title, "first principal component", "second principal component", ""))
