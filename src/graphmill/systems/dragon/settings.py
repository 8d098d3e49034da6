"""The settings of DRAGON beyond those that all recommenders share. Importable without torch."""

from typing import Any, Literal

from pydantic import model_validator

from graphmill.settings import Settings, require_unset, setting
from graphmill.systems.base import PRESET
from graphmill.systems.recommenders.settings import RecommenderObjective, RecommenderSettings


class DragonModel(Settings):
    """The network: a tower per modality, and two homogeneous graphs."""

    embedding_dim: int = setting(64, "Width of each modality's representation", ge=1)
    modalities: list[str] = setting([], "Names of the item feature sets to learn from, in order; [] = all")
    item_layers: int = setting(
        1, "Number of propagations over the item-item graph of the features; 0 = do not use this graph", ge=0, le=8
    )
    item_neighbours: int = setting(
        10, "Number of nearest items in each modality to which an item is linked, itself included", ge=2
    )
    item_graph_weights: list[float] = setting(
        [],
        "Weight of each modality's item-item graph, in order; [] = equal weights. The authors use 0.1 and 0.9 "
        "(image, text)",
    )
    user_neighbours: int = setting(
        40,
        "Number of users to which a user is linked, those with the most shared training items; 0 = no user-user graph",
        ge=0,
    )
    identity_dim: int = setting(
        0,
        "Width of additional vectors of users and items by id. They are trained with their own loss of the same form "
        "and appended to the feature vectors, so that the two scores are summed (training.init_from: a MF run); "
        "0 = none, as published",
        ge=0,
    )

    @model_validator(mode="after")
    def _fits(self) -> "DragonModel":
        if any(weight < 0 for weight in self.item_graph_weights):
            raise ValueError("model.item_graph_weights: a weight is 0 or more")
        if self.modalities and self.item_graph_weights and len(self.modalities) != len(self.item_graph_weights):
            raise ValueError(
                f"model.item_graph_weights has {len(self.item_graph_weights)} numbers for {len(self.modalities)} "
                "modalities; write one for each, or none"
            )
        return self


class DragonObjective(RecommenderObjective):
    """The loss of the pairs (with log₂, as the authors write it) and the norm of the tables."""

    regularisation: float = setting(
        0.001,
        "λ of the squares of the step's preferences and of the modality weights, each averaged over its numbers",
        ge=0.0,
    )
    identity_regularisation: float = setting(
        0.1,
        "λ of ½‖·‖² of the vectors by id of the user, the item and the negative, averaged over the step and added to "
        "a loss divided by ln 2 (MF's λ is this times ln 2); only with model.identity_dim",
        ge=0.0,
    )


class DragonSettings(RecommenderSettings):
    """One DRAGON run: the shape of ``settings.yaml``."""

    system: Literal["dragon"] = setting("dragon", "The system to train")
    preset: Literal["auto", "none", "large_batch"] = setting("auto", PRESET, identity=False)  # type: ignore[assignment]
    model: DragonModel = setting(DragonModel(), "The network")
    objective: DragonObjective = setting(DragonObjective(), "The loss")

    @model_validator(mode="after")
    def _read(self) -> "DragonSettings":
        if not self.model.identity_dim:
            require_unset(self.objective, ["identity_regularisation"], "objective", "model.identity_dim: 0")
        return self


# large_batch: a step costs the same at any batch size. Its learning rate and patience were chosen by measured quality
# (benchmarks/LOG_2026.md, large batches).
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "large_batch": {
        "acceleration": {"batch_size": 16384, "lr_scaling": "sqrt"},
        "training": {"epochs": 400, "learning_rate": 0.0001, "patience_epochs": 160, "warmup_steps": 40},
    },
}
