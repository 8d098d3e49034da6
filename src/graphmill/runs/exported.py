"""The exported vectors of a run, read back: by node id, as neighbours, as a data frame."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.evaluation.health.neighbours import nearest
from graphmill.export.embeddings import read_manifest

if TYPE_CHECKING:
    import pandas as pd


class Run:
    """The exported embeddings of a run: vectors by node id, neighbours, a data frame."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        if path.is_symlink():  # `current` of promoted versions: stay in the version that it names now
            path = path.resolve()
        self.path = path
        directory = path / "embeddings" if (path / "embeddings").is_dir() else path
        self.manifest = read_manifest(directory)
        self.embeddings: Embeddings = read_embeddings(directory)

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        rows: dict[str, list[int]] = {}
        for row, node in enumerate(self.embeddings.ids):
            rows.setdefault(str(node), []).append(row)
        return rows

    def row(self, node: str, node_type: str = "") -> int:
        """Row of a node id; ``node_type`` decides where ids of several types collide.

        Raises:
            InputError: no such node, or several types have this id.
        """
        rows = self._rows.get(node, [])
        if node_type:
            rows = [row for row in rows if self.type_of(row) == node_type]
        if not rows:
            kind = f" of type '{node_type}'" if node_type else ""
            raise InputError(f"{self.path} has no node '{node}'{kind}; ids are those of the input file, as text")
        if len(rows) > 1:
            kinds = ", ".join(sorted({self.type_of(row) for row in rows}))
            raise InputError(f"node id '{node}' exists in several types ({kinds}); say which with node_type")
        return rows[0]

    def type_of(self, row: int) -> str:
        """Node type of a row."""
        return self.embeddings.type_names[int(self.embeddings.types[row])]

    def __len__(self) -> int:
        return len(self.embeddings.ids)

    def __getitem__(self, node: str) -> np.ndarray:
        """float32 [d]: the vector of a node id."""
        return np.asarray(self.embeddings.vectors[self.row(node)])

    def neighbors(self, node: str, k: int = 10, node_type: str = "") -> pd.DataFrame:
        """The ``k`` nearest nodes by cosine: columns node_id, node_name, node_type, cosine."""
        import pandas as pd

        row = self.row(node, node_type)
        nearby = nearest(self.embeddings.vectors, np.array([row]), k)
        found = nearby.rows[0].tolist()
        return pd.DataFrame(
            {
                "node_id": [str(self.embeddings.ids[i]) for i in found],
                "node_name": [str(self.embeddings.names[i]) for i in found],
                "node_type": [self.type_of(i) for i in found],
                "cosine": nearby.similarities[0],
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """One row a node: node_index, node_id, node_name, node_type, and the dimensions d0 … as float32."""
        import pandas as pd

        e = self.embeddings
        vectors = pd.DataFrame(e.vectors, columns=[f"d{i}" for i in range(e.vectors.shape[1])])
        types = pd.Categorical([e.type_names[t] for t in e.types], categories=list(e.type_names))
        head = pd.DataFrame({"node_index": e.index, "node_id": e.ids, "node_name": e.names, "node_type": types})
        return pd.concat([head, vectors], axis=1)
