"""Predicts links with a run: the tails with the best scores for chosen heads, as a table with evidence for each link.

If there is an export that can score links, it is the model. Then neither checkpoint nor message passing is needed.
Otherwise the model is the restored checkpoint. Time and memory of a table are estimated before it is made.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import torch

from graphmill.atomic_files import PartFile, only_writer, replacing
from graphmill.errors import InputError, ResourceError, SettingsError
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.export.embeddings import SCORING
from graphmill.export.manifests import read_manifest
from graphmill.graph.graph_location import open_graph_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.memory import format_size
from graphmill.parquet import parquet_writer
from graphmill.predictions.calibration import calibrate
from graphmill.predictions.judgements import Judged, read_judgements
from graphmill.predictions.paths import Evidence, PathEvidence
from graphmill.predictions.selection import Nodes, SelectedLinks, selected_links
from graphmill.predictions.settings import LinkSettings
from graphmill.predictions.table import JUDGED, LinkRows, schema
from graphmill.predictions.top_tails import BestTails, Candidates, best_tails, diversity, median_ranks
from graphmill.runs.export import job_of, restore
from graphmill.runs.messages import Outlet
from graphmill.runs.planning import free_memory, parts_of
from graphmill.sampling.keyed import sampled
from graphmill.systems.registry import entry
from graphmill.training.contract import StepSizes
from graphmill.training.planning import LIBRARIES_BYTES
from graphmill.training.run_directory import RunDirectory
from graphmill.usage.links_of_export import scorer_of_export
from graphmill.verified_files import listed_files

FOLDER, TABLE, CSV, REPORT = "links", "links.parquet", "links.csv", "links.json"
LATER_FOLDER = "links_with_later_edges"
"""The table of a model with later edges. A version holds the other one, of the run's own graph."""
LEFT_OUT = {"exclude": (0, 1, 2), "exclude_train": (0,), "flag": ()}
"""Splits (by number) whose links are excluded from the candidates, by the setting ``known``."""
clock = time.perf_counter
"""The clock of the estimate, in seconds."""
SAMPLE = 16
"""Heads of each relation that are scored, three times, to estimate the time."""
NOT_EXPLAINED = "no link is explained by edges: explanations are of the graph of the training, without the later edges"


@dataclass(frozen=True)
class LinkModel:
    """The predicting model: a scorer and its graph, which is the one of the training or, with ``later_edges``, that graph
    and edges that came after it. ``about``: the epoch, and notes on its choice."""

    path: Path
    graph: TypedGraph
    scorer: Scorer
    about: dict[str, Any]
    later_edges: bool = False

    @property
    def folder(self) -> Path:
        """Where its table of links is written."""
        return self.path / (LATER_FOLDER if self.later_edges else FOLDER)


@dataclass(frozen=True)
class Predicted:
    """The predicted links of one relation. ``rows`` makes their table; ``about``: statistics, and what the probabilities
    assume."""

    selected: SelectedLinks
    rows: LinkRows
    about: dict[str, Any]


def link_model(run: str | Path) -> LinkModel:
    """The model of a run directory, or of a folder with an export that can score links.

    Raises:
        InputError: not a run, or its graph was not found. SettingsError: the system recommends items instead.
    """
    path = Path(run).resolve()
    exported = path / "embeddings" if (path / "embeddings").is_dir() else path
    manifest = read_manifest(exported) if SCORING in listed_files(exported)[0] else {}
    # Where vectors are made from the graph (as those of new nodes are) an export avoids the making. Other runs are scored
    # from their checkpoint, on their own device, if they have one.
    if manifest and (entry(manifest["system"]).new_nodes or not (path / "checkpoints").is_dir()):
        if "joined" in manifest:
            raise InputError(
                f"{path} has nodes that joined after the training, and no graph of them: ask for one head in one relation "
                "(graphmill.load(FOLDER).links(head, relation))"
            )
        graph, embeddings = open_graph_of(path, manifest["data"]), read_embeddings(exported)
        scorer, nodes = scorer_of_export(exported, manifest, embeddings), graph.node_table()
        rows = embeddings.rows_of(nodes["type"].to_pylist(), nodes["id"].to_pylist())
        if [list(relation.key) for relation in graph.relations] != manifest["relations"] or (np.diff(rows) != 1).any():
            raise InputError(f"{exported} is not of the graph {graph.path} that it names; export the run again")
        return LinkModel(path, graph, scorer, {"epoch": manifest.get("epoch")})
    if not (path / "manifest.json").is_file() or not (path / "settings.json").is_file():
        raise InputError(
            f"{path} is not a run directory, nor an export that can score links: those of a system that predicts links"
        )
    restored = restore(path)
    if entry(restored.system.name).recommends:
        raise SettingsError(
            f"{restored.system.name} predicts no links but recommends items: graphmill recommend (run.recommend) gives them"
        )
    return LinkModel(path, restored.graph, restored.system.scorer(restored.model), restored.used)


class Predictor:
    """Predicts links of a model by settings. ``evidence``: further evidence for the best links of each relation, in
    addition to the supporting paths.
    """

    def __init__(
        self,
        model: LinkModel,
        settings: LinkSettings,
        *,
        evidence: Sequence[Evidence] = (),
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        self.model, self.settings, self.poll = model, settings, poll
        nodes, self.selection = Nodes(model.graph), settings.selection()
        self.selected = selected_links(nodes, self.selection)
        self.judgements = read_judgements(settings.judgements, nodes) if settings.judgements else None
        self.evidence = (PathEvidence(model.graph, settings.path_links), *evidence)
        judged = [JUDGED] if self.judgements else []
        self.evidence_schema = pa.unify_schemas([*(each.schema for each in self.evidence), pa.schema(judged)])
        self.schema = schema(self.evidence_schema)

    @property
    def notes(self) -> dict[str, list[Any]]:
        """``notes`` on the model and the judgements, and the ``coverage`` of the judgements' ids, if there are any."""
        notes = [*self.model.about.get("notes", ()), *(self.judgements.notes if self.judgements else ())]
        matches = {"coverage": [self.judgements.coverage.to_dict()]} if self.judgements else {}
        return {**({"notes": notes} if notes else {}), **matches}

    def predict(self, *, overall: bool = False) -> Iterator[Predicted]:
        """Predict the links of each relation in the settings. ``overall``: the k best links over all heads, not of each
        head."""
        for selected in self.selected:
            yield self._of(selected, overall)

    def _of(self, selected: SelectedLinks, overall: bool) -> Predicted:
        settings, graph = self.settings, self.model.graph
        judged = self.judgements.of(selected.relation.index) if self.judgements else Judged()
        leave = settings.judged == "leave_out"
        candidates = Candidates(
            graph,
            selected.relation,
            self.model.scorer,
            LEFT_OUT[settings.known],
            self.poll,
            selected.candidates,
            judged,
            leave,
        )
        best = best_tails(candidates, selected.heads, settings.k)
        if overall:
            best = best.take(_by_score(best)[: settings.k])
        medians = np.full(candidates.count, np.nan, np.float32)
        if settings.median_heads:
            medians = median_ranks(candidates, settings.median_heads, settings.seed)
        calibration = calibrate(candidates, settings)
        evidence = self._evidence_of(selected, best)
        rows = LinkRows(
            graph,
            selected.relation,
            best,
            medians[best.tails],
            calibration.probabilities(best.scores),
            self.evidence_schema,
            evidence,
            judged,
        )
        about = {
            "relation": _name(selected),
            "rows": len(best),
            "heads": len(selected.heads),
            "candidates": candidates.options,
            "judged": len(judged.all),
            "known_rows": int((best.known >= 0).sum()),
            "looked_for_paths": min(len(best), settings.path_links),
            "supported_rows": sum(bool(each.get("path_length")) for each in evidence.values()),
            "diversity": [diversity(best, candidates, n) for n in sorted({1, settings.k})],
            "calibration": calibration.about,
        }
        return Predicted(selected, rows, about)

    def _evidence_of(self, selected: SelectedLinks, best: BestTails) -> dict[int, dict[str, Any]]:
        """Row → column → value, for the rows with the best scores."""
        ends = [
            self.model.graph.node_type(kind).offset for kind in (selected.relation.source, selected.relation.target)
        ]
        values: dict[int, dict[str, Any]] = {}
        for each in self.evidence:
            top = _by_score(best)[: each.most]
            if not len(top):
                continue
            columns = each(selected.relation.index, best.heads[top] + ends[0], best.tails[top] + ends[1])
            for at, row in enumerate(top.tolist()):
                values.setdefault(row, {}).update({name: column[at] for name, column in columns.items()})
        return values


def links_frame(model: LinkModel, settings: LinkSettings, *, overall: bool) -> pd.DataFrame:
    """The links as a data frame. ``overall``: of each relation the k best over all heads, unless heads are named."""
    predictor = Predictor(model, settings)
    named = predictor.selection.heads or predictor.selection.heads_file
    frames = [
        chunk.to_pandas() for each in predictor.predict(overall=overall and not named) for chunk in each.rows.chunks()
    ]
    return pd.concat(frames or [predictor.schema.empty_table().to_pandas()], ignore_index=True)


def write_links(
    model: LinkModel,
    settings: LinkSettings,
    *,
    outlets: Sequence[Outlet] = (),
    poll: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Write ``links.parquet``, ``links.csv`` and ``links.json`` (the report) into the model's folder; returns the report.

    Files are written atomically. The report is written last, so it always describes the files beside it.
    """
    if not (model.path / "checkpoints").is_dir():
        raise InputError(f"{model.path} is not a run directory, which a table of links needs; name the heads instead")
    predictor = Predictor(model, settings, evidence=_edges(model, settings), poll=poll)
    folder = model.folder
    with only_writer(folder):
        files = [TABLE, CSV] if settings.csv else [TABLE]
        with ExitStack() as stack:
            parts = [stack.enter_context(replacing(folder / name)) for name in files]
            about = _write_tables(predictor, parts, outlets)
            (folder / REPORT).unlink(missing_ok=True)  # it describes an older table
            (folder / CSV).unlink(missing_ok=True)
        about |= predictor.notes
        if model.later_edges and settings.explained_links:
            about["notes"] = [*about.get("notes", ()), NOT_EXPLAINED]
        report = {"kind": "links", **model.about, "settings": settings.model_dump(), **about, "files": files}
        RunDirectory(folder).write_json(REPORT, report)
    return report


def _edges(model: LinkModel, settings: LinkSettings) -> list[Evidence]:
    """The edges that explain the best links, if the system has explanations. They are of the graph of the training and do
    not know later nodes, so a model with later edges has none."""
    from graphmill.usage.explain import EdgeEvidence

    system = RunDirectory(model.path).read_json("settings.json")["system"]
    if model.later_edges or not settings.explained_links or not entry(system).explains:
        return []
    return [EdgeEvidence(restore(model.path), settings.explained_links)]


def _write_tables(predictor: Predictor, parts: Sequence[PartFile], outlets: Sequence[Outlet]) -> dict[str, Any]:
    """Write the table and, if there is a second file, the CSV; returns their part of the report."""
    settings = predictor.settings
    relations: list[dict[str, Any]] = []
    best: list[list[dict[str, Any]]] = []
    with ExitStack() as files:
        writers = [files.enter_context(parquet_writer(parts[0].file, predictor.schema, compression="zstd"))]
        writers += [files.enter_context(pa_csv.CSVWriter(part.file, predictor.schema)) for part in parts[1:]]
        for each in predictor.predict():
            for chunk in each.rows.chunks():
                for writer in writers:
                    writer.write_table(chunk)
            relations.append(each.about)
            best.append(_best_rows(each, settings.shown_links))
            for outlet in outlets:
                outlet.send({"kind": "note", "text": f"{_name(each.selected)}: {len(each.rows):,} links"})
    rows = sum(each["rows"] for each in relations)
    return {"rows": rows, "relations": relations, "shown": _in_turn(best, settings.shown_links)}


def _name(selected: SelectedLinks) -> str:
    return " | ".join(selected.relation.key)


def _by_score(best: BestTails) -> np.ndarray:
    """Rows, the best score first; ties by head and tail."""
    return np.lexsort((best.tails, best.heads, -best.scores))


def _best_rows(each: Predicted, most: int) -> list[dict[str, Any]]:
    """Rows with the highest scores, at most one for each head and each tail."""
    heads: set[int] = set()
    tails: set[int] = set()
    rows: list[int] = []
    best = each.rows.best
    for row in _by_score(best).tolist():
        head, tail = int(best.heads[row]), int(best.tails[row])
        if head not in heads and tail not in tails:
            heads.add(head)
            tails.add(tail)
            rows.append(row)
            if len(rows) == most:
                break
    table: list[dict[str, Any]] = each.rows.table(np.array(rows, np.int64)).to_pylist()
    return table


def _in_turn(parts: Sequence[Sequence[dict[str, Any]]], most: int) -> list[dict[str, Any]]:
    """Rows taken from each relation in turn. A link that is already there in the other direction is left out."""
    chosen: list[dict[str, Any]] = []
    pairs: set[frozenset[tuple[str, str]]] = set()
    for row in chain.from_iterable(zip_longest(*parts)):
        if row is None:
            continue
        ends = frozenset({(row["head_type"], row["head_id"]), (row["tail_type"], row["tail_id"])})
        if ends not in pairs:
            pairs.add(ends)
            chosen.append(row)
    return chosen[:most]


def scoring_bytes(run: str | Path) -> int:
    """The memory of a process that scores links with a run, by the system's table of parts, or with an export, which is
    read whole.

    Raises:
        ResourceError: that is more than is free.
    """
    path, device = Path(run), torch.device("cpu")
    if (path / "checkpoints").is_dir():
        directory = RunDirectory(path)
        job, graph = job_of(directory, directory.read_json("manifest.json"))
        parts, device = parts_of(job, graph, job.batching), job.device
        in_use = sum(part.bytes(StepSizes()) for part in parts if part.when in ("weights", "always", "evaluation"))
    else:
        in_use = sum(file.stat().st_size for file in path.glob("*") if file.is_file())
    needed, free = LIBRARIES_BYTES + int(in_use), free_memory(device)
    if needed > free:
        raise ResourceError(
            f"{path}: scoring its links takes {format_size(needed)} of memory, and {format_size(free)} are free; free "
            "memory, or take a machine with more"
        )
    return needed


def estimate_links(model: LinkModel, settings: LinkSettings, peak_bytes: int) -> dict[str, Any]:
    """Score a sample of the heads of each relation, and extrapolate the time to all of them. The search for paths and
    edges, of a fixed number of links, is not in it.

    Returns ``relations`` (each with its ``heads`` to predict tails for, ``others`` scored for median ranks and
    probabilities, at most, and ``seconds``), the ``seconds`` of all, and ``peak_bytes``, the memory of the whole process.
    """
    relations = []
    for selected in selected_links(Nodes(model.graph), settings.selection()):
        heads = sampled(selected.heads, SAMPLE, "links-estimate", settings.seed, selected.relation.index)
        # The shortest of three: the first one compiles, and others may wait for other programs.
        score = partial(model.scorer.score_targets, selected.relation.index, heads)
        seconds = min(timeit.repeat(score, timer=clock, number=1, repeat=3)) / len(heads)
        others = settings.median_heads + settings.probability_heads
        every = len(selected.heads) + min(others, 2 * model.graph.node_type(selected.relation.source).count)
        name, counts = " | ".join(selected.relation.key), {"heads": len(selected.heads), "others": others}
        relations.append({"relation": name, **counts, "seconds": seconds * every})
    return {"relations": relations, "peak_bytes": peak_bytes, "seconds": sum(each["seconds"] for each in relations)}
