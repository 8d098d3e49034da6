"""Tables of users, items and, if there are any, entities: shared by the readers of recommenders' formats.

Interactions come with their split. Numeric ids are rows of feature files, so a gap between them is also an item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from graphmill.ingest.disk import as_column
from graphmill.ingest.tables import EDGES, NODES

USER, ITEM, RELATION = "user", "item", "interacted"
ENTITY = "entity"
SPLITS = ("train", "valid", "test")
EDGES_WITH_SPLIT = EDGES.append(pa.field("split", pa.uint8()))


@dataclass(frozen=True)
class Ids:
    """Ids of one node type in the order of their numbers; ``names`` for people, or empty: the ids themselves."""

    ids: pa.Array
    names: Sequence[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


def numbers(count: int, names: Sequence[str] = ()) -> Ids:
    """Ids "0" to ``count - 1``."""
    return Ids(pa.array(np.arange(count)).cast(pa.string()), list(names))


def as_numbers(ids: pa.Array) -> np.ndarray | None:
    """int64 numbers of ids that are all plain numbers ("7", not "07" or "+7"), if the gaps are no more than the ids."""
    try:
        found = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    values = found.to_numpy(zero_copy_only=False)
    if len(values) == 0 or values.min() < 0 or not found.cast(pa.string()).equals(ids):
        return None
    return values if int(values.max()) + 1 <= 2 * len(values) else None


def node_table(parts: Sequence[tuple[str, Ids]], source: str) -> pa.Table:
    """The nodes of all (type, ids), one type after the other."""
    sizes = [len(ids) for _, ids in parts]
    kinds = as_column(np.repeat(np.arange(len(parts), dtype=np.int32), sizes), [kind for kind, _ in parts])
    label = as_column(np.zeros(len(kinds), np.int32), [source])
    names = [pa.array(part.names, pa.string()) if part.names else part.ids for _, part in parts]
    ids = pa.concat_arrays([part.ids.cast(pa.string()) for _, part in parts])
    named = pa.concat_arrays([name.cast(pa.string()) for name in names])
    return pa.table([pa.array(np.arange(len(kinds))), ids, kinds, named, label], NODES)


def edge_table(
    head: np.ndarray, tail: np.ndarray, split: np.ndarray, relation: np.ndarray, names: Sequence[str]
) -> pa.Table:
    """Edges between rows of the node table; ``relation`` (codes) is an index into ``names``."""
    category = as_column(relation.astype(np.int32), list(names))
    ends = [pa.array(end.astype(np.int32)) for end in (head, tail)]
    return pa.table([category, category, *ends, pa.array(split.astype(np.uint8))], EDGES_WITH_SPLIT)


def interaction_edges(user: np.ndarray, item: np.ndarray, split: np.ndarray, num_users: int) -> pa.Table:
    """Interactions as edges; users are the first rows of the node table, items the next."""
    return edge_table(user, item + num_users, split, np.zeros(len(user), np.int32), [RELATION])


def count_interactions(
    user: np.ndarray, item: np.ndarray, split: np.ndarray, num_users: int, num_items: int
) -> dict[str, int]:
    """Counts legal but unusual interactions with a split."""
    pair = user * np.int64(num_items) + item
    in_splits = np.unique(pair * 3 + split)
    train = split == 0
    users_met, items_met = (len(np.unique(numbers)) for numbers in (user, item))
    return {
        "interactions": len(user),
        "users": num_users,
        "items": num_items,
        **{name: int((split == number).sum()) for number, name in enumerate(SPLITS)},
        "duplicate_interactions": len(pair) - len(in_splits),
        "pairs_in_two_splits": len(in_splits) - len(np.unique(in_splits // 3)),
        # Only items with an interaction; numbers without one are counted as gaps.
        "users_without_training": users_met - len(np.unique(user[train])),
        "items_without_training": items_met - len(np.unique(item[train])),
        "unused_user_numbers": num_users - users_met,
        "unused_item_numbers": num_items - items_met,
    }


_SENTENCES = {
    "duplicate_interactions": "{:,} interactions repeat a user and item of the same split; the graph has each once",
    "pairs_in_two_splits": "{:,} pairs of user and item are in more than one split; what is in training is not held out",
    "users_without_training": "{:,} users are never in training, only held out; they are not evaluated nor recommended to",
    "items_without_training": "{:,} items are never in training, only held out; they are ranked all the same",
    "unused_user_numbers": "{:,} user numbers have no interaction",
    "unused_item_numbers": "{:,} item numbers have no interaction (gaps); they are items all the same, for their features",
}


def interaction_notes(counts: dict[str, int]) -> list[str]:
    """The counts as sentences."""
    return [text.format(counts[name]) for name, text in _SENTENCES.items() if counts.get(name)]
