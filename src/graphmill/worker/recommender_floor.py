"""BPR-MF as a floor: trained on the same graph beside a recommender's run, its λ chosen on validation, reused afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.recipes.recommenders.recipe import RecommenderRecipe
from graphmill.worker.export import Restored, restore
from graphmill.worker.messages import Outlet
from graphmill.worker.run import train

NAME = "bpr_mf"
PENALTIES = (0.001, 0.01, 0.1)
"""λ of the norm of a step's vectors. At the learning rate of the recipe's default."""
LARGEST_WORK = 4_000_000
"""Training triples in all for each λ: what is done in seconds. On small data epochs end by patience before."""
MOST_EPOCHS, PATIENCE, EVERY = 200, 20, 5


def bpr_mf_figures(restored: Restored, split: str, *, outlets: Sequence[Outlet] = ()) -> dict[str, float]:
    """Metrics of the best BPR-MF on ``split``, by the names that the run's own figures have; {} for BPR-MF itself.

    One training for each of :data:`PENALTIES`, in a folder of its own beside the run directories, and reused as any run
    is. The best by the run's selection metric on validation is taken; where nobody is held out for validation, λ is the
    middle one, after all of its epochs.
    """
    recipe, settings = restored.recipe, restored.job.settings
    if not isinstance(recipe, RecommenderRecipe) or recipe.name == NAME:
        return {}
    chosen = len(recipe.view.valid) > 0
    epochs = max(min(LARGEST_WORK // max(len(recipe.view.train), 1), MOST_EPOCHS), 1)
    root = restored.run.path.parent / NAME
    found = []
    for penalty in PENALTIES if chosen else PENALTIES[1:2]:
        values = {
            "recipe": NAME,
            "data": settings.data,
            "preset": "none",
            "objective": {"regularisation": penalty},
            "training": {"epochs": epochs, "patience_epochs": PATIENCE, "seed": settings.training.seed},
            "acceleration": {"device": settings.acceleration.device},
            "evaluation": {
                "eval_every": EVERY if chosen else epochs,
                "floors": False,
                **{name: getattr(settings.evaluation, name) for name in ("metrics", "top_k", "selection_metric")},
            },
            "export": {"csv": False, "parquet": False},
        }
        found.append(train(values, "the BPR-MF floor", root=str(root / f"lambda_{penalty:g}"), outlets=outlets))
    best = max(found, key=lambda result: result["best_metric"] or 0.0)
    other = restore(best["run_dir"])
    figures = other.recipe.evaluate(other.model, split, final=True, poll=lambda: None)
    return {name: value for name, value in figures.items() if not name.startswith(("coverage", "popularity_bias"))}
