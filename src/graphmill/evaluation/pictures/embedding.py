"""Pictures of an embedding and of rankings, as PNG bytes. The title states the main result.

Drawing uses seeded samples of the rows, so its time does not depend on the number of nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.health.geometry import Float64, components_for
from graphmill.evaluation.pictures.canvas import COLOURS, GREY, blank, labelled, png, style_of
from graphmill.evaluation.ranking.comparison import title

#: Number of points of the scatter plot, and of rows whose pairs make the histograms.
SCATTER_POINTS = 5000
HISTOGRAM_ROWS = 1500
#: Number of types with their own colour; the others are grey.
SHOWN_TYPES = 12
#: Number of relations in the bar chart: those with most queries.
SHOWN_RELATIONS = 30


def pca_scatter(X: NDArray[Any], types: NDArray[np.integer], type_names: Sequence[str], *, seed: int = 0) -> bytes:
    """Rows by their first two principal components, coloured by type: X (n × d), codes (n) into ``type_names``."""
    from sklearn.decomposition import PCA

    sample, codes = _sample(X, types, SCATTER_POINTS, seed)
    kept = min(2, sample.shape[1])
    pca, points = PCA(kept, svd_solver="full"), np.zeros((len(sample), 2))
    with np.errstate(invalid="ignore"):  # without variance there are no shares
        points[:, :kept] = pca.fit_transform(sample)
    shares = np.append(np.nan_to_num(pca.explained_variance_ratio_), [0.0, 0.0])
    figure, ax = blank()
    counts = np.bincount(codes, minlength=len(type_names))
    order = np.argsort(-counts, kind="stable")
    present = [int(code) for code in order if counts[code]]
    for place, code in enumerate(present[:SHOWN_TYPES]):
        of_type = points[codes == code]
        ax.scatter(
            of_type[:, 0], of_type[:, 1], s=6, alpha=0.5, linewidths=0, label=type_names[code], **style_of(place)
        )
    others = np.isin(codes, present[SHOWN_TYPES:])
    if others.any():
        label = f"{len(present) - SHOWN_TYPES} other types"
        ax.scatter(points[others, 0], points[others, 1], s=6, alpha=0.4, linewidths=0, color=GREY, label=label)
    title = f"PCA by node type: two components show {shares[0] + shares[1]:.0%} of the variance"
    names = (f"first component, {shares[0]:.1%} of the variance", f"second component, {shares[1]:.1%}")
    return png(labelled(figure, ax, title, *names, "right", markerscale=2.5))


def cosine_histograms(X: NDArray[Any], types: NDArray[np.integer], *, seed: int = 0) -> bytes:
    """Cosines of pairs of rows, within a type and between types, each as a density."""
    sample, codes = _sample(X, types, HISTOGRAM_ROWS, seed)
    lengths = np.linalg.norm(sample, axis=1)
    sample, codes = sample[lengths > 0], codes[lengths > 0]
    unit = sample / lengths[lengths > 0, None]
    upper = np.triu(np.ones((len(unit), len(unit)), dtype=bool), 1)
    cosine = unit @ unit.T
    same = codes[:, None] == codes[None, :]
    figure, ax = blank()
    said = []
    for place, (mask, label) in enumerate(((upper & same, "within types"), (upper & ~same, "between types"))):
        values = np.clip(cosine[mask], -1, 1)
        if not len(values):
            continue
        mean = float(values.mean())
        said.append(f"{mean:.2f} {label}")
        style = {"histtype": "stepfilled", "alpha": 0.55, "color": COLOURS[place], "label": label}
        ax.hist(values, bins=81, range=(-1, 1), density=True, **style)
        ax.axvline(mean, color=COLOURS[place], linestyle=("-", "--")[place], linewidth=1.5)
    title = "Mean cosine " + ", ".join(said) if said else "No pair of rows to compare"
    return png(labelled(figure, ax, title, "cosine of two rows", "density", "best" if said else ""))


def spectrum_curve(spectrum: Float64) -> bytes:
    """Cumulative variance over the principal components. ``spectrum``: eigenvalues, descending (``Figures.spectrum``)."""
    total = float(spectrum.sum())
    needed = components_for(spectrum, 0.9)
    figure, ax = blank()
    number = np.arange(1, len(spectrum) + 1)
    ax.plot(number, np.cumsum(spectrum) / (total if total > 0 else 1.0), color=COLOURS[0], linewidth=2)
    ax.plot(number, number / max(len(spectrum), 1), color=GREY, linestyle=":", label="if all components were equal")
    ax.axhline(0.9, color=GREY, linewidth=0.8)
    ax.axvline(needed, color=COLOURS[5], linestyle="--", label=f"90 % at component {needed}")
    ax.set_ylim(0, 1.02)
    title = f"{needed} of {len(spectrum)} components hold 90 % of the variance"
    return png(labelled(figure, ax, title, "principal components", "share of the variance", "lower right"))


def ranking_bars(relations: Sequence[Mapping[str, Any]]) -> bytes:
    """MRR per relation (of a comparison) of the model and of each baseline; those with most queries, at most 30."""
    rows = sorted(relations, key=lambda row: (-row["queries"], row["relation"]))[:SHOWN_RELATIONS]
    scorers = list(rows[0]["mrr"]) if rows else []
    baselines = [name for name in scorers if name != "model"]
    above = sum(all(row["mrr"]["model"] > row["mrr"][name] for name in baselines) for row in relations)
    heading = f"Above every baseline in {above} of {len(relations)} relations"
    return grouped_bars(
        [f"{_shortened(row['name'])} ({row['queries']})" for row in rows],
        {title(name): [row["mrr"][name] for row in rows] for name in scorers},
        axis="filtered MRR (queries in brackets)",
        title=heading,
    )


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


def _shortened(name: str, length: int = 44) -> str:
    return name if len(name) <= length else f"{name[: length // 2 - 1]}…{name[-length // 2 :]}"


def _sample(
    X: NDArray[Any], types: NDArray[np.integer], count: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """At most ``count`` finite rows (float64), drawn by ``seed``, and their type codes; two zero rows for none."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(X))[:count])
    sample = np.asarray(X[rows], dtype=np.float64)
    kept = np.isfinite(sample).all(axis=1)
    if kept.sum() < 2:
        return np.zeros((2, X.shape[1])), np.zeros(2, dtype=np.int64)
    return sample[kept], types[rows][kept].astype(np.int64)
