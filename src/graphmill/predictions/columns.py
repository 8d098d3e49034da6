"""Descriptions of the columns of a table of predicted links. Importing it does not import torch."""

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
EXPLAINED = {
    "because": "the three edges with the largest shares of the score; empty if the link was not explained",
}
"""Columns that only the files have, for the links with the best scores."""
