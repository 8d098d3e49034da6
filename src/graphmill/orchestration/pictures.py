"""The pictures that stand beside the figures: PCA by type, cosines within and between types, spectrum, loss curve.

Each is written as a PNG of full size into the run directory; the metadata shows a small copy. Drawing reads seeded
samples of the rows, so that it takes the same seconds for a thousand nodes and for a million.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAMPLE_ROWS = 4000
PAIRS = 50_000
DPI = 110
# Okabe and Ito's palette: told apart with any colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
SHOWN_TYPES = len(COLOURS)


def draw_health(
    vectors: NDArray[np.float32], types: NDArray[np.int64], names: Sequence[str], folder: Path, seed: int = 0
) -> dict[str, Path]:
    """Draw ``pca``, ``cosines`` and ``spectrum`` of an embedding (n × d, type codes n) into ``folder``.

    Rows that are not finite, or zero, are left out. Returns the path of each picture; none if fewer than three rows are
    left.
    """
    rows = np.random.default_rng(seed).permutation(len(vectors))[:SAMPLE_ROWS]
    sample, codes = np.asarray(vectors[rows], dtype=np.float64), types[rows]
    sound = np.isfinite(sample).all(axis=1) & (sample != 0).any(axis=1)
    sample, codes = sample[sound], codes[sound]
    if len(sample) < 3:
        return {}
    centred = sample - sample.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    share = singular**2 / max(float((singular**2).sum()), 1e-300)
    return {
        "pca": _picture(folder / "pca.png", lambda ax: _pca(ax, centred @ axes[:2].T, codes, names, share)),
        "cosines": _picture(folder / "cosines.png", lambda ax: _cosines(ax, sample, codes, seed)),
        "spectrum": _picture(folder / "spectrum.png", lambda ax: _spectrum(ax, share)),
    }


def draw_losses(epochs: Sequence[Mapping[str, Any]], path: Path) -> Path | None:
    """Draw the mean losses of each epoch, with the validation metric where there is one; None for no epoch."""
    if not epochs:
        return None
    return _picture(path, lambda ax: _losses(ax, epochs))


def _picture(path: Path, draw: Any) -> Path:
    # matplotlib is slow to import, and most steps draw nothing.
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    draw(figure.subplots())
    figure.savefig(path, dpi=DPI)
    return path


def _pca(
    ax: "Axes", points: NDArray[np.float64], codes: NDArray[np.int64], names: Sequence[str], share: NDArray[np.float64]
) -> None:
    counts = np.bincount(codes, minlength=len(names))
    for place, kind in enumerate(np.argsort(-counts, kind="stable")):
        if not counts[kind]:
            continue
        own = points[codes == kind]
        colour = COLOURS[place] if place < SHOWN_TYPES else "#BBBBBB"
        label = names[kind] if place < SHOWN_TYPES else None
        ax.scatter(own[:, 0], own[:, -1], s=5, alpha=0.6, linewidths=0, color=colour, label=label)
    ax.set_xlabel(f"first component ({share[0]:.0%} of the variance)")
    ax.set_ylabel(f"second component ({share[1] if len(share) > 1 else 0:.0%})")
    ax.set_title("Rows by their first two principal components")
    ax.legend(markerscale=3, fontsize="small", frameon=False)


def _cosines(ax: "Axes", sample: NDArray[np.float64], codes: NDArray[np.int64], seed: int) -> None:
    unit = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    left, right = np.random.default_rng(seed + 1).integers(0, len(unit), (2, PAIRS))
    left, right = left[left != right], right[left != right]
    cosine = np.einsum("ij,ij->i", unit[left], unit[right])
    same = codes[left] == codes[right]
    bins = np.linspace(-1, 1, 81).tolist()
    for mask, label, colour in ((same, "within a type", COLOURS[0]), (~same, "between types", COLOURS[1])):
        if mask.any():
            text = f"{label}, mean {cosine[mask].mean():.2f}"
            ax.hist(cosine[mask], bins=bins, density=True, alpha=0.6, color=colour, label=text)
    ax.set_xlabel("cosine of two random rows")
    ax.set_ylabel("density")
    ax.set_title("Cosine similarities")
    ax.legend(fontsize="small", frameon=False)


def _spectrum(ax: "Axes", share: NDArray[np.float64]) -> None:
    total = np.cumsum(share)
    needed = int(np.searchsorted(total, 0.9)) + 1
    number = np.arange(1, len(share) + 1)
    ax.plot(number, total, color=COLOURS[0], label="cumulative share of the variance")
    ax.axhline(0.9, color="#888888", linewidth=0.8)
    ax.axvline(needed, color=COLOURS[5], linewidth=1.2, label=f"{needed} components hold 90 %")
    ax.set_xlabel("principal components")
    ax.set_ylabel("share of the variance")
    ax.set_ylim(0, 1.02)
    ax.set_title("Spectrum")
    ax.legend(fontsize="small", frameon=False, loc="lower right")


def _losses(ax: "Axes", epochs: Sequence[Mapping[str, Any]]) -> None:
    number = [int(record["epoch"]) for record in epochs]
    marker = "o" if len(epochs) < 30 else None
    for place, name in enumerate(epochs[-1]["losses"]):
        values = [float(record["losses"].get(name, np.nan)) for record in epochs]
        ax.plot(number, values, color=COLOURS[place % SHOWN_TYPES], marker=marker, markersize=3, label=name)
    ax.set_xlabel("epoch")
    ax.set_ylabel("mean loss")
    ax.set_title("Loss")
    ax.legend(fontsize="small", frameon=False)
