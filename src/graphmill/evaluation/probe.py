"""Linear probes: how well a linear model predicts given labels of nodes from their vectors (Alain & Bengio 2017).

The model is a ridge regression on standardised columns, of one-hot classes or of the number, with its penalty chosen on
the training folds. Every node is predicted by the model of the folds that it is not in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.ranking.paired_difference import LEVEL, paired_bootstrap
from graphmill.sampling.keyed import generator, sampled
from graphmill.settings import Settings, setting

Float32 = NDArray[np.float32]
Kind = Literal["class", "classes", "number"]
FOLDS = 5
LEAST = 5
"""Nodes of a class; rarer classes are left out."""
MOST_NODES, MOST_CLASSES = 20_000, 300
WIDEST = 512
"""Columns beyond which a space is reduced to its first principal components."""
FEW_VALUES = 20
"""Distinct numbers up to which a column of numbers is taken for classes."""
VECTORS, CHANCE = "vectors", "chance"
METRICS: Mapping[Kind, str] = {"class": "accuracy", "classes": "average precision", "number": "R²"}
_PENALTIES = np.logspace(-1, 5, 7)


class LabelSettings(Settings):
    """Labels of nodes that the vectors are probed for. Leave edges that say the label out of the graph."""

    file: str = setting(
        "",
        "table with an id and a label on each row (CSV, Parquet, JSON lines), or the name of an attribute of the graph (no "
        "text); empty: none",
    )
    node_type: str = setting("", "node type that the ids belong to; empty: the only type that has them")
    column: str = setting("", "column with the label; empty: the only column besides the id")
    id: str = setting("", "column with the id; empty: id or node_id, else the first column")
    aliases: str = setting("", "table with the columns old_id and id: ids of the file to replace; empty: none")
    repair_ids: list[str] = setting([], "repairs of the file's ids, as those of the dataset")
    kind: Literal["auto", "class", "classes", "number"] = setting(
        "auto",
        "class: one per node; classes: several (in several rows, or in one cell between |); number; auto: by the values, "
        f"where numbers with at most {FEW_VALUES} different values are classes",
    )


@dataclass(frozen=True)
class Labels:
    """``values`` float32 [n, k]: 1 where node i is of class j, or the number in the only column (``classes`` is empty)."""

    kind: Kind
    classes: tuple[str, ...]
    values: Float32


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval (:data:`~graphmill.evaluation.ranking.paired_difference.LEVEL`) over other nodes."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Probe:
    """The result for one column of labels.

    ``metric``: accuracy; mean over nodes of the average precision of their classes; or the share R² of the variance.
    ``scores``: by space (vectors, degree, …; chance: every node is predicted by the mean). ``over``: vectors minus each
    other space.
    ``left_out``: nodes that have only classes which are too rare; ``not_drawn``: nodes beyond :data:`MOST_NODES`.
    """

    kind: Kind
    metric: str
    nodes: int
    classes: int
    left_out: int
    not_drawn: int
    scores: dict[str, Estimate]
    over: dict[str, Estimate]

    @property
    def passed(self) -> bool:
        """Whether the vectors beat chance, and neither degree nor spectral vectors beat them, outside the interval."""
        simple = [self.over[name].high >= 0 for name in ("degree", "spectral") if name in self.over]
        return self.over[CHANCE].low > 0 and all(simple)

    @property
    def sentence(self) -> str:
        """The figures as one sentence."""
        what = "a number" if self.kind == "number" else f"{self.classes} classes"
        others = [name for name in self.over if name != CHANCE]
        best = max(others, key=lambda name: self.scores[name].value, default=CHANCE)
        gap, vectors = self.over[best], self.scores[VECTORS]
        return (
            f"A linear probe of the vectors for {what} of {self.nodes:,} nodes has {self.metric} {vectors.value:.3f} "
            f"({vectors.low:.3f} to {vectors.high:.3f}); {best} has {self.scores[best].value:.3f}, the difference is "
            f"{gap.value:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "level": LEVEL, "passed": self.passed, "sentence": self.sentence}


def labels_of(texts: Sequence[Sequence[str]], kind: str = "auto") -> Labels:
    """The labels of n nodes from the texts of each. Raises :class:`InputError` for texts that are not of that kind."""
    if kind in ("auto", "number"):
        numbers = [_number(each) for each in texts]
        if kind == "number" and None in numbers:
            wrong = texts[numbers.index(None)]
            raise InputError(f"label {' | '.join(wrong)!r} is not one number; say kind: class or classes")
        if None not in numbers and (kind == "number" or len(set(numbers)) > FEW_VALUES):
            return Labels("number", (), np.array(numbers, np.float32).reshape(-1, 1))
    several = next((each for each in texts if len(each) > 1), None)
    if several and kind == "class":
        raise InputError(f"a node has {len(several)} classes ({', '.join(several[:3])}); say kind: classes")
    counts = Counter(text for each in texts for text in each)
    classes = tuple(sorted(name for name, n in counts.most_common(MOST_CLASSES) if n >= LEAST))
    place = {name: number for number, name in enumerate(classes)}
    values = np.zeros((len(texts), len(classes)), np.float32)
    for row, each in enumerate(texts):
        values[row, [place[text] for text in each if text in place]] = 1
    return Labels("classes" if several or kind == "classes" else "class", classes, values)


def probe(labels: Labels, spaces: Mapping[str, Float32], seed: int = 0) -> Probe:
    """Probe spaces, float32 [n, d] each by name, for the labels of the same n nodes; one is called ``vectors``.

    Raises :class:`InputError` if there are too few nodes or classes.
    """
    known = np.flatnonzero(labels.values.any(axis=1)) if labels.classes else np.arange(len(labels.values))
    rows = sampled(known, MOST_NODES, "probe", seed)
    classes = len(labels.classes)
    if labels.kind != "number" and classes < 2:
        raise InputError(f"labels: {classes} classes have {LEAST} nodes or more; a probe needs two such classes")
    if len(rows) < LEAST * FOLDS or (not classes and np.ptp(labels.values) == 0):
        raise InputError(f"labels: {len(rows)} nodes with labels that differ; a probe needs {LEAST * FOLDS}")
    wanted = labels.values[rows].astype(np.float64)
    fold = _folds(wanted, labels.kind, seed)
    predicted = {CHANCE: np.broadcast_to(wanted.mean(axis=0), wanted.shape)}
    predicted |= {name: _predicted(np.asarray(space, np.float32)[rows], wanted, fold) for name, space in spaces.items()}
    gains = {name: _gains(labels.kind, result, wanted) for name, result in predicted.items()}
    nothing = np.zeros(len(rows))
    return Probe(
        labels.kind, METRICS[labels.kind], len(rows), classes, len(labels.values) - len(known), len(known) - len(rows),
        {name: _estimate(gain, nothing, seed) for name, gain in gains.items()},
        {name: _estimate(gains[VECTORS], gain, seed) for name, gain in gains.items() if name != VECTORS},
    )  # fmt: skip


def _number(texts: Sequence[str]) -> float | None:
    try:
        value = float(texts[0]) if len(texts) == 1 else np.nan
    except ValueError:
        return None
    return value if np.isfinite(np.float32(value)) else None


def _folds(wanted: NDArray[np.float64], kind: Kind, seed: int) -> NDArray[np.int64]:
    """The fold of each node; the nodes of each (first) class are spread over all folds."""
    rng = generator("probe folds", seed)
    order = rng.permutation(len(wanted))
    if kind != "number":
        order = order[np.argsort(wanted[order].argmax(axis=1), kind="stable")]
    fold = np.empty(len(wanted), np.int64)
    fold[order] = np.arange(len(wanted)) % FOLDS
    return fold


def _predicted(space: Float32, wanted: NDArray[np.float64], fold: NDArray[np.int64]) -> NDArray[np.float64]:
    """Predictions [n, k] of each node by the model of the other folds."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    result = np.empty_like(wanted)
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        reduced = [PCA(min(WIDEST, int(train.sum()) - 1), random_state=0)] if space.shape[1] > WIDEST else []
        model = make_pipeline(StandardScaler(), *reduced, RidgeCV(_PENALTIES))
        model.fit(space[train].astype(np.float64), wanted[train])
        result[test] = model.predict(space[test].astype(np.float64)).reshape(-1, wanted.shape[1])
    return result


def _gains(kind: Kind, result: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The metric of each node; its mean over nodes is that of all."""
    if kind == "number":
        errors, spread = (result - wanted)[:, 0] ** 2, (wanted - wanted.mean())[:, 0] ** 2
        return (spread - errors) / spread.mean()
    if kind == "class":
        return (result.argmax(axis=1) == wanted.argmax(axis=1)).astype(np.float64)
    true = np.take_along_axis(wanted, np.argsort(-result, axis=1, kind="stable"), axis=1)
    precision = np.cumsum(true, axis=1) / np.arange(1, true.shape[1] + 1)
    gain: NDArray[np.float64] = (precision * true).sum(axis=1) / true.sum(axis=1)
    return gain


def _estimate(first: NDArray[np.float64], second: NDArray[np.float64], seed: int) -> Estimate:
    result = paired_bootstrap(first, second, seed=seed)
    return Estimate(result.difference, result.low, result.high)
