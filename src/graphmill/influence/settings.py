"""What an influence analysis can be told. Importable without torch: Launchpad and command line are generated from it."""

from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from graphmill.settings import Retired, Settings, setting

_NO_SKETCH = "take variant: exact, which scores every triple"


class InfluenceSettings(Settings):
    """TracInCP (Pruthi et al. 2020) over the checkpoints of a run."""

    RETIRED: ClassVar[dict[str, Retired]] = {
        "sketch_dim": Retired(512, _NO_SKETCH),
        "rescore_share": Retired(0.01, _NO_SKETCH),
    }

    mode: Literal["test", "self", "single"] = setting(
        "test",
        "test: training triples that made held-out ones likely or unlikely; self: each training triple on itself, where "
        "mistakes stand out; single: one triple, given by name",
    )
    split: Literal["test", "valid"] = setting("test", "test: the held-out triples that are explained")
    max_test_triples: int = setting(100, "test: explain at most so many, drawn by seed; 0 = all", ge=0)
    triple: list[str] = setting([], "single: head, relation and tail, each as id or name")
    unit: Literal["label", "row"] = setting(
        "label",
        "What a training triple answers for: label: what its own label adds to the loss; row: the whole row of its "
        "query, whose other tails then share the blame",
    )
    variant: Literal["exact", "last_layer_same_tail_only"] = setting(
        "exact",
        "exact: all layers; last_layer_same_tail_only: the output layer, which can only see training triples that share "
        "an answer entity",
    )
    layers: list[str] = setting([], "exact: only these layers, such as [projection, convolution]; empty = all")
    precondition: Literal["none", "adam"] = setting(
        "none",
        "adam: divide by √v + ε of the checkpoint's Adam state, as its steps did; exact, but one matrix per explained "
        "triple",
    )
    checkpoints: int = setting(
        5, "At most so many checkpoints, spread over the falling loss; 0 = all that the run keeps", ge=0
    )
    top_k: int = setting(10, "Proponents and opponents listed for each explained triple", ge=1)
    batch_size: int = setting(1024, "Labels differentiated at a time; changes no result", ge=1)
    precision: Literal["fp32", "bf16", "fp16"] = setting(
        "fp32", "Of the two large matrix products of a backward pass; dot products are summed in fp32"
    )
    memory_budget: str = setting(
        "2GiB", 'What the table training × explained triples may take, such as "2GiB"; more passes when it is too large'
    )
    seed: int = setting(0, "Seed of the draw of triples", ge=0)

    @field_validator("variant", mode="before")
    @classmethod
    def _without_sketches(cls, value: Any) -> Any:
        if value == "sketch_rescored":
            raise ValueError(f"sketch_rescored is no longer there: {_NO_SKETCH}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "InfluenceSettings":
        if self.mode == "single" and len(self.triple) != 3:
            raise ValueError("mode: single needs triple: [head, relation, tail]")
        if self.layers and self.variant != "exact":
            raise ValueError("layers are chosen for variant: exact; the other one defines its own")
        return self
