"""One version in memory: its nodes by id and by name, neighbours, predicted links, and recommendations.

All data come from the version's own folder and are read when it is opened, so a version may be removed while it
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import GraphmillError, InputError
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.evaluation.health.neighbours import Vectors
from graphmill.export.alignment import aligned_file
from graphmill.export.embeddings import SCORING
from graphmill.graph.node_names import NodeNames, unaccented
from graphmill.parquet import ParquetTable
from graphmill.predictions.paths import TrainingPaths
from graphmill.promotion.versions import Version
from graphmill.reports.report_html import REPORT
from graphmill.serving.answers import RequestError
from graphmill.serving.links import LinkTable, PredictedLinks
from graphmill.serving.version_run import RunScorer, run_folder
from graphmill.systems.registry import entry
from graphmill.usage.exported import Run
from graphmill.usage.links import TABLE as LINKS
from graphmill.usage.recommendations import FILE as RECOMMENDATIONS
from graphmill.usage.recommendations import SCHEMA
from graphmill.verified_files import verified_file

if TYPE_CHECKING:
    import pyarrow as pa

Int64 = NDArray[np.int64]
log = logging.getLogger("graphmill.serving")
NAMED = 5
"""Number of nodes that an error names if a node is ambiguous."""


class OpenVersion:
    """An open version that answers queries. All methods may be called by several threads at once."""

    def __init__(self, version: Version) -> None:
        """Read the version. Raises :class:`graphmill.errors.InputError` if it is damaged."""
        self.version, self.name = version, version.name
        self.problem = ""
        """Why it answers only in part, or ""."""
        self.run = Run(version.path)
        self.nodes = self.run.nodes
        self._vectors: Vectors | None = None
        if self.run.manifest["dim"]:
            self._vectors = self._shared_vectors()
        self._no_links = ""
        self._predicted = self._links_of()
        training = self._predicted.training if self._predicted else None
        self.edges = None if training is None else TrainingPaths(len(self.nodes.ids), training.edges())
        self._recommended = self._recommendations()
        report = self._file(REPORT)
        self.report = None if report is None else report.read_text(encoding="utf-8", errors="replace")
        self._known = NodeNames(list(self.nodes.ids), list(self.nodes.names))

    def _shared_vectors(self) -> Vectors:
        """Those of neighbours: in the space that versions share. The vectors for scoring may be in another."""
        shared, exported = aligned_file(self.version.path), self.run.embeddings
        near = exported if shared == self.version.path else read_embeddings(shared)
        if len(near.ids) != len(exported.ids):
            raise InputError(f"{shared} has {len(near.ids)} rows, the vectors {len(exported.ids)}")
        return Vectors(np.ascontiguousarray(near.vectors, dtype=np.float32))

    @property
    def vectors(self) -> Vectors:
        """The vectors. Raises :class:`RequestError` 404 if the system has none."""
        if self._vectors is None:
            other = " or ".join(f"/{each}" for each in self.answers) or "/search"
            raise RequestError(
                404, f"{self.name} is of {self.version.about['system']}, which has no vectors: ask {other}"
            )
        return self._vectors

    def vector(self, row: int) -> NDArray[np.float32]:
        """The vector of a node, float32 [d]. Raises as :attr:`vectors`."""
        _ = self.vectors
        return np.asarray(self.run.embeddings.vectors[row])

    def _file(self, name: str) -> Path | None:
        """A file of the version, verified; None if the version has none of this name."""
        return verified_file(self.version.path, name) if name in self.version.about["files"] else None

    def _links_of(self) -> PredictedLinks | None:
        try:
            scorer: Any = self.run.scorer if self._file(SCORING) is not None else None
        except GraphmillError as error:  # its vectors can still be used
            self._no_links = str(error)
            self.problem = f"it predicts no links: {error}"
            log.warning("%s: %s", self.name, self.problem)
            return None
        table, about = self._file(LINKS), self.version.about
        if self._vectors is None and not entry(about["system"]).recommends and run_folder(self.version) is not None:
            scorer = RunScorer(self.version)
        if table is None:
            return None if scorer is None else PredictedLinks(scorer, None)
        rows = {(self.run.type_of(row), str(node)): row for row, node in enumerate(self.nodes.ids)}
        return PredictedLinks(scorer, LinkTable(table, self.run.manifest["relations"], rows))

    def _recommendations(self) -> tuple[pa.Table, dict[str, tuple[int, int]]] | None:
        """The table of recommendations, and the range of each user's rows."""
        path = self._file(RECOMMENDATIONS)
        if path is None:
            return None
        file = ParquetTable(path, remedy="promote the run again")
        file.require(SCHEMA)
        table = file.read(SCHEMA.names)
        if any(column.null_count for column in table.columns):
            raise InputError(f"{path} lacks values; promote the run again")
        begins: dict[str, tuple[int, int]] = {}
        for row, user in enumerate(table["user_id"].to_pylist()):
            begins[user] = (begins[user][0] if user in begins else row, row + 1)
        return table, begins

    # -- nodes -------------------------------------------------------------------------------------------------------

    def find(self, node: str, name: str, kind: str) -> int:
        """The row of a node by its id, or by its name as people type it; ``kind``: its type, "" for any.

        Raises :class:`RequestError`: 400 for neither or both, 404 for no such node, 409 if there are several.
        """
        if bool(node) == bool(name):
            raise RequestError(400, "choose a node: give either id=… or name=…")
        self._require_type(kind)
        rows = self._known.find(node or name, lambda row: not kind or self.run.type_of(row) == kind)
        requested = f"id '{node}'" if node else f"name '{name}'"
        of_type = f" of type {kind}" if kind else ""
        if not rows:
            hint = self._known.did_you_mean(node or name)
            raise RequestError(404, f"{self.name} has no node with {requested}{of_type}{hint}; /search?q=… finds nodes")
        if len(rows) > 1:
            nodes = ", ".join(f"{self.nodes.ids[row]} ({self.run.type_of(row)})" for row in rows[:NAMED])
            more = ", …" if len(rows) > NAMED else ""
            raise RequestError(409, f"{len(rows)} nodes have {requested}: {nodes}{more}; choose one with id= and type=")
        return rows[0]

    def node(self, row: int) -> dict[str, str]:
        """id, name and type of a row."""
        e = self.nodes
        return {"id": str(e.ids[row]), "name": str(e.names[row]), "type": self.run.type_of(row)}

    def _require_type(self, kind: str) -> None:
        if kind and kind not in self.nodes.type_names:
            raise RequestError(
                404, f"{self.name} has no node type '{kind}' (it has {', '.join(self.nodes.type_names)})"
            )

    @cached_property
    def _texts(self) -> list[str]:
        e = self.nodes
        return [f"{unaccented(name)}\t{unaccented(node)}" for node, name in zip(e.ids, e.names, strict=True)]

    def search(self, text: str, kind: str, k: int) -> list[dict[str, str]]:
        """Nodes whose name or id contains this text, in any case: exact matches first, then prefixes, then shorter names."""
        self._require_type(kind)
        wanted = unaccented(text)
        if not wanted:
            return []
        result = [row for row, each in enumerate(self._texts) if wanted in each]
        if kind:
            result = [row for row in result if self.run.type_of(row) == kind]

        def order(row: int) -> tuple[bool, bool, int, int]:
            name, _, node = self._texts[row].partition("\t")
            begins = name.startswith(wanted) or node.startswith(wanted)
            return wanted not in (name, node), not begins, len(name), row

        return [self.node(row) for row in sorted(result, key=order)[:k]]

    # -- neighbours and predictions ------------------------------------------------------------------------------------

    def neighbors(self, row: int, k: int, among: str = "") -> list[dict[str, Any]]:
        """The ``k`` nearest nodes by cosine. ``among``: only nodes of this type."""
        self._require_type(among)
        of_type = self.nodes.types == self.nodes.type_names.index(among) if among else None
        rows, cosines = self.vectors.around(row, k, of_type)
        return [{**self.node(int(r)), "cosine": round(float(c), 6)} for r, c in zip(rows, cosines, strict=True)]

    def links(self, row: int, relation: str, k: int, known: bool) -> list[dict[str, Any]]:
        """The ``k`` likeliest targets of a node in each relation (or one) that begins at its type, best first.

        ``known``: include training links.

        Raises :class:`RequestError`: 404 if this version predicts no links or has no such relation; 400 if the relation
        begins at another type.
        """
        begins = self._relations_from(row, relation)
        assert self._predicted is not None
        return [
            {
                "relation": key[1],
                **self.node(link["target"]),
                **{name: value for name, value in link.items() if name not in ("relation", "target")},
                "score": round(link["score"], 6),
            }
            for number, key in begins
            for link in self._predicted.best(number, row, k, known)
        ]

    def link(self, row: int, relation: str, target: int) -> dict[str, Any]:
        """Describe one link: the ``key`` of its relation, and its row of the table if there is one.

        Raises :class:`RequestError` 400 if the relation does not lead from the one node to the other.
        """
        assert relation
        kind = self.run.type_of(target)
        fitting = [(number, key) for number, key in self._relations_from(row, relation) if key[2] == kind]
        if not fitting:
            raise RequestError(400, f"relation '{relation}' does not lead to nodes of type {kind}")
        number, key = fitting[0]
        assert self._predicted is not None
        return {"key": key, **(self._predicted.listed(number, row, target) or {})}

    def paths(self, row: int, link: Mapping[str, str], count: int) -> list[dict[str, Any]]:
        """Up to ``count`` paths of training edges from a node to the target of one of its :meth:`links`, the best first."""
        if not count or self.edges is None:
            return []
        target = self.find(link["id"], "", link["type"])
        [result] = self.edges.best(row, np.array([target]), count)
        return [{"steps": [self._step(*ends) for ends in pairwise(path.nodes)]} for path in result]

    def known_edges(self, row: int) -> list[dict[str, Any]]:
        """The training edges of a node: the relation, whether it begins there, and the other node; those with few edges
        first. Raises :class:`RequestError` 404 if the version does not hold the training edges."""
        if self.edges is None:
            raise RequestError(404, f"{self.name} does not hold the edges that it was trained on")
        near = self.edges.of(row)
        order = near[np.argsort(self.edges.degree[near], kind="stable")]
        return [self._step(row, other) for other in order.tolist()]

    def _step(self, row: int, other: int) -> dict[str, Any]:
        """A training edge: its relation, whether it is followed from source to target, and the node reached."""
        assert self.edges is not None
        relation, forward = self.edges.relation_between(row, other)
        return {"relation": str(self.run.manifest["relations"][relation][1]), "forward": forward, **self.node(other)}

    def _relations_from(self, row: int, relation: str) -> list[tuple[int, list[str]]]:
        if self._no_links:
            raise RequestError(503, f"{self.name} predicts no links: {self._no_links}")
        if self._predicted is None:
            if self._recommended is not None:
                raise RequestError(404, f"{self.name} recommends items and predicts no links: ask /recommendations")
            if self._vectors is None:
                why = (
                    "holds no table of links, and its run is not on this machine: promote it after graphmill links RUN"
                )
                raise RequestError(404, f"{self.name} {why}")
            raise RequestError(
                404,
                f"{self.name} has vectors and no {SCORING}: they are not of a system that predicts links",
            )
        keys = [[str(part) for part in key] for key in self.run.manifest["relations"]]
        named = [(n, key) for n, key in enumerate(keys) if relation in ("", key[1], "|".join(key))]
        if not named:
            names = ", ".join(sorted({key[1] for key in keys}))
            raise RequestError(404, f"{self.name} has no relation '{relation}' (it has {names})")
        kind = self.run.type_of(row)
        begins = [(n, key) for n, key in named if key[0] == kind]
        if not begins and relation:
            sources = ", ".join(sorted({key[0] for _, key in named}))
            raise RequestError(
                400, f"relation '{relation}' begins at nodes of type {sources}; this node is of type {kind}"
            )
        return begins

    def recommendations(self, row: int) -> list[dict[str, Any]]:
        """The best items of a user, best first, up to the number that the version holds.

        Raises :class:`RequestError` 404: the version has none, or none of this node.
        """
        if self._recommended is None:
            raise RequestError(
                404, f"{self.name} holds no recommendations: promote a recommender with recommendations above 0"
            )
        table, begins = self._recommended
        node = str(self.nodes.ids[row])
        if node not in begins:
            raise RequestError(404, f"{self.name} has no recommendations for '{node}' ({self.run.type_of(row)})")
        start, stop = begins[node]
        rows = table.slice(start, stop - start).to_pylist()
        return [
            {"rank": r["rank"], "id": r["item_id"], "name": r["item_name"], "score": round(r["score"], 6)} for r in rows
        ]

    @property
    def answers(self) -> list[str]:
        """The endpoints that this version can answer."""
        result = ["vector", "neighbors"] * (self._vectors is not None) + ["edges"] * (self.edges is not None)
        return (
            result + ["links"] * (self._predicted is not None) + ["recommendations"] * (self._recommended is not None)
        )
