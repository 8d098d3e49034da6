"""The settings of recommenders in closed form: popularity, item-kNN, EASE and iALS. Importable without torch."""

from typing import Literal

from graphmill.settings import Settings, setting
from graphmill.systems.recommenders.settings import ClosedFormRecommenderSettings


class PopularityModel(Settings):
    """Counts of interactions."""

    days: float = setting(
        0.0, "Count the interactions of so many days before the last training interaction; 0 = of all time", ge=0.0
    )


class PopularitySettings(ClosedFormRecommenderSettings):
    """One popularity run: the shape of ``settings.yaml``."""

    system: Literal["popularity"] = setting("popularity", "The system to train")
    model: PopularityModel = setting(PopularityModel(), "The model")


TRIES = {"popularity": tuple({"model": {"days": days}} for days in (1, 7, 30, 365))}
"""What is new, of the season, or neither; left out where interactions have no times."""


ALIKE = (0.001, 0.1, 0.3, 1.0, 3.0)
"""Amounts of similarities by features that are tried, relative to the mean of those by users. Never 0: an item without
interactions has no other score."""
NEAREST = 100
"""Items alike by features that count, of each item."""


class ItemKnnModel(Settings):
    """Similarities c_ij = n_ij / (√(n_i n_j) + shrink)."""

    neighbours: int = setting(
        0, "Nearest items of each item that count; 0 = the better of 100 and all on the validation split", ge=0
    )
    shrink: float = setting(
        0.0, "Draws the similarity of rare items to 0; 0 = the best of 0 to 1,000 on the validation split", ge=0.0
    )


class ItemKnnSettings(ClosedFormRecommenderSettings):
    """One item-kNN run: the shape of ``settings.yaml``."""

    system: Literal["item_knn"] = setting("item_knn", "The system to train")
    model: ItemKnnModel = setting(ItemKnnModel(), "The model")


class EaseModel(Settings):
    """Weights between all pairs of items."""

    regularisation: float = setting(
        0.0, "λ: how strongly weights are drawn to 0; 0 = the best of 10 to 3,000 on the validation split", ge=0.0
    )


class EaseSettings(ClosedFormRecommenderSettings):
    """One EASE run: the shape of ``settings.yaml``."""

    system: Literal["ease"] = setting("ease", "The system to train")
    model: EaseModel = setting(EaseModel(), "The model")


class IalsModel(Settings):
    """Σ (1 − ⟨u, i⟩)² over the items met + α Σ ⟨u, i⟩² over all items + λ ‖·‖²."""

    embedding_dim: int = setting(128, "Width of the vectors of users and items", ge=1)
    unobserved_weight: float = setting(0.1, "α: weight of all items beside those met", gt=0.0)
    regularisation: float = setting(
        0.0,
        "λ, divided by the mean of (interactions of a row + α · columns) over users and items; 0 = the best of 0.001 to "
        "0.03 on the validation split",
        ge=0.0,
    )
    iterations: int = setting(16, "Number of times that both sides are solved", ge=1)


class IalsSettings(ClosedFormRecommenderSettings):
    """One iALS run: the shape of ``settings.yaml``."""

    system: Literal["ials"] = setting("ials", "The system to train")
    model: IalsModel = setting(IalsModel(), "The model")
