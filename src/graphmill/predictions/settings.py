"""What a table of predicted links can be told. Importable without torch: Launchpad and command line come from it."""

from typing import Literal

from graphmill.settings import Settings, setting


class LinkSettings(Settings):
    """Which links are predicted, what is said of each, and how many are shown."""

    relations: list[str] = setting(
        [], "Relations by name (or source|name|target, where several have that name); empty: all of the graph"
    )
    heads: list[str] = setting([], "Heads by id or name, of all that the relations can begin at; empty: all of them")
    heads_file: str = setting(
        "", "A text file with a head a line, in place of `heads`; empty lines and #… are left out"
    )
    head_type: str = setting("", "Node type of the heads; decides where nodes of several types share an id or a name")
    k: int = setting(10, "Tails for each head and relation", ge=1)
    known: Literal["exclude", "exclude_train", "flag"] = setting(
        "exclude",
        "Links that the graph has: exclude them all; exclude_train: leave out those of training alone, to see whether "
        "held-out ones are found; flag: all are among the candidates, and the column `known` says which they are",
    )
    usual_heads: int = setting(
        256, "Heads, drawn by seed, over which a tail's usual rank is taken; 0: no usual ranks", ge=0
    )
    probability_heads: int = setting(
        2000, "Heads with validation links, at most, that probabilities are calibrated on; 0: no probabilities", ge=0
    )
    base_rate: float = setting(
        0.0,
        "Part of a head's open tails that the probabilities take for true; 0: the part that validation links are of the "
        "open tails of their heads",
        ge=0,
        lt=1,
    )
    path_links: int = setting(
        1000, "Links of each relation, the best scores first, for which supporting paths are looked for", ge=0
    )
    explained_links: int = setting(
        3,
        "In the files: links of each relation, the best scores first, that are explained by the edges that carry them (HGT; "
        "other systems have no such column)",
        ge=0,
    )
    csv: bool = setting(True, "Write links.csv beside links.parquet")
    shown_links: int = setting(6, "Links in the asset's table; the files have all", ge=1, le=50)
    seed: int = setting(0, "Seed of the draws of heads and of negatives", ge=0)
