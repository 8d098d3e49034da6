"""Predicts the tails of a head in a relation from an export alone, without the training graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmill.arrays import load_safetensors
from graphmill.errors import InputError, SettingsError, one_line
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.export.embeddings import SCORING
from graphmill.graph.graph_location import open_graph_of
from graphmill.predictions.paths import PathEvidence
from graphmill.predictions.settings import LinkSettings
from graphmill.predictions.table import schema
from graphmill.systems.link_export import best_targets
from graphmill.systems.registry import exported_scorer
from graphmill.verified_files import REMEDIES, verified_file

if TYPE_CHECKING:
    from graphmill.graph.training_links import TrainingLinks
    from graphmill.systems.blend.part import BlendScorer
    from graphmill.systems.link_export import ExportedScorer
    from graphmill.usage.exported import Run

_AGAIN = REMEDIES["graphmill-embeddings"]


def scorer_of_export(folder: Path, manifest: Mapping[str, Any], embeddings: Embeddings) -> ExportedScorer | BlendScorer:
    """The scorer of links from an export: its manifest, its vectors, and its arrays in ``folder``.

    Raises:
        InputError: the export cannot score, or its arrays are damaged or do not belong to its vectors.
    """
    if SCORING not in manifest["files"]:
        raise InputError(f"{folder} has vectors and no {SCORING}: they are not of a system that predicts links")
    path = verified_file(folder, SCORING)
    arrays = load_safetensors(path, "np", _AGAIN)
    try:
        scorer = exported_scorer(manifest["system"], arrays, np.asarray(embeddings.vectors, dtype=np.float32))
        _require_types(scorer.links, manifest["relations"], embeddings)
        return scorer
    except (InputError, SettingsError) as error:
        raise InputError(f"{path} cannot be used: {error}; {_AGAIN}") from None
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} does not hold what scores links ({one_line(error)}); {_AGAIN}") from None


def _require_types(links: TrainingLinks, relations: Sequence[Sequence[str]], embeddings: Embeddings) -> None:
    """Raise :class:`InputError` unless each relation joins the rows of its two node types."""
    if len(relations) != len(links.outgoing):
        raise InputError(f"it has {len(links.outgoing)} relations, the manifest {len(relations)}")
    rows = [np.flatnonzero(embeddings.types == number) for number in range(len(embeddings.type_names))]
    blocks = {kind: (int(of_type[0]), len(of_type)) for kind, of_type in zip(embeddings.type_names, rows, strict=True)}
    together = all(of_type[-1] - of_type[0] + 1 == len(of_type) for of_type in rows)
    for key, matrix, offsets in zip(relations, links.outgoing, links.offsets, strict=True):
        for kind, first, count in zip((key[0], key[2]), offsets, matrix.shape, strict=True):
            if not together or blocks.get(kind, (first, 0)) != (first, count):
                raise InputError(f"relation {'|'.join(key)} is not between the rows of its node types")


def is_for_an_export(run: Path, manifest: Mapping[str, Any], settings: LinkSettings) -> bool:
    """Whether one head's tails in one relation are asked for of the export of ``run``, which can score links,
    and its training graph, which anything else needs, is not on this machine."""
    alone = len(settings.heads) == len(settings.relations) == 1
    graph_needed = bool(settings.judgements or settings.candidates or settings.candidates_file)
    if not alone or graph_needed or SCORING not in manifest["files"]:
        return False
    try:
        if "joined" not in manifest:  # nodes that joined later are in no graph
            open_graph_of(run, manifest["data"])
            return False
    except InputError:
        pass
    return True


def relation_of_export(
    run: Run, relation: str, heads: Sequence[str] = (), tails: Sequence[str] = (), *, head_type: str = ""
) -> int:
    """The number of a relation, by its name or source|name|target.

    If several have this name, it is the one that joins nodes of the types of all ``heads`` and ``tails`` (ids).
    ``head_type``: the type of the heads, if it is known.

    Raises:
        InputError: no such relation or node, or not one relation of this name joins such nodes.
    """
    keys = [tuple(key) for key in run.manifest["relations"]]
    numbers = [number for number, key in enumerate(keys) if relation in (key[1], "|".join(key))]
    if len(numbers) > 1:
        sources = {head_type} if head_type else _types_of_all(run, heads)
        targets = _types_of_all(run, tails)
        fitting = [n for n in numbers if sources >= {keys[n][0]} and targets >= {keys[n][2]}]
        numbers = fitting if len(fitting) == 1 else numbers
    if len(numbers) != 1:
        names = ", ".join("|".join(keys[number]) for number in numbers or range(len(keys)))
        what = f"is the name of {len(numbers)} relations" if numbers else "is no relation of this model"
        raise InputError(f"'{relation}' {what}; write one of {names}")
    return numbers[0]


def _types_of_all(run: Run, nodes: Sequence[str]) -> set[str]:
    """The node types in which all of these ids exist; all types if there are no ids."""
    types = set(run.nodes.type_names)
    for node in nodes:
        types &= {run.type_of(row) for row in run.known.find(node) or [run.row(node)]}
    return types


def links_of_export(run: Run, settings: LinkSettings) -> pd.DataFrame:
    """The ``k`` likeliest tails of a head in a relation, from the export alone.

    If several relations have this name, it takes the one whose source is the head's type.
    """
    head = settings.heads[0]
    scorer, number = run.scorer, relation_of_export(run, settings.relations[0], [head], head_type=settings.head_type)
    source = run.manifest["relations"][number][0]
    row = run.row(head, source)
    best, scores, trained = best_targets(scorer, number, row, settings.k, known=settings.known == "flag")
    values = {
        **run._about(np.full(len(best), row), "head_"),
        "relation": str(run.manifest["relations"][number][1]),
        **run._about(best, "tail_"),
        "score": scores,
        "rank": np.arange(1, len(best) + 1, dtype=np.int32),
        "known": np.where(trained, "train", ""),
    }
    columns = schema(PathEvidence.schema).names
    return pd.DataFrame({name: values.get(name) for name in columns}, index=range(len(best)))
