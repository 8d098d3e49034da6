"""Reliability diagrams: predicted probabilities against observed frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphmill.evaluation.pictures.canvas import GREY, blank, labelled, png, style_of

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
