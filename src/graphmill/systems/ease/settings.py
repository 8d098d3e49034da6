"""The settings of EASE. Importable without torch."""

from typing import Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET
from graphmill.systems.recommenders.settings import ClosedFormRecommenderSettings


class EaseModel(Settings):
    """Weights between all pairs of items."""

    regularisation: float = setting(
        0.0, "λ: how strongly weights are drawn to 0; 0 = the best of 10 to 3,000 on the validation split", ge=0.0
    )


class EaseSettings(ClosedFormRecommenderSettings):
    """One EASE run: the shape of ``settings.yaml``."""

    system: Literal["ease"] = setting("ease", "The system to train")
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    model: EaseModel = setting(EaseModel(), "The model")
