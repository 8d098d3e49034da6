"""Trains matrix factorisation by its defaults as a baseline on the data of a recommender's run. Trainings are reused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.runs.export import Restored, restore
from graphmill.runs.messages import Outlet
from graphmill.runs.train import train
from graphmill.systems.recommenders.evaluate import RecommenderEvaluator
from graphmill.systems.registry import settings_model

NAME = "mf"
LARGEST_WORK = 25_000_000
"""Largest number of training pairs, over all epochs. It bounds the time in the same way on every machine."""
LEAST_EPOCHS = 10
"""Lower bound of the epochs, whatever :data:`LARGEST_WORK` gives."""
EVERY = 5


def rival_mf(restored: Restored, *, outlets: Sequence[Outlet] = ()) -> dict[str, Any]:
    """The result of a training of ``mf`` on the data of a recommender's run. It is {} for ``mf`` itself, for systems of
    sequences, and if ``evaluation.baselines`` does not name it.

    The training has the run's seed, device and metrics; validation chooses its epoch. It is in its own folder beside the
    run directories, and is reused like any run.
    """
    system, settings = restored.system, restored.job.settings
    evaluator = system.evaluator
    if (
        not isinstance(evaluator, RecommenderEvaluator)
        or system.name == NAME
        or NAME not in settings.evaluation.baselines
    ):
        return {}
    return train_mf(settings, len(evaluator.view.train), restored.run.path.parent / NAME, outlets=outlets)


def train_mf(settings: Any, pairs: int, folder: Path, *, outlets: Sequence[Outlet] = ()) -> dict[str, Any]:
    """The result of the training for the ``settings`` of a recommender. ``pairs``: training pairs per epoch of its data;
    ``folder``: the folder of the trainings."""
    same = settings.evaluation.model_dump(include={"metrics", "top_k", "selection_metric"})
    evaluation = {"eval_every": EVERY, "baselines": [], **same}
    most = settings_model(NAME)(system=NAME).training.epochs
    epochs = max(min(LARGEST_WORK // max(pairs, 1), most), LEAST_EPOCHS)
    # Evaluation and number of epochs are not part of a run's identity. So the folder's name contains them: a training
    # that was chosen by another metric or with another bound must not be reused.
    name = hashlib.sha256(json.dumps([evaluation, epochs], sort_keys=True).encode()).hexdigest()[:8]
    values = {
        "system": NAME,
        "data": settings.data,
        "preset": "none",
        "training": {"epochs": epochs, "seed": settings.training.seed},
        "acceleration": {"device": settings.acceleration.device, "checkpoint_every_epochs": EVERY},
        "evaluation": evaluation,
        "export": {"csv": False},
    }
    return dict(train(values, "the baseline mf", root=str(folder / name), outlets=outlets))


def mf_figures(
    rival: Mapping[str, Any], split: str, metric: str
) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
    """Of :func:`rival_mf` on ``split``: all metrics, and ``metric`` of each user, by the names that a ranking gives them."""
    if not rival:
        return {}, {}
    other = restore(rival["run_dir"])
    figures = other.system.evaluate(other.model, split, final=True, poll=lambda: None)
    named = {f"{NAME}_{n}": v for n, v in figures.items() if not n.startswith(("coverage", "popularity_bias"))}
    return named, {NAME: other.system.evaluator.by_query(split, metric)["model"]}
