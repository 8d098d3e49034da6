"""Results of an influence analysis as records and rows of its JSON and CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CSV_COLUMNS = (
    "TestHead", "TestHead_label", "TestRel", "TestRel_label", "TestTail", "TestTail_label",
    "TrainHead", "TrainHead_label", "TrainRel", "TrainRel_label", "TrainTail", "TrainTail_label",
    "TracInScore",
)  # fmt: skip


@dataclass(frozen=True)
class Names:
    """Ids and readable names of entities by global number, and of relations by index."""

    ids: Sequence[str]
    labels: Sequence[str]
    relations: Sequence[str]

    def cells(self, triple: np.ndarray) -> list[str]:
        """Id and name of head, relation and tail, in this order."""
        h, r, t = (int(v) for v in triple)
        return [self.ids[h], self.labels[h], self.relations[r], self.relations[r], self.ids[t], self.labels[t]]

    def symbols(self, triple: np.ndarray, prefix: str) -> dict[str, str]:
        """The triple's symbols with keys ``<prefix>_head``, ``_relation``, ``_tail``."""
        cells = self.cells(triple)
        return dict(zip((f"{prefix}_head", f"{prefix}_relation", f"{prefix}_tail"), cells[::2], strict=True))


def lists_of(
    triple: np.ndarray,
    influences: np.ndarray,
    strongest: tuple[np.ndarray, np.ndarray],
    train: np.ndarray,
    names: Names,
) -> tuple[dict[str, Any], list[list[Any]]]:
    """The ``strongest`` proponents and opponents of an explained triple (rows of ``train``), with their influences.

    As a JSON record (``top_influences`` are the proponents, ``top_opponents`` the opponents), and as CSV rows in descending
    order of signed influence: proponents first, the strongest opponent last.
    """
    proponents, opponents = (rows.tolist() for rows in strongest)
    values = {row: float(influences[row]) for row in (*proponents, *opponents)}
    record = names.symbols(triple, "test") | {
        name: [names.symbols(train[row], "train") | {"influence": values[row]} for row in rows]
        for name, rows in (("top_influences", proponents), ("top_opponents", opponents))
    }
    cells = names.cells(triple)
    return record, [[*cells, *names.cells(train[row]), repr(values[row])] for row in (*proponents, *opponents[::-1])]
