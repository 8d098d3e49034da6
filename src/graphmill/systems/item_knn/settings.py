"""The settings of item-kNN. Importable without torch."""

from typing import Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET
from graphmill.systems.recommenders.settings import ClosedFormRecommenderSettings

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
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    model: ItemKnnModel = setting(ItemKnnModel(), "The model")
