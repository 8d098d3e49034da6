"""HGT's settings of sampling. Importable without torch: the Launchpad is generated from them."""

from graphmill.settings import Settings, setting


class HgtSampling(Settings):
    """Which links a step is trained on and, with edge_sampled, which part of the graph it sees."""

    edge_sample_size: int = setting(
        200, "Maximum number of supervision pairs per relation and step. Loss link_contrastive: 5,000 by default", ge=1
    )
    supervision_fraction: float = setting(
        0.1, "Largest share of a relation's edges to supervise on in one step", gt=0.0, le=0.5
    )
    accumulation_steps: int = setting(
        4, "edge_sampled: number of samples (micro-batches) whose gradients make up a step", ge=1
    )
