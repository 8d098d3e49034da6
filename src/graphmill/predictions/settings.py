"""Settings of a table of predicted links, with its columns, and of a ranking. The Launchpad and the commands use them.
Importing it does not import torch."""

from typing import Literal

from graphmill.errors import SettingsError
from graphmill.evaluation.probe import LabelSettings
from graphmill.predictions.question import LinkSelection, read_question
from graphmill.settings import Settings, setting

COLUMNS = {
    "head_id": "the head's id, unchanged",
    "head_name": "the head's name, if the data has one",
    "head_type": "the head's node type",
    "relation": "the relation's name",
    "tail_id": "the tail's id, unchanged",
    "tail_name": "the tail's name, if the data has one",
    "tail_type": "the tail's node type",
    "score": "the model's score; compare it only within a relation",
    "rank": "rank among the head's tails that were not left out; 1 is the best",
    "median_rank": "median of the tail's rank over other heads; low for tails that rank high for every head",
    "relative_rank": "rank / median_rank; below 1, the tail ranks higher for this head than for other heads",
    "probability": "calibrated on validation links, at the base rate in the report; empty if there were too few links",
    "known": "the split that already has the link; empty for a new link",
    "path_length": "length of the shortest path between the two in training, without their own edge: 2 or 3; 0: none found; "
    "empty: not searched",
    "paths": "the best three such paths by name; paths over nodes of low degree come first",
}
JUDGED = {"judged": "yes or no, as people judged the link; empty if they did not"}
"""Only in a table for which judgements were given."""
EXPLAINED = {
    "because": "the three edges with the largest shares of the score; empty if the link was not explained",
}
"""Columns that only the files have, for the links with the best scores."""


class RankingSettings(Settings):
    """What a ranking of links shows besides its main figures."""

    truth: str = setting(
        "",
        "Table of judged links (head, relation, tail, judgement: yes or no) with which the ranking is compared; empty: none",
    )
    labels: LabelSettings = setting(LabelSettings(), "Labels of nodes by which figures are shown")


class RankSettings(RankingSettings):
    """Which links are ranked, if not a whole split."""

    question: str = setting("", "A YAML file with relations, heads, candidates, split and metric; empty: a whole split")
    judgements: str = setting("", "Table of judged links: head, relation, tail, judgement (yes or no); empty: none")
    judged: Literal["mark", "leave_out"] = setting(
        "mark",
        "Judged links: mark: one judged yes is no wrong answer, and one judged no is not asked for; leave_out: neither is "
        "asked for or a candidate",
    )


class LinkSettings(LinkSelection):
    """Which links are predicted, which columns are computed, and how many links are shown."""

    question: str = setting("", "A YAML file with relations, heads and candidates, instead of these settings")
    judgements: str = setting(
        "", "Table of judged links: head, relation, tail, judgement (yes or no); empty: nothing was judged"
    )
    judged: Literal["mark", "leave_out"] = setting(
        "mark",
        "Judged links: mark: a column shows the judgement, and probabilities are calibrated with it; leave_out: they are "
        "neither predicted nor used for calibration",
    )
    k: int = setting(10, "Number of tails for each head and relation", ge=1)
    known: Literal["exclude", "exclude_train", "flag"] = setting(
        "exclude",
        "Links that the graph has: exclude: leave out all of them; exclude_train: leave out only training links, to "
        "see whether held-out links are found; flag: leave out none, and mark them in the column `known`",
    )
    median_heads: int = setting(
        256, "Number of heads, drawn by the seed, from which a tail's median rank is computed; 0: no median ranks", ge=0
    )
    probability_heads: int = setting(
        2000,
        "Maximum number of heads with validation links that calibrate the probabilities; 0: no probabilities",
        ge=0,
    )
    base_rate: float = setting(
        0.0,
        "Share of a head's open tails that the probabilities assume to be true; 0: the share that validation links "
        "have among the open tails of their heads",
        ge=0,
        lt=1,
    )
    path_links: int = setting(
        1000, "Number of links of each relation, best scores first, for which supporting paths are searched", ge=0
    )
    explained_links: int = setting(
        3,
        "In the files: number of links of each relation, best scores first, that are explained by the edges that "
        "contribute to their score (blend, HGT, NBFNet, kNN and spectral vectors)",
        ge=0,
    )
    csv: bool = setting(True, "Also write links.csv, in the same folder as links.parquet")
    shown_links: int = setting(6, "Number of links in the asset's table; the files have all of them", ge=1, le=50)
    seed: int = setting(0, "Seed for drawing heads and negatives", ge=0)

    def selection(self) -> LinkSelection:
        """What is asked for: the question's, or these settings. Raises :class:`SettingsError` if both say something."""
        if not self.question:
            return self
        if both := [name for name in LinkSelection.model_fields if getattr(self, name)]:
            raise SettingsError(
                f"{both[0]} and a question ({self.question}) are both given; write it into the question"
            )
        return read_question(self.question)
