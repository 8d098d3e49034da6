"""BPR-MF as a baseline: trained on the data of a recommender's run, its form and length chosen on held-out items, reused
afterwards."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
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
from graphmill.systems.recommenders.recipe import RecommenderRecipe
from graphmill.systems.recommenders.settings import RecommenderSettings

NAME = "bpr_mf"
FORMS: dict[str, dict[str, Any]] = {
    "lambda_0.001": {"regularisation": 0.001},
    "lambda_0.01": {"regularisation": 0.01},
    "lambda_0.1": {"regularisation": 0.1},
    "four_negatives": {"regularisation": 0.03, "negatives_per_positive": 4},
    "softmax": {"regularisation": 0.3, "loss": "sampled_softmax", "negatives_per_positive": 64},
}
"""Its objectives, at the learning rate of the recipe's default: published BPR at three λ, and two with more negatives."""
FIRST_EPOCHS, FIRST_STEPS, FINALISTS = 10, 400, 2
"""Successive halving: after so many epochs of every form, and so many steps, only the best so many go on. On last-fm, whose
epochs are nine steps, the softmax is last of all after 10 epochs and far ahead from the twentieth on."""
LARGEST_WORK = 25_000_000
"""Training pairs of a form in all: a bound by time that is the same on every machine, unlike seconds."""
LEAST_EPOCHS, MOST_EPOCHS = 10, 200
"""Bounds of a form's epochs, whatever :data:`LARGEST_WORK` makes of them."""
PATIENCE, EVERY = 20, 5
_WAIT_SECONDS = 0.2


def rival_bpr_mf(restored: Restored, *, outlets: Sequence[Outlet] = ()) -> dict[str, Any]:
    """The result of the best BPR-MF's training on the data of a recommender's run; {} for BPR-MF itself, and with
    ``evaluation.baselines`` that do not name it.

    The trainings of :func:`best_bpr_mf`, in folders of their own beside the run directories, and reused as any run is.
    """
    recipe, settings = restored.recipe, restored.job.settings
    if not isinstance(recipe, RecommenderRecipe) or recipe.name == NAME or NAME not in settings.evaluation.baselines:
        return {}
    return best_bpr_mf(settings, recipe.view, restored.run.path.parent / NAME, outlets=outlets)[1]


def bpr_mf_figures(rival: Mapping[str, Any], split: str) -> dict[str, float]:
    """Metrics of :func:`rival_bpr_mf` on ``split``, by the names that the run's own figures have."""
    if not rival:
        return {}
    other = restore(rival["run_dir"])
    figures = other.recipe.evaluate(other.model, split, final=True, poll=lambda: None)
    return {name: value for name, value in figures.items() if not name.startswith(("coverage", "popularity_bias"))}


def best_bpr_mf(
    settings: RecommenderSettings, view: Interactions, folder: Path, *, outlets: Sequence[Outlet] = ()
) -> tuple[str, dict[str, Any]]:
    """Choose one of :data:`FORMS` by ``settings``' data, seed and metrics; return it with its training's result.

    ``view``: the interactions of that data. ``folder``: where the trainings are, and are found again.

    The best by the selection metric on validation is taken, at its best epoch. Where nobody is held out for validation,
    form and number of epochs are those that are best on a tenth of the training items (:func:`take_out`, as of item-kNN
    and EASE), trained without it; the result is that form's training on all of them for that many epochs. Where not even
    a tenth can be taken out (no user has two items), it is the first form, for all of its epochs.
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
    # A length is no part of a run's identity, and a longer training that is already there must not be taken for this one.
    return form, trainings.train(form, settings.data, epochs, folder=f"{form}-{epochs}-epochs", every=epochs)


def _graph_of(left: KnownItems, held_out: KnownItems, num_items: int, folder: Path) -> TypedGraph:
    """A graph that trains on ``left`` and is asked for ``held_out``, in ``folder`` under a name of its own: models of
    several data sets may have their baselines there, and be ranked at the same time."""
    arrays = (left.indptr, left.items, held_out.indptr, held_out.items, np.array([num_items]))
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(a, np.int64).tobytes() for a in arrays)).hexdigest()
    path = folder / f"tenth_held_out_{digest[:12]}"
    splits = {"train": _rows(left), "valid": _rows(held_out)}
    while True:
        try:
            return TypedGraph.open(path)
        except InputError:  # it is not there yet
            pass
        try:
            return write_interactions(splits, num_items, path)
        except RunLockedError:  # another ranking is just writing it
            time.sleep(_WAIT_SECONDS)


def most_epochs(pairs: int) -> int:
    """Epochs that a form has at most, of ``pairs`` training pairs each; by patience it may end before."""
    return max(min(LARGEST_WORK // max(pairs, 1), MOST_EPOCHS), LEAST_EPOCHS)


def first_epochs(pairs: int, epochs: int) -> int:
    """Epochs of the first round, in which all forms take part, of ``pairs`` training pairs each; at most half of ``epochs``,
    the most that a form has."""
    steps = -(-pairs // RecommenderSettings.base_batch)
    wanted = max(FIRST_EPOCHS, -(-FIRST_STEPS // max(steps, 1)))
    wanted = -(-wanted // EVERY) * EVERY  # where there is an evaluation anyway
    return max(min(wanted, epochs // 2), 1)


class _Trainings:
    """BPR-MF's trainings with the seed, device, threads and metrics of ``settings``, in ``folder``."""

    def __init__(self, settings: RecommenderSettings, folder: Path, outlets: Sequence[Outlet]) -> None:
        self.settings, self.outlets = settings, outlets
        self.evaluation = {
            "eval_every": EVERY,
            "baselines": [],
            **{
                name: getattr(settings.evaluation, name)
                for name in ("metrics", "top_k", "selection_metric", "mask_validation")
            },
        }
        # How a run is evaluated, and for how long it may train, is no part of its identity: one that was chosen by another
        # metric, or with other bounds, must not be taken for this.
        bounds = [FIRST_EPOCHS, FIRST_STEPS, FINALISTS, LARGEST_WORK, LEAST_EPOCHS, MOST_EPOCHS, PATIENCE]
        text = json.dumps([self.evaluation, bounds], sort_keys=True)
        self.root = folder / hashlib.sha256(text.encode()).hexdigest()[:8]

    def choose(self, data: str, pairs: int) -> tuple[str, dict[str, Any]]:
        """The best form on the graph ``data`` of ``pairs`` training pairs and a validation split, and its training's result.

        Finalists continue the trainings of the first round. Where all has been done before, the first round finds the
        finalists' whole trainings, whose best is no worse than it was then: the same are chosen.
        """
        epochs = most_epochs(pairs)
        first = first_epochs(pairs, epochs)
        found = {form: self.train(form, data, first) for form in FORMS}
        finalists = sorted(found, key=lambda form: -_best(found[form]))[:FINALISTS]
        found = {form: self.train(form, data, epochs) for form in finalists}
        best = max(found, key=lambda form: _best(found[form]))
        return best, found[best]

    def train(self, form: str, data: str, epochs: int, *, folder: str = "", every: int = EVERY) -> dict[str, Any]:
        """The result of a form's training on ``data`` for ``epochs`` at most; ``every``: epochs between evaluations."""
        values = {
            "recipe": NAME,
            "data": data,
            "preset": "none",
            "objective": FORMS[form],
            "training": {
                "epochs": epochs,
                "patience_epochs": PATIENCE if every < epochs else 0,
                "seed": self.settings.training.seed,
            },
            "acceleration": {
                "device": self.settings.acceleration.device,
                "threads": self.settings.acceleration.threads,
                "checkpoint_every_epochs": every,
            },
            "evaluation": {**self.evaluation, "eval_every": every},
            "export": {"csv": False, "parquet": False},
        }
        root = str(self.root / (folder or form))
        return dict(train(values, "the BPR-MF baseline", root=root, outlets=self.outlets))


def _best(result: dict[str, Any]) -> float:
    return float(result["best_metric"] or 0.0)


def _rows(items: KnownItems) -> CsrPattern:
    return CsrPattern(items.indptr, items.items.astype(np.int32))
