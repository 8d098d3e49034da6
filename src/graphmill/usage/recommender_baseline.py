"""Trains BPR-MF as a baseline on the data of a recommender's run. Held-out items choose its objective and number of
epochs. Trainings are reused."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.errors import InputError, RunLockedError
from graphmill.evaluation.baselines.recommendation import take_out
from graphmill.evaluation.ranking.recommendation import KnownItems
from graphmill.graph.interaction_graph import write_interactions
from graphmill.graph.interactions import CsrPattern, Interactions
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import Restored, restore
from graphmill.runs.messages import Outlet
from graphmill.runs.train import train
from graphmill.systems.recommenders.evaluate import known
from graphmill.systems.recommenders.settings import RecommenderSettings
from graphmill.systems.recommenders.system import RecommenderSystem

NAME = "bpr_mf"
FORMS: dict[str, dict[str, Any]] = {
    "lambda_0.001": {"regularisation": 0.001},
    "lambda_0.01": {"regularisation": 0.01},
    "lambda_0.1": {"regularisation": 0.1},
    "four_negatives": {"regularisation": 0.03, "negatives_per_positive": 4},
    "softmax": {"regularisation": 0.3, "loss": "sampled_softmax", "negatives_per_positive": 64},
}
"""Objectives to choose from, at the system's default learning rate: the published BPR at three λ, and two with more
negatives."""
FIRST_EPOCHS, FIRST_STEPS, FINALISTS = 10, 400, 2
"""Successive halving: every form trains for at least this many epochs and steps, then only the finalists continue. On
last-fm, whose epochs have nine steps, the softmax is the worst after 10 epochs and by far the best from epoch 20 on."""
LARGEST_WORK = 25_000_000
"""Largest number of training pairs of one form, over all epochs. It bounds the time in the same way on every machine."""
LEAST_EPOCHS, MOST_EPOCHS = 10, 200
"""Lower and upper bound of a form's epochs, whatever :data:`LARGEST_WORK` gives."""
PATIENCE, EVERY = 20, 5
_WAIT_SECONDS = 0.2


def rival_bpr_mf(restored: Restored, *, outlets: Sequence[Outlet] = ()) -> dict[str, Any]:
    """The result of the best BPR-MF training on the data of a recommender's run. It is {} for BPR-MF itself, and if
    ``evaluation.baselines`` does not name it.

    The trainings of :func:`best_bpr_mf` are in their own folders beside the run directories, and are reused like any
    run.
    """
    system, settings = restored.system, restored.job.settings
    if not isinstance(system, RecommenderSystem) or system.name == NAME or NAME not in settings.evaluation.baselines:
        return {}
    return best_bpr_mf(settings, system.view, restored.run.path.parent / NAME, outlets=outlets)[1]


def bpr_mf_figures(rival: Mapping[str, Any], split: str) -> dict[str, float]:
    """Metrics of :func:`rival_bpr_mf` on ``split``, under the names of the run's own metrics."""
    if not rival:
        return {}
    other = restore(rival["run_dir"])
    figures = other.system.evaluate(other.model, split, final=True, poll=lambda: None)
    return {name: value for name, value in figures.items() if not name.startswith(("coverage", "popularity_bias"))}


def best_bpr_mf(
    settings: RecommenderSettings, view: Interactions, folder: Path, *, outlets: Sequence[Outlet] = ()
) -> tuple[str, dict[str, Any]]:
    """Choose one of :data:`FORMS` by the data, seed and metrics of ``settings``; return it with its training's result.

    ``view``: the interactions of that data. ``folder``: the folder of the trainings, which are reused. The best form by
    the selection metric on validation is taken, at its best epoch. If there is no validation split, a tenth of the
    training items is held out (:func:`take_out`, as for item-kNN and EASE), and it chooses the form and the number of
    epochs. The result is then that form's training on all items for that number of epochs. If not even a tenth can be
    held out (no user has two items), it is the first form with all its epochs.
    """
    trainings = _Trainings(settings, folder, outlets)
    if len(view.valid):
        return trainings.choose(settings.data, len(view.train))
    left, held_out = take_out(known(view.train))
    form, epochs = next(iter(FORMS)), most_epochs(len(view.train))
    if len(held_out.items):
        graph = _graph_of(left, held_out, view.num_items, folder)
        form, found = trainings.choose(str(graph.path), len(left.items))
        epochs = found["best_epoch"] or found["epochs_done"]
    # The number of epochs is not part of a run's identity, and an existing longer training must not be used as this
    # one.
    return form, trainings.train(form, settings.data, epochs, folder=f"{form}-{epochs}-epochs", every=epochs)


def _graph_of(left: KnownItems, held_out: KnownItems, num_items: int, folder: Path) -> TypedGraph:
    """A graph with ``left`` for training and ``held_out`` for validation, in ``folder``. Its name is unique, because
    models of several data sets may have baselines there, and may be ranked at the same time."""
    arrays = (left.indptr, left.items, held_out.indptr, held_out.items, np.array([num_items]))
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(a, np.int64).tobytes() for a in arrays)).hexdigest()
    path = folder / f"tenth_held_out_{digest[:12]}"
    splits = {"train": _rows(left), "valid": _rows(held_out)}
    while True:
        with suppress(InputError):  # it does not exist yet
            return TypedGraph.open(path)
        with suppress(RunLockedError):  # another ranking is writing it
            return write_interactions(splits, num_items, path)
        time.sleep(_WAIT_SECONDS)


def most_epochs(pairs: int) -> int:
    """Largest number of epochs of a form, for ``pairs`` training pairs per epoch. Early stopping may end it before."""
    return max(min(LARGEST_WORK // max(pairs, 1), MOST_EPOCHS), LEAST_EPOCHS)


def first_epochs(pairs: int, epochs: int) -> int:
    """Number of epochs of the first round, which trains all forms, for ``pairs`` training pairs per epoch. It is at
    most half of ``epochs``, the largest number of epochs of a form."""
    steps = -(-pairs // RecommenderSettings.base_batch)
    wanted = max(FIRST_EPOCHS, -(-FIRST_STEPS // max(steps, 1)))
    wanted = -(-wanted // EVERY) * EVERY  # at an epoch with an evaluation
    return max(min(wanted, epochs // 2), 1)


class _Trainings:
    """Trains BPR-MF in ``folder``, with the seed, device and metrics of ``settings``."""

    def __init__(self, settings: RecommenderSettings, folder: Path, outlets: Sequence[Outlet]) -> None:
        self.settings, self.outlets = settings, outlets
        same = settings.evaluation.model_dump(include={"metrics", "top_k", "selection_metric"})
        self.evaluation = {"eval_every": EVERY, "baselines": [], **same}
        # Evaluation and number of epochs are not part of a run's identity. So the folder's name contains them: a
        # training that was chosen by another metric or with other bounds must not be reused.
        bounds = [FIRST_EPOCHS, FIRST_STEPS, FINALISTS, LARGEST_WORK, LEAST_EPOCHS, MOST_EPOCHS, PATIENCE]
        text = json.dumps([self.evaluation, bounds], sort_keys=True)
        self.root = folder / hashlib.sha256(text.encode()).hexdigest()[:8]

    def choose(self, data: str, pairs: int) -> tuple[str, dict[str, Any]]:
        """The best form on the graph ``data``, with ``pairs`` training pairs and a validation split, and its training's
        result.

        Finalists continue their trainings of the first round. In a repeated call, the first round finds the finalists'
        complete trainings. Their best metric is no worse than after the first round, so the same finalists are chosen.
        """
        epochs = most_epochs(pairs)
        first = first_epochs(pairs, epochs)
        found = {form: self.train(form, data, first) for form in FORMS}
        finalists = sorted(found, key=lambda form: -_best(found[form]))[:FINALISTS]
        found = {form: self.train(form, data, epochs) for form in finalists}
        best = max(found, key=lambda form: _best(found[form]))
        return best, found[best]

    def train(self, form: str, data: str, epochs: int, *, folder: str = "", every: int = EVERY) -> dict[str, Any]:
        """The result of a form's training on ``data`` for at most ``epochs``. ``every``: number of epochs between
        evaluations."""
        own, seed = self.settings.acceleration, self.settings.training.seed
        values = {
            "system": NAME,
            "data": data,
            "preset": "none",
            "objective": FORMS[form],
            "training": {"epochs": epochs, "patience_epochs": PATIENCE if every < epochs else 0, "seed": seed},
            "acceleration": {"device": own.device, "checkpoint_every_epochs": every},
            "evaluation": {**self.evaluation, "eval_every": every},
            "export": {"csv": False},
        }
        root = str(self.root / (folder or form))
        return dict(train(values, "the BPR-MF baseline", root=root, outlets=self.outlets))


def _best(result: dict[str, Any]) -> float:
    return float(result["best_metric"] or 0.0)


def _rows(items: KnownItems) -> CsrPattern:
    return CsrPattern(items.indptr, items.items.astype(np.int32))
