"""HGT's settings of sampling. Importable without torch: the Launchpad is generated from them."""

from typing import Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting


class HgtSampling(Settings):
    """Which links a step is trained on and, in the sampled modes, which part of the graph it sees."""

    edge_sample_size: int = setting(
        200, "Maximum number of supervision pairs per relation and step. Loss link_contrastive: 5,000 by default", ge=1
    )
    supervision_fraction: float = setting(
        0.1, "Largest share of a relation's edges to supervise on in one step", gt=0.0, le=0.5
    )
    accumulation_steps: int = setting(
        4, "edge_sampled, neighbor_sampled: number of samples (micro-batches) whose gradients make up a step", ge=1
    )
    num_neighbors: list[int] = setting(
        [10, 10],
        "neighbor_sampled, only with layers: number of in-edges drawn per node and relation, for each hop; -1 = all",
    )
    node_batch_size: int = setting(2048, "neighbor_sampled: maximum number of seed nodes per micro-batch", ge=1)
    neighbor_sampler: Literal["uniform", "budget"] = setting(
        "uniform",
        "neighbor_sampled, only with layers. uniform draws num_neighbors in-edges of each node and relation per hop; budget "
        "(HGT's own sampler) draws num_neighbors nodes of each type per hop, and prefers nodes that send messages to "
        "more of the sample",
    )
    relation_neighbors: list[str] = setting(
        [],
        "neighbor_sampled, only with layers: fan-outs of single relations, such as protein_protein=5,5 or "
        "drug|indication|disease=20,10; 0 leaves a relation out",
    )

    def own_fanouts(self) -> list[tuple[str, list[int]]]:
        """``relation_neighbors`` as (relation's name or source|name|target, fan-out of each hop)."""
        out = []
        for entry in self.relation_neighbors:
            name, _, numbers = entry.rpartition("=")
            try:
                out.append((name.strip(), [int(n) for n in numbers.split(",")]))
            except ValueError:
                out.append(("", []))
        return out

    @model_validator(mode="after")
    def _fanouts(self) -> "HgtSampling":
        if not self.num_neighbors or any(n < -1 or n == 0 for n in self.num_neighbors):
            raise ValueError(
                f"sampling.num_neighbors {self.num_neighbors}: give each hop at least 1 neighbour, or -1 for all"
            )
        for entry, (name, numbers) in zip(self.relation_neighbors, self.own_fanouts(), strict=True):
            if not name or len(numbers) != len(self.num_neighbors) or min(numbers) < -1:
                raise ValueError(
                    f"sampling.relation_neighbors: '{entry}' is not understood; write a relation and one fan-out for "
                    f"each of the {len(self.num_neighbors)} entries of num_neighbors, such as protein_protein=5,5"
                )
        if self.relation_neighbors and self.neighbor_sampler == "budget":
            raise ValueError(
                "sampling.relation_neighbors has no meaning for neighbor_sampler: budget, which draws nodes of types; "
                "remove it or use neighbor_sampler: uniform"
            )
        return self
