"""The settings of popularity. Importable without torch."""

from typing import Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET
from graphmill.systems.recommenders.settings import ClosedFormRecommenderSettings


class PopularityModel(Settings):
    """Counts of interactions."""

    days: float = setting(
        0.0, "Count the interactions of so many days before the last training interaction; 0 = of all time", ge=0.0
    )


class PopularitySettings(ClosedFormRecommenderSettings):
    """One popularity run: the shape of ``settings.yaml``."""

    system: Literal["popularity"] = setting("popularity", "The system to train")
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    model: PopularityModel = setting(PopularityModel(), "The model")


TRIES = {"popularity": tuple({"model": {"days": days}} for days in (1, 7, 30, 365))}
"""What is new, of the season, or neither; left out where interactions have no times."""
