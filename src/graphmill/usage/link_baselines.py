"""The baselines of a link ranking: nearest neighbours, spectral vectors and ComplEx, each with its best settings on
validation.

Their rankings are cached in a folder by graph and settings. ComplEx's trainings are ordinary runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.atomic_files import write_atomically
from graphmill.evaluation.baselines.neighbours import (
    TUNING_QUERIES,
    NeighbourScorer,
    ScoredRows,
    choose,
    knn_rows,
    spectral_rows,
)
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.evaluation.ranking.against_baselines import title
from graphmill.evaluation.ranking.links import AUC_NEGATIVES, LinkRanking, rank_links
from graphmill.evaluation.ranking.mrr_ratio import Average
from graphmill.evaluation.ranking.queries import LinkQueries, both_sides, link_queries
from graphmill.evaluation.ranking.ranking_bytes import from_bytes, to_bytes
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.graph.spectral import PRODUCTS
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.messages import Outlet, Throttle
from graphmill.runs.train import train
from graphmill.systems.factor.memory import scores_per_link
from graphmill.systems.factor.settings import FactorSettings
from graphmill.systems.factor.system import FactorScorer
from graphmill.training.settings import LINK_BASELINES
from graphmill.training.signals import StopRequest

MINUTES = 2.0
"""Time for training and tuning ComplEx, in minutes of one CPU core. It is counted by the amount of work, so that every
machine does the same."""
VERSION = 1
"""This number is raised when a baseline's computation changes. Older cached rankings are then computed again."""
FORMS: dict[str, dict[str, float]] = {f"n3_{n3}": {"n3": n3} for n3 in (0.02, 0.05, 0.1)}
"""ComplEx's objectives to choose from: the more links a node has, the less norm it needs. With 0.1, the vectors of a graph
such as Nations stay at zero; with less, those of Hetionet overfit."""
WIDTH, EPOCHS = 128, 24
"""ComplEx's width as a baseline, and the number of equal parts of its training, after each of which it is evaluated."""
FIRST_SHARE = 2 / 3
"""Fraction of the time in which all forms are trained. The best form gets the rest."""
MOST_PASSES = 60
"""Largest number of passes over the links, for a graph so small that the time would allow more."""
NOTE_SECONDS = 10.0
"""Seconds between two progress notes."""
FLOP_A_SECOND, BYTES_A_SECOND = 25e9, 4e9
"""Assumed rates of one core, which turn the minutes into an amount of work, so that every machine does the same work."""


@dataclass(frozen=True)
class LinkBaselines:
    """The baselines of the queries of one split.

    ``sides``: "tails" of every relation, or "both"; then heads are ranked as tails of the inverse relations M … 2M − 1.
    ``width``: width of the spectral vectors. ``minutes``: time for ComplEx. ``average``: the average of MRR (macro or
    micro) that chooses settings. ``folder``: the folder of the cache and the runs. ``device``: for
    ComplEx's trainings. ``poll`` is called between parts of the work, and may raise to end it. ``stop`` ends a
    training.
    """

    graph: TypedGraph
    split: str
    folder: Path
    width: int
    sides: str = "tails"
    average: Average = "macro"
    ks: Sequence[int] = (1, 3, 10)
    auc_negatives: int = AUC_NEGATIVES
    seed: int = 0
    device: str = "cpu"
    outlets: Sequence[Outlet] = ()
    poll: Callable[[], None] = field(default=lambda: None)
    stop: StopRequest | None = None

    @cached_property
    def queries(self) -> LinkQueries:
        """The queries to rank."""
        return self._asked(self.split)

    @cached_property
    def edges(self) -> TrainEdges:
        """The training edges in both directions."""
        return TrainEdges(self.graph)

    def rankings(self, names: Sequence[str] = LINK_BASELINES) -> dict[str, LinkRanking]:
        """Return the rankings of the named baselines, computed or read from the cache."""
        return {name: self.ranking(name)[0] for name in names}

    def ranking(self, name: str) -> tuple[LinkRanking, dict[str, Any]]:
        """Return one baseline's ranking with its settings and the ``cpu_seconds`` that it took."""
        path = self.folder / f"{name}-{self._digest(name)}.npz"
        try:
            found, about = from_bytes(path.read_bytes())
            taken = "as kept"
        except (OSError, ValueError, KeyError, TypeError):  # not cached yet, or damaged
            began, clock = time.process_time(), time.monotonic()
            scorer, about = self.scorer(name)
            self._note(f"{title(name)}: ranking {self.queries.total:,} links")
            if isinstance(scorer, NeighbourScorer):
                scorer.progress = self._progress(f"{title(name)}: ranking", _heads(self.queries))
            found = self._ranked(scorer)
            about["cpu_seconds"] = round(time.process_time() - began, 1)
            self._keep(path, to_bytes(found, about))
            taken = f"in {time.monotonic() - clock:.0f} s"
        shown = ", ".join(f"{key} {value}" for key, value in about.items())
        self._note(f"{title(name)}: MRR {self._mean(found):.4f} {taken} ({shown})")
        return found, about

    def scorer(self, name: str) -> tuple[Scorer, dict[str, Any]]:
        """Return one baseline's scorer at its best settings, with those settings."""
        return self._complex() if name == "complex" else self._neighbours(name)

    def _neighbours(self, name: str) -> tuple[Scorer, dict[str, Any]]:
        rows_of = knn_rows(self.edges) if name == "knn" else self._spectral_rows()
        self._note(f"{title(name)}: choosing its settings on {self._valid.total:,} validation links")
        chosen = self._progress(f"{title(name)}: choosing its settings", len(rows_of) * _heads(self._valid))
        macro = self.average == "macro"
        setting, _ = choose(self.edges, self._valid, rows_of, macro=macro, poll=self.poll, progress=chosen)
        rows: ScoredRows = rows_of[setting.shrinkage]()
        scorer = NeighbourScorer(self.edges, rows, setting, self.poll)
        width = {"width": self.width} if name == "spectral" else {}
        return scorer, {**width, **setting.to_dict()}

    def _spectral_rows(self) -> dict[float, Callable[[], ScoredRows]]:
        done = self._progress(f"{title('spectral')}: singular vectors of width {self.width}", PRODUCTS)

        def product() -> None:
            self.poll()
            done(1)

        return spectral_rows(self.edges, self.width, self.seed, product)

    def _complex(self) -> tuple[Scorer, dict[str, Any]]:
        form, found = self._best_complex()
        restored = restore(found["run_dir"])
        scorer = FactorScorer(restored.model, self.edges, self.poll)  # type: ignore[arg-type]
        return scorer, {"width": WIDTH, **FORMS[form], "epoch": restored.epoch}

    def _best_complex(self) -> tuple[str, dict[str, Any]]:
        """The chosen one of :data:`FORMS` and its training's result."""
        first = max(1, round(EPOCHS * FIRST_SHARE / len(FORMS)))
        found = {form: self._train(form, first) for form in FORMS}
        best = max(found, key=lambda form: float(found[form]["best_metric"] or 0.0))
        return best, self._train(best, first + EPOCHS - first * len(FORMS))

    def _train(self, form: str, epochs: int) -> dict[str, Any]:
        self.poll()
        values = self._values(form)
        values["training"]["epochs"] = epochs
        root = str(self.folder / "complex")
        return dict(train(values, "the baseline ComplEx", root=root, outlets=self.outlets, stop=self.stop))

    def _values(self, form: str) -> dict[str, Any]:
        values: dict[str, Any] = {
            "system": "complex",
            "data": str(self.graph.path),
            "preset": "none",
            "model": {"embedding_dim": WIDTH},
            "objective": dict(FORMS[form]),
            "training": {"seed": self.seed, "patience_epochs": 0},
            "acceleration": {"device": self.device, "precision": "fp32"},
            "evaluation": {"eval_every": 2, "max_queries": TUNING_QUERIES},
            "export": {"csv": False},
        }
        settings = FactorSettings.model_validate(values)
        scores = settings.step_size() * scores_per_link(self.graph, settings)
        # Three products of scores and vectors; ten passes over the scores, and eight over all vectors.
        seconds = (
            6 * scores * WIDTH / FLOP_A_SECOND + (10 * scores + 8 * self.graph.num_nodes * WIDTH) * 4 / BYTES_A_SECOND
        )
        links = sum(len(self.edges.edges(relation).src) for relation in self.edges.relations)
        steps = min(60 * MINUTES / seconds, MOST_PASSES * math.ceil(links / FactorSettings.base_batch))
        values["training"]["steps_per_epoch"] = max(1, round(steps / EPOCHS))
        return values

    def _ranked(self, scorer: Scorer) -> LinkRanking:
        return rank_links(scorer, self.queries, ks=self.ks, auc_negatives=self.auc_negatives, seed=self.seed)

    def _asked(self, split: str, limit: int = 0) -> LinkQueries:
        ask = both_sides if self.sides == "both" else link_queries
        return ask(self.graph, split, max_per_relation=limit)

    @cached_property
    def _valid(self) -> LinkQueries:
        """The validation queries that choose settings. Raises :class:`InputError` if the graph has no validation links."""
        return self._asked("valid", TUNING_QUERIES)

    def _mean(self, ranking: LinkRanking) -> float:
        return (ranking.macro if self.average == "macro" else ranking.micro)["mrr"]

    def _digest(self, name: str) -> str:
        own: dict[str, Any] = {"spectral": {"width": self.width}, "complex": {"minutes": MINUTES, "forms": FORMS}}
        content = [
            VERSION,
            self.graph.content_hash,
            [self.split, self.sides, self.average, list(self.ks), self.auc_negatives, self.seed],
            own.get(name, {}),
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def _keep(self, path: Path, content: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        except OSError as error:
            self._note(
                f"the ranking could not be kept in {self.folder} ({error.strerror}): it is computed anew next time"
            )

    def _progress(self, stage: str, total: int) -> Callable[[int], None]:
        """A function that is called with the newly finished part of a stage. It notes the progress at most every
        :data:`NOTE_SECONDS`."""
        every, done = Throttle(NOTE_SECONDS), 0
        every.due()

        def more(count: int) -> None:
            nonlocal done
            done += count
            if every.due():
                self._note(f"{stage}, {min(100 * done / max(total, 1), 100):.0f} % done")

        return more

    def _note(self, text: str) -> None:
        for outlet in self.outlets:
            outlet.send({"kind": "note", "text": f"baseline {text}"})


def _heads(queries: LinkQueries) -> int:
    """Number of heads to score: each head of each relation counts once."""
    return sum(len(np.unique(relation.heads)) for relation in queries.relations)
