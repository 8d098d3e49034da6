"""The exported vectors of a run, read back: by node id, as neighbours, as a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.evaluation.health.neighbours import nearest
from graphmill.export.embeddings import SCORING, read_manifest, require_whole

if TYPE_CHECKING:
    import pandas as pd

    from graphmill.systems.hgt.softmax_scorer import SoftmaxScorer


class Run:
    """The exported embeddings of a run: vectors by node id, neighbours, a data frame."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.path = path
        directory = path / "embeddings" if (path / "embeddings").is_dir() else path
        self._directory = directory
        self.manifest = read_manifest(directory)
        require_whole(directory, self.manifest)
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

    def score(self, heads: Sequence[str], relation: str, tails: Sequence[str]) -> np.ndarray:
        """float32 [n]: the model's score of each link, from this export alone; higher is likelier, within one relation.

        ``relation``: its name, or source|name|target where several have that name. ``heads`` and ``tails``: n node ids
        each, of the relation's two types.

        Raises:
            InputError: the export cannot score (another system, another loss), or there is no such relation or node.
        """
        scorer, number, (source, target) = self._scorer, *self._relation(relation)
        if len(heads) != len(tails):
            raise InputError(f"{len(heads)} heads and {len(tails)} tails were given; a link has one of each")
        first, second = scorer.sums.offsets[number]
        left = np.array([self.row(h, source) for h in heads], np.int64) - first
        right = np.array([self.row(t, target) for t in tails], np.int64) - second
        found: np.ndarray = scorer.score(number, left, right).numpy()
        return found

    def links(self, head: str, relation: str, k: int = 10, *, known: bool = False) -> pd.DataFrame:
        """The ``k`` likeliest targets of a head: columns node_id, node_name, node_type, score.

        Links that the model was trained on are left out unless ``known``. Raises as :meth:`score`.
        """
        import pandas as pd

        scorer, number, (source, _) = self._scorer, *self._relation(relation)
        first, second = scorer.sums.offsets[number]
        own = np.array([self.row(head, source) - first], np.int64)
        scores = scorer.score_targets(number, own)[0].numpy().copy()
        if not known:
            scores[scorer.sums.known(number, own)[1]] = -np.inf
        best = np.argsort(-scores, kind="stable")[: max(k, 0)]
        best = best[np.isfinite(scores[best])]
        found = (best + second).tolist()
        return pd.DataFrame(
            {
                "node_id": [str(self.embeddings.ids[i]) for i in found],
                "node_name": [str(self.embeddings.names[i]) for i in found],
                "node_type": [self.type_of(i) for i in found],
                "score": scores[best],
            }
        )

    def _relation(self, relation: str) -> tuple[int, tuple[str, str]]:
        keys = [tuple(key) for key in self.manifest["relations"]]
        found = [n for n, key in enumerate(keys) if relation in (key[1], "|".join(key))]
        if len(found) != 1:
            names = ", ".join("|".join(keys[n]) for n in found or range(len(keys)))
            what = f"is the name of {len(found)} relations" if found else "is no relation of this model"
            raise InputError(f"'{relation}' {what}; write one of {names}")
        source, _, target = keys[found[0]]
        return found[0], (source, target)

    @cached_property
    def _scorer(self) -> SoftmaxScorer:
        from safetensors.numpy import load_file

        from graphmill.systems.hgt.softmax_scorer import scorer_of

        path = self._directory / SCORING
        if not path.is_file():
            raise InputError(
                f"{self.path} has vectors and no {SCORING}: links are scored from exports of HGT with objective.loss "
                "softmax; train that and export it"
            )
        return scorer_of(load_file(path), np.asarray(self.embeddings.vectors, dtype=np.float32))

    def to_pandas(self) -> pd.DataFrame:
        """One row a node: node_index, node_id, node_name, node_type, and the dimensions d0 … as float32."""
        import pandas as pd

        e = self.embeddings
        vectors = pd.DataFrame(e.vectors, columns=[f"d{i}" for i in range(e.vectors.shape[1])])
        types = pd.Categorical([e.type_names[t] for t in e.types], categories=list(e.type_names))
        head = pd.DataFrame({"node_index": e.index, "node_id": e.ids, "node_name": e.names, "node_type": types})
        return pd.concat([head, vectors], axis=1)
