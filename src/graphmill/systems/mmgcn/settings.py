"""The settings of MMGCN beyond those that all recommenders share. Importable without torch."""

from typing import Any, Literal

from pydantic import model_validator

from graphmill.errors import SettingsError
from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET
from graphmill.systems.recommenders.settings import RecommenderObjective, RecommenderSettings


class MmgcnModel(Settings):
    """The network: a tower per modality."""

    embedding_dim: int = setting(
        64, "Width of ID embeddings, of every layer's output and of the exported vectors", ge=1
    )
    num_layers: int = setting(3, "Number of layers of each tower", ge=1, le=16)
    modalities: list[str] = setting([], "Names of the item feature sets to learn from, in order; [] = all")
    latent_dims: list[int] = setting(
        [],
        "For each modality, the width to which its features are mapped before the first layer; 0 = use them "
        "unchanged; [] = 4 × embedding_dim for the first modality and 0 for the others, as published",
    )
    combination: Literal["concatenate", "add"] = setting(
        "concatenate",
        "How neighbours are combined with a node's own part: concatenate (as the published code does) or add (as in "
        "the paper)",
    )
    trainable_embeddings: bool = setting(
        True, "Train ID embeddings and preferences; false: they stay random, as in the published implementations"
    )

    @model_validator(mode="after")
    def _fits(self) -> "MmgcnModel":
        if any(width < 0 for width in self.latent_dims):
            raise ValueError("model.latent_dims: a width is 0 (features as they are) or more")
        if self.modalities and self.latent_dims and len(self.modalities) != len(self.latent_dims):
            raise ValueError(
                f"model.latent_dims has {len(self.latent_dims)} widths for {len(self.modalities)} modalities; write one "
                "for each, or none"
            )
        return self


class MmgcnObjective(RecommenderObjective):
    """The loss of the pairs and the norm of the tables."""

    regularisation: float = setting(
        0.0001,
        "λ of the squares of the step's ID embeddings and of the preferences, each averaged over its numbers; no "
        "effect if trainable_embeddings is false",
        ge=0.0,
    )


class MmgcnSettings(RecommenderSettings):
    """One MMGCN run: the shape of ``settings.yaml``."""

    system: Literal["mmgcn"] = setting("mmgcn", "The system to train")
    preset: Literal["auto", "none", "published", "large_batch"] = setting("auto", PRESET, identity=False)  # type: ignore[assignment]
    model: MmgcnModel = setting(MmgcnModel(), "The network")
    objective: MmgcnObjective = setting(MmgcnObjective(), "The loss")


# published: the settings of the public implementations; large_batch: a step costs the same at any batch size. Its
# learning rate and patience were chosen by measured quality (benchmarks/LOG_2026.md, large batches).
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "published": {"model": {"trainable_embeddings": False}},
    "large_batch": {
        "acceleration": {"batch_size": 16384, "lr_scaling": "sqrt"},
        "training": {"epochs": 190, "learning_rate": 0.0005, "patience_epochs": 30},
        "evaluation": {"eval_every": 2},
    },
}


def latent_dims(given: list[int], modalities: int, dim: int) -> tuple[int, ...]:
    """``model.latent_dims``, resolved for this number of modalities and ``embedding_dim`` ``dim``.

    Raises :class:`SettingsError` if the numbers of widths and modalities differ.
    """
    if given and len(given) != modalities:
        raise SettingsError(
            f"model.latent_dims has {len(given)} widths for {modalities} modalities; write one for each, or none"
        )
    return tuple(given) or (4 * dim,) + (0,) * (modalities - 1)
