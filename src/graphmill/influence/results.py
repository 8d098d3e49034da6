"""Results of an influence analysis as JSON and CSV files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.atomic_files import replacing, write_atomically, writing

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


@dataclass(frozen=True)
class Explanation:
    """One explained triple with its strongest proponents and opponents: rows of ``train``, and their influences."""

    triple: np.ndarray
    proponents: np.ndarray
    opponents: np.ndarray
    values: dict[int, float]

    def to_json(self, train: np.ndarray, names: Names) -> dict[str, Any]:
        """A JSON record; ``top_influences`` are the proponents, ``top_opponents`` the opponents."""

        def rows(chosen: np.ndarray) -> list[dict[str, Any]]:
            return [names.symbols(train[i], "train") | {"influence": self.values[i]} for i in chosen.tolist()]

        return names.symbols(self.triple, "test") | {
            "top_influences": rows(self.proponents),
            "top_opponents": rows(self.opponents),
        }

    def to_rows(self, train: np.ndarray, names: Names) -> list[list[Any]]:
        """CSV rows in descending order of signed influence: proponents first, the strongest opponent last."""
        order = [*self.proponents.tolist(), *self.opponents.tolist()[::-1]]
        mine = names.cells(self.triple)
        return [[*mine, *names.cells(train[i]), repr(self.values[i])] for i in order]


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    with writing(path):
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Whole or not at all."""
    with writing(path), replacing(path) as part, part.text() as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
