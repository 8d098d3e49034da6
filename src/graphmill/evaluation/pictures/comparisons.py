"""Pictures that compare trainings: loss curves of several runs, bars of several configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphmill.evaluation.pictures.canvas import COLOURS, GREY, blank, labelled, png, style_of


def loss_curves(runs: Mapping[str, Sequence[tuple[float, float]]]) -> bytes:
    """Loss over training time, one curve per run: name → (seconds, loss). Points that are not finite are left out."""
    figure, axes = blank()
    ends = []
    for number, (name, points) in enumerate(runs.items()):
        kept = [(x, y) for x, y in points if math.isfinite(y)]
        if kept:
            axes.plot(*zip(*kept, strict=True), label=name, markersize=3, linewidth=1.2, **style_of(number))
            ends.append(f"{name} {kept[-1][1]:.4g}")
    title = "Loss at the end: " + (", ".join(ends) or "none was finite")
    return png(labelled(figure, axes, title, "seconds trained", "total loss"))


def configuration_bars(names: Sequence[str], figures: Mapping[str, Sequence[float]]) -> bytes:
    """One row of bars for each figure ("seconds per epoch" → one value per configuration), relative to the first
    configuration.

    A value that is not finite (the configuration failed) is drawn as a grey cross.
    """
    figure, axes = blank(height=1.0 + 0.28 * len(names) * max(len(figures), 1))
    thickness = 0.8 / max(len(figures), 1)
    for number, (figure_name, values) in enumerate(figures.items()):
        base = values[0] if values and math.isfinite(values[0]) and values[0] else 1.0
        for place, value in enumerate(values):
            y = place + number * thickness
            if not math.isfinite(value):
                axes.plot([0.02], [y], marker="x", color=GREY)
                continue
            label = figure_name if place == 0 else None
            axes.barh(y, value / base, height=thickness * 0.9, color=COLOURS[number % len(COLOURS)], label=label)
            axes.text(value / base, y, f" {value:.3g}", va="center", fontsize="x-small")
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    axes.set_yticks([place + 0.4 - thickness / 2 for place in range(len(names))], list(names))
    axes.invert_yaxis()
    scale = f"relative to {names[0]}" if names else ""
    return png(labelled(figure, axes, _title(names, figures), scale, legend="right"))


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


def _title(names: Sequence[str], figures: Mapping[str, Sequence[float]]) -> str:
    name, values = next(iter(figures.items()), ("", ()))
    finite = [(value, place) for place, value in enumerate(values) if math.isfinite(value)]
    if not finite:
        return "No configuration could be measured"
    value, place = min(finite)
    return f"Least {name}: {names[place]} ({value:.3g})"
