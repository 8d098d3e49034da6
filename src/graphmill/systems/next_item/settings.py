"""The settings of next items in closed form. Importable without torch."""

from typing import Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import ClosedFormSettings
from graphmill.systems.sequences.settings import SequenceEvaluation


class NextItemSettings(ClosedFormSettings):
    """The settings that these systems share."""

    evaluation: SequenceEvaluation = setting(SequenceEvaluation(), "What is measured while training", identity=False)


class MarkovModel(Settings):
    """P(next | last) + back-off · P(item)."""

    back_off: float = setting(
        0.0, "Weight of an item's share of all interactions; 0 = the best of 0.001 to 1 on the validation split", ge=0.0
    )


class MarkovSettings(NextItemSettings):
    """One run of a first-order Markov chain: the shape of ``settings.yaml``."""

    system: Literal["markov"] = setting("markov", "The system to train")
    model: MarkovModel = setting(MarkovModel(), "The model")


class SessionKnnModel(Settings):
    """The sum of the cosines to the last items."""

    neighbours: int = setting(
        0, "Nearest items of each item that count; 0 = the better of 100 and all on the validation split", ge=0
    )
    history: int = setting(0, "Number of last items that count; 0 = the best of 1 to 10 on the validation split", ge=0)


class SessionKnnSettings(NextItemSettings):
    """One run of item-kNN over sessions: the shape of ``settings.yaml``."""

    system: Literal["session_knn"] = setting("session_knn", "The system to train")
    model: SessionKnnModel = setting(SessionKnnModel(), "The model")


class RepeatsModel(Settings):
    """The sum of decay ^ (interactions since) over the user's interactions with an item."""

    decay: float = setting(
        0.0,
        "Weight of an interaction beside the next one; 0 = the best of 0.5 to 1 on the validation split",
        ge=0.0,
        le=1.0,
    )


class RepeatsSettings(NextItemSettings):
    """One run of repeats: the shape of ``settings.yaml``."""

    system: Literal["repeats"] = setting("repeats", "The system to train")
    model: RepeatsModel = setting(RepeatsModel(), "The model")
