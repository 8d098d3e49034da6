"""The baselines of a ranking. Of links: nearest neighbours and spectral vectors with their best settings on validation, and
ComplEx. Of a recommender: matrix factorisation by its defaults.

Rankings of links are cached in a folder by graph and settings. The trainings are ordinary runs, which are reused:
ComplEx's is that of a blend's part, where there is one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError
from graphmill.evaluation.baselines.neighbours import TUNING_QUERIES
from graphmill.evaluation.ranking.comparison import Average, mrr_of, title
from graphmill.evaluation.ranking.links import LinkRanking, RelationRanking, rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, both_sides, link_queries
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import Restored, restore
from graphmill.runs.messages import Outlet
from graphmill.runs.parts import finished_run, roots_beside
from graphmill.runs.resolve import parse_settings
from graphmill.runs.train import train
from graphmill.systems import registry
from graphmill.systems.blend.trained import complex_values
from graphmill.systems.recommenders.evaluate import RecommenderEvaluator
from graphmill.systems.registry import settings_model
from graphmill.training.contract import StepSizes
from graphmill.training.settings import LINK_BASELINES
from graphmill.training.signals import StopRequest
from graphmill.verified_files import read_sealed, sealed

VERSION = 6
"""This number is raised when a baseline's computation changes. Older cached rankings are then computed again."""
NAME = "mf"
"""The system that is trained as the baseline of a recommender."""
LARGEST_WORK = 25_000_000
"""Largest number of training pairs, over all epochs. It bounds the time in the same way on every machine."""
LEAST_EPOCHS = 10
"""Lower bound of the epochs, whatever :data:`LARGEST_WORK` gives."""
EVERY = 5
"""Epochs between its evaluations and checkpoints."""


@dataclass(frozen=True)
class LinkBaselines:
    """The baselines of ``queries``: the tails of every relation, or both sides (:func:`both_sides`).

    ``folder``: the folder of the cache and the runs. ``width``: width of the spectral vectors. ``average``: the average of
    MRR (macro or micro) that chooses settings. ``device``: for ComplEx's training. ``poll`` is called between parts of the
    work, and may raise to end it. ``stop`` ends a training. ``cached``: keep the rankings, which are of a whole split.
    """

    graph: TypedGraph
    queries: LinkQueries
    folder: Path
    width: int
    average: Average = "macro"
    ks: Sequence[int] = (1, 3, 10)
    seed: int = 0
    device: str = "cpu"
    outlets: Sequence[Outlet] = ()
    poll: Callable[[], None] = field(default=lambda: None)
    stop: StopRequest | None = None
    cached: bool = True

    def rankings(self, names: Sequence[str] = LINK_BASELINES) -> dict[str, LinkRanking]:
        """Return the rankings of the named baselines, computed or read from the cache."""
        return {name: self.ranking(name)[0] for name in names}

    def ranking(self, name: str) -> tuple[LinkRanking, dict[str, Any]]:
        """Return one baseline's ranking with its settings and the ``cpu_seconds`` that it took."""
        path = self.folder / f"{name}-{self._digest(name)}.json"
        if kept := _read(path) if self.cached else None:
            (ranking, about), taken = kept, "as kept"
        else:
            began, clock = time.process_time(), time.monotonic()
            scorer, about = self.scorer(name)
            self._note(f"{title(name)}: ranking {self.queries.total:,} links")
            ranking = rank_links(scorer, self.queries, ks=self.ks)
            about["cpu_seconds"] = round(time.process_time() - began, 1)
            if self.cached:
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
        self._note(f"{title(name)}: choosing its settings on {self._valid.total:,} validation links")
        model = system.build(StepSizes())
        model.put(system.fitted(self.poll, self._valid, macro=self.average == "macro"))
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

    @property
    def _both_sides(self) -> bool:
        """Whether heads are ranked, too, as tails of the inverse relations M … 2M − 1."""
        return len(self.queries.relations) > len(self.graph.relations)

    @cached_property
    def _valid(self) -> LinkQueries:
        """The validation queries that choose settings. Raises :class:`InputError` if the graph has no validation links."""
        ask = both_sides if self._both_sides else link_queries
        return ask(self.graph, "valid", max_per_relation=TUNING_QUERIES)

    def _digest(self, name: str) -> str:
        by_name: dict[str, Any] = {"spectral": {"width": self.width}}
        content = [
            VERSION,
            self.graph.content_hash,
            [self.queries.split, self._both_sides, self.average, list(self.ks), self.seed],
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


def rival_mf(restored: Restored, *, outlets: Sequence[Outlet] = ()) -> dict[str, Any]:
    """The result of a training of ``mf`` on the data of a recommender's run. It is {} for ``mf`` itself, for systems of
    sequences, and if ``evaluation.baselines`` does not name it.

    The training has the run's seed, device and metrics; validation chooses its epoch. It is in its own folder beside the
    run directories, and is reused like any run.
    """
    system, settings = restored.system, restored.job.settings
    evaluator = system.evaluator
    if (
        not isinstance(evaluator, RecommenderEvaluator)
        or system.name == NAME
        or NAME not in settings.evaluation.baselines
    ):
        return {}
    return train_mf(settings, len(evaluator.view.train), restored.run.path.parent / NAME, outlets=outlets)


def train_mf(settings: Any, pairs: int, folder: Path, *, outlets: Sequence[Outlet] = ()) -> dict[str, Any]:
    """The result of the training for the ``settings`` of a recommender. ``pairs``: training pairs per epoch of its data;
    ``folder``: the folder of the trainings."""
    same = settings.evaluation.model_dump(include={"metrics", "top_k", "selection_metric"})
    evaluation = {"eval_every": EVERY, "baselines": [], **same}
    most = settings_model(NAME)(system=NAME).training.epochs
    epochs = max(min(LARGEST_WORK // max(pairs, 1), most), LEAST_EPOCHS)
    # Evaluation and number of epochs are not part of a run's identity. So the folder's name contains them: a training
    # that was chosen by another metric or with another bound must not be reused.
    name = hashlib.sha256(json.dumps([evaluation, epochs], sort_keys=True).encode()).hexdigest()[:8]
    values = {
        "system": NAME,
        "data": settings.data,
        "preset": "none",
        "training": {"epochs": epochs, "seed": settings.training.seed},
        "acceleration": {"device": settings.acceleration.device, "checkpoint_every_epochs": EVERY},
        "evaluation": evaluation,
        "export": {"csv": False},
    }
    return dict(train(values, "the baseline mf", root=str(folder / name), outlets=outlets))


def mf_figures(
    rival: Mapping[str, Any], split: str, metric: str
) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
    """Of :func:`rival_mf` on ``split``: all metrics, and ``metric`` of each user, by the names that a ranking gives them."""
    if not rival:
        return {}, {}
    other = restore(rival["run_dir"])
    figures = other.system.evaluate(other.model, split, final=True, poll=lambda: None)
    named = {f"{NAME}_{n}": v for n, v in figures.items() if not n.startswith(("coverage", "popularity_bias"))}
    return named, {NAME: other.system.evaluator.by_query(split, metric)["model"]}
