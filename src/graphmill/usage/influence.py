"""The influence analysis of a run: its checkpoints, its passes over the triples to explain, and its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from graphmill.atomic_files import writing
from graphmill.errors import InputError, SettingsError
from graphmill.influence.results import CSV_COLUMNS, Explanation, Names, write_csv, write_json
from graphmill.influence.settings import InfluenceSettings
from graphmill.influence.tracin import TracedCheckpoint, influence, top
from graphmill.predictions.selection import resolve_link
from graphmill.runs.export import Restored, restore
from graphmill.sampling.keyed import generator
from graphmill.training.checkpoint import CheckpointInfo, CheckpointStore
from graphmill.training.gradients import Traceable, Tracer
from graphmill.training.memory import parse_size
from graphmill.training.run_state import load_model

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph


def trace_influence(
    run_dir: str | Path,
    settings: InfluenceSettings | None = None,
    *,
    out: str | Path = "",
    poll: Callable[[], None] = lambda: None,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Analyse a finished run; writes ``influence/<mode>.json`` and ``.csv`` into it (or into ``out``).

    Returns the content of the JSON file.

    Raises:
        InputError: not a run, no checkpoints, or no such triple.
        SettingsError: the system cannot be traced, or a setting does not fit it.
    """
    settings = settings or InfluenceSettings()
    restored = restore(run_dir)
    if not restored.entry.traces:
        raise SettingsError(
            f"influence needs a system that trains on triples and offers their gradients; {restored.system.name} does "
            "not (conve does)"
        )
    for text in restored.notes:
        note(text)
    folder = Path(out) if out else restored.run.path / "influence"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return _Analysis(restored, settings, folder, poll, note).run()


@dataclass
class _Analysis:
    restored: Restored
    settings: InfluenceSettings
    folder: Path
    poll: Callable[[], None]
    note: Callable[[str], None]

    def __post_init__(self) -> None:
        restored, settings = self.restored, self.settings
        self.system = cast(Traceable, restored.system)
        self.names = names_of(restored.graph)
        self.train = self.system.traced_triples("train")
        self.infos = chosen_checkpoints(restored, settings.checkpoints)
        self.store = CheckpointStore(restored.run.checkpoints)
        self.checkpoints = [TracedCheckpoint(i.epoch, i.learning_rate, partial(self._opened, i)) for i in self.infos]

    def run(self) -> dict[str, Any]:
        explained = self._explained()
        rows = max(1, int(parse_size(self.settings.memory_budget) // (4 * len(self.train))))
        results: list[Explanation] = []
        for start in range(0, len(explained), rows):
            results += self._explain(explained[start : start + rows])
        content = self._head(len(explained)) | {"results": [e.to_json(self.train, self.names) for e in results]}
        write_json(self.folder / f"{self.settings.mode}.json", content)
        rows_of = (row for e in results for row in e.to_rows(self.train, self.names))
        write_csv(self.folder / f"{self.settings.mode}.csv", CSV_COLUMNS, rows_of)
        return content

    def _explain(self, explained: np.ndarray) -> list[Explanation]:
        what = (self.system, self.checkpoints, self.train, explained, self.settings.batch_size)
        total = influence(*what, poll=self.poll)
        result = []
        for triple, values in zip(explained, total, strict=True):
            proponents, opponents = top(values, self.settings.top_k)
            listed = [*proponents.tolist(), *opponents.tolist()]
            result.append(Explanation(triple, proponents, opponents, {i: float(values[i]) for i in listed}))
        return result

    def _opened(self, info: CheckpointInfo) -> Tracer:
        """A checkpoint as :class:`TracedCheckpoint` opens it. All share one model, whose weights this replaces, so use
        one at a time."""
        self.note(f"checkpoint {self.infos.index(info) + 1} of {len(self.infos)}")
        loaded = self.store.load(info)
        load_model(loaded.snapshot.tensors, self.restored.model, str(loaded.path))
        return self.system.tracer(self.restored.model, self.settings.precision)

    # ------------------------------------------------------------------ what is asked

    def _explained(self) -> np.ndarray:
        if self.settings.mode == "single":
            relation, head, tail = resolve_link(self.restored.graph, *self.settings.triple)
            return np.array([[head, relation.index, tail]])
        triples = self.system.traced_triples(self.settings.split)
        if not len(triples):
            raise InputError(f"the graph has no triple in its {self.settings.split} split")
        limit = self.settings.max_test_triples
        if 0 < limit < len(triples):
            rng = generator(self.settings.seed, "influence", self.settings.split)
            triples = triples[np.sort(rng.choice(len(triples), limit, replace=False))]
        return triples

    def _head(self, explained: int) -> dict[str, Any]:
        return {
            "num_test_triples": explained,
            "num_training_triples": len(self.train),
            "top_k": self.settings.top_k,
            "learning_rate": self.infos[-1].learning_rate,
            "checkpoints": [{"epoch": i.epoch, "learning_rate": i.learning_rate, "loss": i.loss} for i in self.infos],
            "settings": self.settings.model_dump(),
            "fingerprint": self.restored.fingerprint,
        }


def names_of(graph: TypedGraph) -> Names:
    """Ids, names and relation names of a graph."""
    nodes = graph.node_table()
    relations = [r.name for r in graph.relations]
    if len(set(relations)) < len(relations):
        relations = [" · ".join(r.key) for r in graph.relations]
    return Names(nodes.column("id").to_pylist(), nodes.column("name").to_pylist(), relations)


def chosen_checkpoints(restored: Restored, limit: int) -> list[CheckpointInfo]:
    """At most ``limit`` checkpoints (0: all), spread evenly over the run's falling loss.

    Raises :class:`InputError` if the run has no checkpoint that was followed by a training step.
    """
    directory = restored.run.checkpoints
    spread = CheckpointStore(directory, keep_influence=limit or 10_000).influence()
    for infos in (spread, CheckpointStore(directory).list()):
        if chosen := [info for info in infos if info.learning_rate > 0]:
            return chosen
    raise InputError(
        f"{restored.run.path} has no checkpoint to trace; train with acceleration.keep_influence: 5 to keep some"
    )
