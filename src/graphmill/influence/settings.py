"""The settings of an influence analysis. Launchpad and command line are generated from it, without torch."""

from typing import Literal

from graphmill.settings import Settings, setting


class InfluenceSettings(Settings):
    """TracInCP (Pruthi et al. 2020) over the checkpoints of a run."""

    split: Literal["test", "valid"] = setting("test", "The split whose triples are explained")
    max_test_triples: int = setting(100, "Explain at most this many triples, drawn by the seed; 0 = all", ge=0)
    checkpoints: int = setting(
        5, "Use at most this many checkpoints, spread over the falling loss; 0 = all that the run keeps", ge=0
    )
    top_k: int = setting(10, "Number of proponents and opponents listed for each explained triple", ge=1)
    batch_size: int = setting(1024, "Number of labels differentiated at once; does not change the result", ge=1)
    memory_budget: str = setting(
        "2GiB",
        'Memory for the table of training triples × explained triples, such as "2GiB"; a larger table is computed in '
        "several passes",
    )
    seed: int = setting(0, "Seed for drawing triples", ge=0)
