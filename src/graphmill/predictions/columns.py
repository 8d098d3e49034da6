"""What the columns of a table of predicted links are. Importable without torch."""

COLUMNS = {
    "head_id": "the head's id, as written",
    "head_name": "the head's name, where the data has one",
    "head_type": "the head's node type",
    "relation": "the relation's name",
    "tail_id": "the tail's id, as written",
    "tail_name": "the tail's name, where the data has one",
    "tail_type": "the tail's node type",
    "score": "the model's score; comparable within a relation",
    "rank": "1 is the head's best tail among those that were not left out",
    "usual_rank": "geometric mean of the tail's rank over other heads: low for tails that are high for everybody",
    "relative_rank": "rank / usual_rank: below 1, the tail is higher for this head than it usually is",
    "probability": "calibrated on validation links, at the base rate that the report names; empty where there were too few",
    "known": "the split that has the link already; empty for a new one",
    "path_length": "2 or 3: the shortest path that joins both in training (not counting their own edge); 0: none found; "
    "empty: not looked for",
    "paths": "the best three such paths by name, those over nodes of low degree first",
}
EXPLAINED = {
    "because": "the three edges with the largest shares of the score; empty where the link was not explained",
}
"""Columns of the files alone, of the links with the best scores."""
