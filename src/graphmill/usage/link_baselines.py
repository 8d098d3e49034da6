"""The baselines of a link ranking: nearest neighbours and spectral vectors with their best settings on validation, and
ComplEx.

Their rankings are cached in a folder by graph and settings. ComplEx's training is an ordinary run: that of a blend's part,
where there is one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError
from graphmill.evaluation.baselines.neighbours import SHRINKAGES, TUNING_QUERIES, NeighbourScorer
from graphmill.evaluation.ranking.comparison import Average, mrr_of, title
from graphmill.evaluation.ranking.links import LinkRanking, RelationRanking, rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, both_sides, link_queries
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.messages import Outlet, Throttle
from graphmill.runs.parts import finished_run, roots_beside
from graphmill.runs.resolve import parse_settings
from graphmill.runs.train import train
from graphmill.systems import registry
from graphmill.systems.blend.complex_part import complex_values
from graphmill.training.contract import StepSizes
from graphmill.training.settings import LINK_BASELINES
from graphmill.training.signals import StopRequest
from graphmill.verified_files import read_sealed, sealed

VERSION = 6
"""This number is raised when a baseline's computation changes. Older cached rankings are then computed again."""
NOTE_SECONDS = 10.0
"""Seconds between two progress notes."""


@dataclass(frozen=True)
class LinkBaselines:
    """The baselines of the queries of one split.

    ``sides``: "tails" of every relation, or "both"; then heads are ranked as tails of the inverse relations M … 2M − 1.
    ``width``: width of the spectral vectors. ``average``: the average of MRR (macro or micro) that chooses settings.
    ``folder``: the folder of the cache and the runs. ``device``: for ComplEx's training. ``poll`` is called between parts of
    the work, and may raise to end it. ``stop`` ends a training. ``selected``: rank these queries of the split, and cache
    nothing.
    """

    graph: TypedGraph
    split: str
    folder: Path
    width: int
    sides: str = "tails"
    average: Average = "macro"
    ks: Sequence[int] = (1, 3, 10)
    seed: int = 0
    device: str = "cpu"
    outlets: Sequence[Outlet] = ()
    poll: Callable[[], None] = field(default=lambda: None)
    stop: StopRequest | None = None
    selected: LinkQueries | None = None

    @cached_property
    def queries(self) -> LinkQueries:
        """The queries to rank."""
        return self.selected or self._queries(self.split)

    def rankings(self, names: Sequence[str] = LINK_BASELINES) -> dict[str, LinkRanking]:
        """Return the rankings of the named baselines, computed or read from the cache."""
        return {name: self.ranking(name)[0] for name in names}

    def ranking(self, name: str) -> tuple[LinkRanking, dict[str, Any]]:
        """Return one baseline's ranking with its settings and the ``cpu_seconds`` that it took."""
        path = self.folder / f"{name}-{self._digest(name)}.json"
        if kept := None if self.selected else _read(path):
            (ranking, about), taken = kept, "as kept"
        else:
            began, clock = time.process_time(), time.monotonic()
            scorer, about = self.scorer(name)
            self._note(f"{title(name)}: ranking {self.queries.total:,} links")
            if isinstance(scorer, NeighbourScorer):
                scorer.progress = self._progress(f"{title(name)}: ranking", _heads(self.queries))
            ranking = rank_links(scorer, self.queries, ks=self.ks)
            about["cpu_seconds"] = round(time.process_time() - began, 1)
            if not self.selected:
                self._keep(path, ranking, about)
            taken = f"in {time.monotonic() - clock:.0f} s"
        described = ", ".join(f"{key} {value}" for key, value in about.items())
        self._note(f"{title(name)}: MRR {mrr_of(ranking, self.average):.4f} {taken} ({described})")
        return ranking, about

    def scorer(self, name: str) -> tuple[Scorer, dict[str, Any]]:
        """Return one baseline's scorer, with its settings."""
        return self._complex() if name == "complex" else self._neighbours(name)

    def _neighbours(self, name: str) -> tuple[Scorer, dict[str, Any]]:
        width = {"embedding_dim": self.width} if name == "spectral" else {}
        values = {"system": name, "preset": "none", "model": width, "training": {"seed": self.seed}}
        settings = parse_settings(values, f"the baseline {name}")
        system: Any = registry.create(name, self.graph, settings, "full")
        times = 1 if system.entries.strengths is None else 2  # with weights of edges and without
        self._note(f"{title(name)}: choosing its settings on {self._valid.total:,} validation links")
        shrinkages = times * len(SHRINKAGES) * _heads(self._valid)
        chosen = self._progress(f"{title(name)}: choosing its settings", shrinkages)
        macro = self.average == "macro"
        model = system.build(StepSizes())
        model.put(system.fitted(self.poll, self._valid, macro=macro, progress=chosen))
        scorer = system.scorer(model)
        scorer.poll = self.poll
        about = {"width": self.width} if name == "spectral" else {}
        return scorer, {**about, **scorer.setting.to_dict()}

    def _complex(self) -> tuple[Scorer, dict[str, Any]]:
        self.poll()
        values, root = complex_values(self.graph, self.seed, self.device), self.folder / "complex"
        where, roots = "the baseline ComplEx", [root, *roots_beside(self.folder.parent, "complex")]
        run = finished_run(self.graph, values, where, roots)
        if run is None:
            run = Path(train(values, where, root=str(root), outlets=self.outlets, stop=self.stop)["run_dir"])
        restored = restore(run)
        scorer: Any = restored.system.scorer(restored.model)
        scorer.poll = self.poll
        return scorer, {**values["objective"], "epoch": restored.epoch}

    def _queries(self, split: str, limit: int = 0) -> LinkQueries:
        ask = both_sides if self.sides == "both" else link_queries
        return ask(self.graph, split, max_per_relation=limit)

    @cached_property
    def _valid(self) -> LinkQueries:
        """The validation queries that choose settings. Raises :class:`InputError` if the graph has no validation links."""
        return self._queries("valid", TUNING_QUERIES)

    def _digest(self, name: str) -> str:
        by_name: dict[str, Any] = {"spectral": {"width": self.width}}
        content = [
            VERSION,
            self.graph.content_hash,
            [self.split, self.sides, self.average, list(self.ks), self.seed],
            by_name.get(name, {}),
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def _keep(self, path: Path, ranking: LinkRanking, about: dict[str, Any]) -> None:
        kept = asdict(ranking)
        for relation in kept["relations"]:
            relation["reciprocal"] = relation["reciprocal"].tolist()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(sealed({"about": about, "ranking": kept})).encode())
        except OSError as error:
            self._note(
                f"the ranking could not be kept in {self.folder} ({error.strerror}): it is computed anew next time"
            )

    def _progress(self, stage: str, total: int) -> Callable[[int], None]:
        """A function that is called with the newly finished part of a stage. It notes the progress at most every
        :data:`NOTE_SECONDS`."""
        every, completed = Throttle(NOTE_SECONDS), 0
        every.due()

        def more(count: int) -> None:
            nonlocal completed
            completed += count
            if every.due():
                self._note(f"{stage}, {min(100 * completed / max(total, 1), 100):.0f} % done")

        return more

    def _note(self, text: str) -> None:
        for outlet in self.outlets:
            outlet.send({"kind": "note", "text": f"baseline {text}"})


def _read(path: Path) -> tuple[LinkRanking, dict[str, Any]] | None:
    """A ranking that was cached, and what is known about it; None if there is none, or a damaged one."""
    try:
        kept = read_sealed(path, "")
        rows = [{**row, "reciprocal": np.array(row["reciprocal"])} for row in kept["ranking"]["relations"]]
        relations, ks = tuple(RelationRanking(**row) for row in rows), tuple(kept["ranking"]["ks"])
        return LinkRanking(**{**kept["ranking"], "relations": relations, "ks": ks}), kept["about"]
    except (InputError, KeyError, TypeError):
        return None


def _heads(queries: LinkQueries) -> int:
    """Number of heads to score: each head of each relation counts once."""
    return sum(len(np.unique(relation.heads)) for relation in queries.relations)
