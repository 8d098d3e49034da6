"""The columns of a table of predicted links, and their values for some rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.graph.sorted_unique import in_sorted
from graphmill.graph.splits import SPLIT_NAMES
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.predictions.judgements import Judged
from graphmill.predictions.paths import PathEvidence
from graphmill.predictions.settings import COLUMNS
from graphmill.predictions.top_tails import BestTails

CHUNK_ROWS = 65_536
JUDGED = pa.field("judged", pa.string())
"""What people said of the link; only in a table for which judgements were given."""


_NUMBERS = {"score": pa.float32(), "rank": pa.int32()} | dict.fromkeys(
    ("median_rank", "relative_rank", "probability"), pa.float32()
)


def schema(evidence: pa.Schema) -> pa.Schema:
    """The schema of the file: the columns that every table has, and those of the evidence."""
    columns = [name for name in COLUMNS if name not in PathEvidence.schema.names]
    return pa.schema([*(pa.field(name, _NUMBERS.get(name, pa.string())) for name in columns), *evidence])


@dataclass
class LinkRows:
    """The table of one relation's best tails, made in parts, so that the texts of all rows are never in memory at once.

    ``median_ranks``, ``probabilities`` [N]: for the rows of ``best``. ``evidence``: row → column → value.
    """

    graph: TypedGraph
    relation: Relation
    best: BestTails
    median_ranks: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    evidence_schema: pa.Schema
    evidence: Mapping[int, Mapping[str, Any]]
    judged: Judged

    def __post_init__(self) -> None:
        nodes = self.graph.node_table()
        self._ids, self._names = nodes["id"].combine_chunks(), nodes["name"].combine_chunks()

    def __len__(self) -> int:
        return len(self.best)

    def chunks(self) -> Iterator[pa.Table]:
        """Yield tables of consecutive rows."""
        for begin in range(0, len(self), CHUNK_ROWS):
            yield self.table(np.arange(begin, min(begin + CHUNK_ROWS, len(self))))

    def table(self, rows: NDArray[np.int64]) -> pa.Table:
        """Some rows."""
        best = self.best.take(rows)
        medians = self.median_ranks[rows]
        splits = np.array([*SPLIT_NAMES, ""], dtype=object)
        columns: dict[str, Any] = {
            **self._about("head", self.relation.source, best.heads),
            "relation": [self.relation.name] * len(rows),
            **self._about("tail", self.relation.target, best.tails),
            "score": best.scores,
            "rank": best.ranks,
            "median_rank": _with_nulls(medians),
            "relative_rank": _with_nulls((best.ranks / medians).astype(np.float32)),
            "probability": _with_nulls(self.probabilities[rows]),
            "known": splits[best.known],
        }
        rows_of_evidence = [self.evidence.get(row, {}) for row in rows.tolist()]
        columns |= {name: [each.get(name) for each in rows_of_evidence] for name in self.evidence_schema.names}
        if JUDGED.name in columns:
            pairs = best.heads * self.graph.node_type(self.relation.target).count + best.tails
            words = np.where(in_sorted(pairs, self.judged.no), "no", "")
            columns[JUDGED.name] = np.where(in_sorted(pairs, self.judged.yes), "yes", words)
        kinds = schema(self.evidence_schema)
        return pa.table({field.name: pa.array(columns[field.name], field.type) for field in kinds}, kinds)

    def _about(self, end: str, kind: str, local: NDArray[np.int64]) -> dict[str, Sequence[Any]]:
        rows = pa.array(local + self.graph.node_type(kind).offset)
        return {
            f"{end}_id": self._ids.take(rows),
            f"{end}_name": self._names.take(rows),
            f"{end}_type": [kind] * len(local),
        }


def _with_nulls(values: NDArray[np.float32]) -> pa.Array:
    return pa.array(values, pa.float32(), mask=~np.isfinite(values))
