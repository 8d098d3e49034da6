"""BPR-MF as a floor: trained on the graph of a recommender's run, its form chosen on validation, reused afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmill.graph.interactions import Interactions
from graphmill.recipes.recommenders.recipe import RecommenderRecipe
from graphmill.recipes.recommenders.settings import RecommenderSettings
from graphmill.worker.export import Restored, restore
from graphmill.worker.messages import Outlet
from graphmill.worker.run import train

NAME = "bpr_mf"
FORMS: dict[str, dict[str, Any]] = {
    "lambda_0.001": {"regularisation": 0.001},
    "lambda_0.01": {"regularisation": 0.01},
    "lambda_0.1": {"regularisation": 0.1},
    "four_negatives": {"regularisation": 0.03, "negatives_per_positive": 4},
    "softmax": {"regularisation": 0.3, "loss": "sampled_softmax", "negatives_per_positive": 64},
}
"""Its objectives, at the learning rate of the recipe's default: published BPR at three λ, and two with more negatives."""
UNCHOSEN = "four_negatives"
"""The form where nobody is held out for validation."""
LARGEST_WORK = 4_000_000
"""Training pairs in all for each form. On small data epochs end by patience before."""
MOST_EPOCHS, PATIENCE, EVERY = 200, 20, 5


def bpr_mf_figures(restored: Restored, split: str, *, outlets: Sequence[Outlet] = ()) -> dict[str, float]:
    """Metrics of the best BPR-MF on ``split``, by the names that the run's own figures have; {} for BPR-MF itself, and
    with ``evaluation.floors: false``.

    One training for each of :data:`FORMS`, in a folder of its own beside the run directories, and reused as any run
    is. The best by the run's selection metric on validation is taken; where nobody is held out for validation, it is
    :data:`UNCHOSEN`, after all of its epochs.
    """
    recipe, settings = restored.recipe, restored.job.settings
    if not isinstance(recipe, RecommenderRecipe) or recipe.name == NAME or not settings.evaluation.floors:
        return {}
    best = best_bpr_mf(settings, recipe.view, restored.run.path.parent / NAME, outlets=outlets)[1]
    other = restore(best["run_dir"])
    figures = other.recipe.evaluate(other.model, split, final=True, poll=lambda: None)
    return {name: value for name, value in figures.items() if not name.startswith(("coverage", "popularity_bias"))}


def best_bpr_mf(
    settings: RecommenderSettings, view: Interactions, folder: Path, *, outlets: Sequence[Outlet] = ()
) -> tuple[str, dict[str, Any]]:
    """The chosen one of :data:`FORMS` and its training's result: on the data, seed and metrics of ``settings``.

    ``view``: the interactions of that data. ``folder``: where the trainings are, and are found again.
    """
    chosen = len(view.valid) > 0
    epochs = max(min(LARGEST_WORK // max(len(view.train), 1), MOST_EPOCHS), 1)
    evaluation = {
        "eval_every": EVERY if chosen else epochs,
        "floors": False,
        **{
            name: getattr(settings.evaluation, name)
            for name in ("metrics", "top_k", "selection_metric", "mask_validation")
        },
    }
    # How a run is evaluated is no part of its identity: one that was chosen by another metric must not be taken for this.
    digest = hashlib.sha256(json.dumps(evaluation, sort_keys=True).encode()).hexdigest()
    root = folder / digest[:8]
    found: dict[str, dict[str, Any]] = {}
    for form in FORMS if chosen else (UNCHOSEN,):
        values = {
            "recipe": NAME,
            "data": settings.data,
            "preset": "none",
            "objective": FORMS[form],
            "training": {"epochs": epochs, "patience_epochs": PATIENCE, "seed": settings.training.seed},
            "acceleration": {"device": settings.acceleration.device},
            "evaluation": evaluation,
            "export": {"csv": False, "parquet": False},
        }
        found[form] = dict(train(values, "the BPR-MF floor", root=str(root / form), outlets=outlets))
    best = max(found, key=lambda form: found[form]["best_metric"] or 0.0)
    return best, found[best]
