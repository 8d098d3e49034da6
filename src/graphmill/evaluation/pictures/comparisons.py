"""Pictures that compare trainings: loss curves of several runs, bars of several configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphmill.evaluation.pictures.canvas import COLOURS, GREY, blank, png, style_of


def loss_curves(runs: Mapping[str, Sequence[tuple[float, float]]]) -> bytes:
    """Loss over training time, one curve per run: name → (seconds, loss). Points that are not finite are left out."""
    figure, axes = blank()
    ends = []
    for number, (name, points) in enumerate(runs.items()):
        kept = [(x, y) for x, y in points if math.isfinite(y)]
        if kept:
            axes.plot(*zip(*kept, strict=True), label=name, markersize=3, linewidth=1.2, **style_of(number))
            ends.append(f"{name} {kept[-1][1]:.4g}")
    axes.set_xlabel("seconds trained")
    axes.set_ylabel("total loss")
    axes.set_title("Loss at the end: " + (", ".join(ends) or "none was finite"))
    axes.legend(fontsize="small", frameon=False)
    return png(figure)


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
    axes.set_xlabel(f"relative to {names[0]}" if names else "")
    axes.set_title(_title(names, figures))
    axes.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return png(figure)


def grouped_bars(
    names: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    axis: str,
    title: str,
) -> bytes:
    """A group of bars for each name, with one bar per series ("tails" → one value per name). ``axis``: label of the
    values."""
    figure, axes = blank(7.5, max(3.0, 1.4 + 0.16 * len(names) * (len(series) + 1)))
    thickness = 0.8 / max(len(series), 1)
    for number, (label, values) in enumerate(series.items()):
        at = [place + (number - (len(series) - 1) / 2) * thickness for place in range(len(names))]
        axes.barh(at, list(values), thickness * 0.95, color=COLOURS[number % len(COLOURS)], label=label)
    axes.set_yticks(range(len(names)), list(names), fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel(axis)
    axes.set_title(title)
    axes.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return png(figure)


def _title(names: Sequence[str], figures: Mapping[str, Sequence[float]]) -> str:
    name, values = next(iter(figures.items()), ("", ()))
    finite = [(value, place) for place, value in enumerate(values) if math.isfinite(value)]
    if not finite:
        return "No configuration could be measured"
    value, place = min(finite)
    return f"Least {name}: {names[place]} ({value:.3g})"
