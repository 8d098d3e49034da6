"""The settings of iALS, with defaults after Rendle et al. 2022. Importable without torch."""

from typing import Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET
from graphmill.systems.recommenders.settings import ClosedFormRecommenderSettings


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
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    model: IalsModel = setting(IalsModel(), "The model")
