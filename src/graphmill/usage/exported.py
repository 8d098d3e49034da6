"""The Python API of a finished run: vectors by node id, neighbours, metrics, checks, rankings, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings, ExportedNodes, read_embeddings, read_nodes
from graphmill.export.manifests import export_folder, read_manifest
from graphmill.export.weights import NODES
from graphmill.graph.node_names import NodeNames
from graphmill.ingest.notebook import page, pairs
from graphmill.ingest.public_readers import read_interactions
from graphmill.parquet import ParquetTable
from graphmill.predictions.settings import LinkSettings, RankSettings
from graphmill.settings import parse
from graphmill.training.run_files import read_run_file
from graphmill.verified_files import verified_file

if TYPE_CHECKING:
    import pandas as pd

    from graphmill.evaluation.health.report import HealthReport
    from graphmill.reports.card import Markdown
    from graphmill.runs.export import Restored
    from graphmill.systems.blend.part import BlendScorer
    from graphmill.systems.link_export import ExportedScorer
    from graphmill.usage.explain import ExplainedLink
    from graphmill.usage.links import LinkModel


class Run:
    """A finished run, or a folder of exported embeddings (which has only vectors, neighbours and checks).

    Tables are pandas data frames; node ids are those of the input files, as text. Methods that need the trained model
    (:meth:`rank`, :meth:`links`, :meth:`recommend`) restore it at the first call and keep it.
    """

    def __init__(self, path: str | Path) -> None:
        # `current` is a link to a promoted version: use the version that it names now.
        self.path = path = Path(path).resolve() if Path(path).is_symlink() else Path(path)
        self._directory = export_folder(path)
        self.manifest = read_manifest(self._directory)
        self._made = str(self.manifest.get("system", "embeddings"))
        if not self.manifest["dim"]:
            for name in self.manifest["files"]:
                verified_file(self._directory, name)
        _ = self.nodes  # a damaged file is refused here

    @cached_property
    def embeddings(self) -> Embeddings:
        """The vectors of all nodes. Raises :class:`InputError` if the system has none."""
        if not self.manifest["dim"]:
            raise InputError(f"{self.path}: {self._made} has no vectors of nodes; use links, recommend or rank")
        return read_embeddings(self._directory)

    @cached_property
    def nodes(self) -> ExportedNodes:
        """The nodes of the graph: ids, names and types."""
        return self.embeddings if self.manifest["dim"] else read_nodes(self._directory / NODES)

    def __repr__(self) -> str:
        has = "{:,} vectors of {}".format(*self.embeddings.vectors.shape) if self.manifest["dim"] else "no vectors"
        return f"Run({str(self.path)!r}: {self._made}, {has})"

    def _repr_html_(self) -> str:
        return page(repr(self), pairs(self.metrics) if (self.path / "report.json").is_file() else "")

    # -- vectors -----------------------------------------------------------------------------------------------------

    @cached_property
    def known(self) -> NodeNames:
        """Finds nodes by id or name."""
        return NodeNames(list(self.nodes.ids), list(self.nodes.names))

    def row(self, node: str, node_type: str = "") -> int:
        """Return the row of a node by its id, else by its name. Give ``node_type`` if several nodes are called so.

        Raises:
            InputError: no such node, or several.
        """
        rows = self.known.find(node, lambda row: not node_type or self.type_of(row) == node_type)
        if not rows:
            kind = f" of type '{node_type}'" if node_type else ""
            hint = self.known.did_you_mean(node) or "; ids are those of the input file, as text"
            raise InputError(f"{self.path} has no node '{node}'{kind}{hint}")
        if len(rows) > 1:
            kinds = sorted({self.type_of(row) for row in rows})
            if len(kinds) == 1:
                ids = ", ".join(self.known.ids[row] for row in rows[:6])
                raise InputError(f"{len(rows)} nodes are called '{node}': {ids}; choose one by its id")
            raise InputError(
                f"node id '{node}' exists in several types ({', '.join(kinds)}); choose one with node_type"
            )
        return rows[0]

    def type_of(self, row: int) -> str:
        """Node type of a row."""
        return self.nodes.type_names[int(self.nodes.types[row])]

    def __len__(self) -> int:
        return len(self.nodes.ids)

    def __getitem__(self, node: str) -> np.ndarray:
        """The vector of a node id: float32 [d]."""
        return np.asarray(self.embeddings.vectors[self.row(node)])

    def neighbors(self, node: str, k: int = 10, node_type: str = "") -> pd.DataFrame:
        """The ``k`` nearest nodes by cosine: columns node_id, node_name, node_type, cosine."""
        import pandas as pd

        from graphmill.evaluation.health.neighbours import Vectors

        row = self.row(node, node_type)
        nearby = Vectors(self.embeddings.vectors).nearest(np.array([row]), k)
        return pd.DataFrame({**self._about(nearby.rows[0], "node_"), "cosine": nearby.similarities[0]})

    def score(self, heads: Sequence[str], relation: str, tails: Sequence[str]) -> np.ndarray:
        """Score links from this export alone: float32 [n]. Within one relation, a higher score means a likelier link.

        ``relation`` is a name, or source|name|target. If several relations have that name, the types of the nodes choose.
        ``heads`` and ``tails`` are n node ids each, of the relation's source and target type.

        Raises:
            InputError: the export cannot score (another system, another loss), or there is no such relation or node, or
                several relations of that name join such nodes.
        """
        from graphmill.usage.links_of_export import relation_of_export

        scorer, number = self.scorer, relation_of_export(self, relation, heads, tails)
        source, _, target = self.manifest["relations"][number]
        if len(heads) != len(tails):
            raise InputError(f"{len(heads)} heads and {len(tails)} tails were given; a link has one of each")
        first, second = scorer.links.offsets[number]
        left = np.array([self.row(h, source) for h in heads], np.int64) - first
        right = np.array([self.row(t, target) for t in tails], np.int64) - second
        return scorer.score(number, left, right).numpy()

    @cached_property
    def scorer(self) -> ExportedScorer | BlendScorer:
        """The scorer of links from this export alone. Raises :class:`InputError` if the export cannot score."""
        from graphmill.usage.links_of_export import scorer_of_export

        return scorer_of_export(self._directory, self.manifest, self.embeddings)

    def to_pandas(self) -> pd.DataFrame:
        """One row per node: node_index, node_id, node_name, node_type, and the dimensions d0, d1, … as float32."""
        import pandas as pd

        e = self.embeddings
        vectors = pd.DataFrame(e.vectors, columns=[f"d{i}" for i in range(e.vectors.shape[1])])
        types = pd.Categorical([e.type_names[t] for t in e.types], categories=list(e.type_names))
        head = pd.DataFrame({"node_index": e.index, "node_id": e.ids, "node_name": e.names, "node_type": types})
        return pd.concat([head, vectors], axis=1)

    def _about(self, rows: Any, prefix: str) -> dict[str, list[str]]:
        chosen = [int(row) for row in rows]
        return {
            f"{prefix}id": [str(self.nodes.ids[row]) for row in chosen],
            f"{prefix}name": [str(self.nodes.names[row]) for row in chosen],
            f"{prefix}type": [self.type_of(row) for row in chosen],
        }

    # -- the training ------------------------------------------------------------------------------------------------

    @property
    def metrics(self) -> dict[str, float]:
        """Held-out figures of the exported epoch: ``valid_mrr``, ``test_mrr``, … (docs/reference/checks.md)."""
        return dict(self.read_json("report.json")["metrics"])

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the training, defaults included."""
        return dict(self.read_json("settings.json"))

    @property
    def history(self) -> pd.DataFrame:
        """One row per epoch: its losses (means over steps), and its validation figures if it was evaluated."""
        import pandas as pd

        from graphmill.training.metrics_log import MetricsLog

        return pd.DataFrame(
            {
                "epoch": each["epoch"],
                **each["losses"],
                **{f"valid_{name}": value for name, value in (each.get("valid") or {}).items()},
            }
            for each in MetricsLog(self.path / "metrics.jsonl").read("epoch")
        )

    def read_json(self, name: str) -> Mapping[str, Any]:
        """Read a JSON file of the run directory. Raises :class:`InputError` if it is missing; an export alone has none."""
        return cast("Mapping[str, Any]", read_run_file(self.path, name))

    # -- how good it is ----------------------------------------------------------------------------------------------

    def validate(self) -> HealthReport:
        """Check the vectors: ``.status`` and ``.verdicts`` (docs/reference/checks.md).

        If the graph is on this machine, links are also ranked by cosine: this shows whether the rows belong to the ids.
        """
        from graphmill.reports.validation import graph_of, validate_file

        return validate_file(self.path, graph_of(self.path))

    def rank(self, split: str = "test", **settings: Any) -> pd.DataFrame:
        """Rank held-out links or items with the model and its baselines: one row per metric, one column per scorer.

        It writes ``ranking.json``. Baselines that need training are trained once and then reused. ``settings`` are those of
        :class:`graphmill.predictions.settings.RankSettings`: ``question="q.yaml"`` says its split, into ``question.json``.
        """
        import pandas as pd

        from graphmill.usage.ranking import rank_any

        ranking = rank_any(self._restored, split, parse(RankSettings, settings, "rank()"))
        figures = (
            ranking["beside"] if "beside" in ranking else {who: {"mrr": mrr} for who, mrr in ranking["mrr"].items()}
        )
        return pd.DataFrame(figures).rename_axis("metric")

    def card(self) -> Markdown:
        """The run's card: data, changed settings, figures beside baselines, health, limits, and how the run was made.

        It is made from the run's files; the card says what they lack. A notebook shows it as a page.
        """
        from graphmill.reports.card import card_of

        return card_of(self.path)

    def report(self, out: str | Path = "") -> Markdown:
        """Return the card, with the health computed if no file has it. With ``out``, also write it as one HTML page.

        The page includes the pictures: losses, health, ranking, drift.
        """
        from graphmill.reports.card import card_of
        from graphmill.reports.report_html import with_health, write_report

        if out:
            write_report(self.path, out)
        return card_of(self.path, with_health)

    # -- what it is for ----------------------------------------------------------------------------------------------

    def links(
        self,
        head: str | Sequence[str] = "",
        relation: str | Sequence[str] = "",
        k: int = 10,
        *,
        node_type: str = "",
        known: bool | str = False,
        **settings: Any,
    ) -> pd.DataFrame:
        """Predict links that the graph lacks: the ``k`` best tails of each head in each relation.

        Args:
            head: an id or a name, a list of these, or "*" for all nodes; default: the ``k`` best links of each relation.
            relation: a name (or source|name|target), or a list; default: all relations that begin at the heads.
            k: the number of tails for each head.
            node_type: the type of the heads; needed if nodes of several types have the same id or name.
            known: True includes links that the graph has; "exclude_train" leaves out only training links.
            settings: further ``LinkSettings`` (docs/how-to/predict_links.md), such as ``base_rate=0.01``.

        Returns:
            head_id, head_name, head_type, relation, tail_id, tail_name, tail_type, score (compare it only within a
            relation), rank, median_rank, relative_rank, probability, known, path_length, paths. If the graph is not on
            this machine, an export that can score gives the ``k`` best tails of one head in one relation. Then the last
            six columns except ``known`` are empty, and ``known`` marks only training links.

        Raises:
            SettingsError: the system recommends items instead, or a setting is wrong. InputError: no such node or relation.
        """
        from graphmill.usage.links import links_frame
        from graphmill.usage.links_of_export import is_for_an_export, links_of_export

        heads = [head] if isinstance(head, str) else list(head)
        relations = [relation] if isinstance(relation, str) else list(relation)
        if not heads or not relations:
            raise InputError("links: an empty list of heads or relations; name one, or leave it out for all")
        values = {
            "heads": [] if heads in ([""], ["*"]) else heads,
            "relations": [] if relations == [""] else relations,
            "k": k,
            "head_type": node_type,
            "known": known if isinstance(known, str) else "flag" if known else "exclude",
            **settings,
        }
        wanted = parse(LinkSettings, values, "links()")
        if is_for_an_export(self.path, self.manifest, wanted):
            return links_of_export(self, wanted)
        return links_frame(self._link_model, wanted, overall=heads == [""])

    def explain(self, head: str, relation: str, tail: str, *, verify: bool = False, **settings: Any) -> ExplainedLink:
        """Explain the score of a link: ``.edges``, ``.paths``, ``.parts`` and ``.score``, with names instead of numbers.

        Edges of the graph with their shares of the score; ConvE gives training triples by influence (TracIn).
        ``head`` and ``tail`` are ids or names. ``verify`` also computes the score without the listed edges. ``settings``
        are ``edges``, ``paths``, ``neighbors``, ``max_edges`` and ``steps`` (docs/how-to/why_this_link.md).

        Raises:
            SettingsError: the system's links cannot be explained, or an unknown setting.
            InputError: no such node or relation.
        """
        from graphmill.explain.explanation import ExplainSettings
        from graphmill.usage.explain import explain_link

        wanted = parse(ExplainSettings, settings, "explain")
        return explain_link(self._restored, head, relation, tail, wanted, verify=verify)

    @cached_property
    def _link_model(self) -> LinkModel:
        from graphmill.usage.links import link_model

        return link_model(self.path)

    def embed(
        self,
        edges: str | Path = "",
        output: str | Path = "",
        format: str = "",
        *,
        features: str | Path | Mapping[str, str | Path] = "",
        attributes: str | Path | Mapping[str, str | Path] = "",
        **settings: Any,
    ) -> Run:
        """Compute vectors for nodes that joined after the training. Nothing is trained.

        ``edges`` is a file with edges to known nodes, as :func:`graphmill.read_edges` reads it. ``features`` is
        a file with features of the new nodes, or one file for each named set (MMGCN, DRAGON); ``attributes`` a table of
        their attributes, or one for each node type. Returns an export in the
        folder ``output`` (default: ``embeddings_later`` in the run): known nodes keep their vectors, new nodes are added,
        and ``new_nodes.parquet`` has only the new ones.

        Raises:
            SettingsError: the system cannot embed such nodes. InputError: no new node, or a file that cannot be used.
        """
        from graphmill.usage.embed import FOLDER, embed_run
        from graphmill.usage.joining_nodes import read_joining

        files, tables_of = (
            given if isinstance(given, Mapping) else {"": given} if str(given) else {}
            for given in (features, attributes)
        )
        folder = Path(output) if str(output) else self.path / FOLDER
        tables, of_files, source = read_joining(self._restored.graph, str(edges), files, format, settings, tables_of)
        embed_run(self._restored, tables, source, folder, of_files)
        return Run(folder)

    def recommend(
        self,
        user: str = "",
        *,
        k: int = 20,
        history: str | Path | Sequence[str] = "",
        format: str = "",
        **settings: Any,
    ) -> pd.DataFrame:
        """The ``k`` best new items of ``user``, or of every user: user_id, user_name, rank, item_id, item_name, score.

        ``history`` is a file of interactions (``format`` and ``settings`` as for :func:`graphmill.read_interactions`), or
        the item ids of one user, oldest first. Its users get recommendations even if they were not in the training.

        Raises:
            SettingsError: the system does not recommend. InputError: no such user, or a history that cannot be used.
        """
        from graphmill.usage.recommendations import recommend_history, recommend_run

        if history == "":
            user = user and self.known.ids[self.row(user, "user")]
            written = recommend_run(self._restored, k)
        elif isinstance(history, str | Path):
            met = read_interactions(history, format, **settings)
            written = recommend_history(self._restored, met, str(history), k)
        else:
            written = recommend_history(self._restored, list(history), "history", k)
        table = ParquetTable(written["file"])
        parts = (table.group(number) for number in range(table.groups))
        kept = [part.filter(pc.field("user_id") == user) if user else part for part in parts]
        return cast("pd.DataFrame", pa.concat_tables([table.schema.empty_table(), *kept]).to_pandas())

    @cached_property
    def _restored(self) -> Restored:
        from graphmill.runs.export import restore

        return restore(self.path)
