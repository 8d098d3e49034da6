"""Ranks a run's held-out links or items beside its baselines, and writes ``ranking.json`` into the run; or only the
links that a question asks for, into ``question.json``.

The system's methods decide which of the two it is. ``kind`` in the file names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.errors import InputError, SettingsError
from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.probe import LabelSettings
from graphmill.evaluation.ranking.comparison import SIMPLER, Average, compare_to_baselines, grouped
from graphmill.evaluation.ranking.links import LinkRanking, rank_links
from graphmill.evaluation.ranking.paired_difference import grouped_mean, paired_bootstrap
from graphmill.evaluation.ranking.parts import NodeLabels, item_parts, parts
from graphmill.evaluation.ranking.per_query import values_of
from graphmill.evaluation.ranking.queries import LinkQueries, first_nodes, link_queries, narrowed
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.evaluation.ranking.windows import RECENT, TimeWindows
from graphmill.graph.interactions import interaction_relation
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.figures import agreement, matrix_figures
from graphmill.predictions.judgements import Judged, Judgements, read_judgements
from graphmill.predictions.question import Question, read_question
from graphmill.predictions.selection import Nodes, SelectedLinks, selected_links
from graphmill.predictions.settings import RankSettings
from graphmill.predictions.top_tails import Candidates
from graphmill.reports.card import write_card
from graphmill.runs.export import Restored
from graphmill.runs.messages import Outlet
from graphmill.sampling.keyed import sampled
from graphmill.systems.recommenders.evaluate import RecommenderEvaluator, known
from graphmill.systems.recommenders.settings import METRICS
from graphmill.systems.sequences.evaluate import SequenceEvaluator
from graphmill.training.signals import StopRequest
from graphmill.usage.baselines import LinkBaselines, mf_figures, rival_mf
from graphmill.usage.probe import node_labels
from graphmill.verified_files import MANIFEST as EXPORTED

FILE, ANSWER = "ranking.json", "question.json"
SPECTRAL_WIDTH = 128
"""Width of the baseline's spectral vectors, if the model has no vectors."""
MOST_ROWS = 10_000
"""Rows (heads) of the matrices of all relations together that a ranking scores; of larger ones, drawn rows."""


def rank_any(
    restored: Restored,
    split: str = "test",
    settings: RankSettings | None = None,
    *,
    outlets: Sequence[Outlet] = (),
    poll: Callable[[], None] = lambda: None,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Rank the held-out data of a run, write ``ranking.json`` and the card, and return the main metrics.

    It ranks links or items. For items, ``figures`` groups metrics by scorer
    or protocol: {"model", "untied", "popularity", ...: {metric: value}}. Links have ``mrr`` by scorer, and
    ``macro``, ``micro``, ``against``, ``parts``, ``predicted`` and ``truth`` as in
    ``ranking.json``. ``labels`` has ``notes`` where no query has a label. A question or judgements in ``settings``
    are ranked alone, into ``question.json``. ``coverage``: how the ids of the lists and labels match
    the graph's. ``stop`` ends a training of a baseline.

    Raises:
        SettingsError: ``settings`` for links, and the system recommends items. InputError: a file that cannot be used.
    """
    wanted, how = settings or RankSettings(), {"outlets": outlets, "poll": poll, "stop": stop}
    if restored.entry.recommends:
        if wanted.model_copy(update={"labels": LabelSettings()}) != RankSettings():
            raise SettingsError(
                f"{restored.system.name} recommends items: questions, judgements and truth are for predicted links"
            )
        labels = node_labels(restored.graph, wanted.labels) if wanted.labels.file else None
        result = _rank_items(restored, split, labels, outlets, poll)
    else:
        # The ranking of the question, else of all links of the split.
        every = Question.model_validate({"split": split})
        asking = read_question(wanted.question) if wanted.question else every
        question = QuestionRanking(restored.graph, wanted, asking)
        result, labels = _rank_links(restored, question, how), question.labels
    if labels and not labels.parts_in(result["parts"]):
        note = f"no held-out link of {split} has an end with a {labels.title}, so that no figures are shown by it"
        result["labels"] = {"notes": [f"{note}; a graph does not keep a category that held-out nodes alone have"]}
    if (restored.export_folder / EXPORTED).is_file():
        write_card(restored.run.path)
    return result


def _rank_items(
    restored: Restored, split: str, labels: NodeLabels | None, outlets: Sequence[Outlet], poll: Callable[[], None]
) -> dict[str, Any]:
    about, system = {**restored.used, "split": split}, cast(Any, restored.system)
    # Prefixes of its metrics name the compared models and the protocols.
    metrics = system.evaluate(restored.model, split, final=True, poll=poll)
    part_rows, more = _item_parts(restored, split, labels)
    metrics |= more
    metric = restored.job.settings.evaluation.selection_metric
    of_mf, by_query = mf_figures(rival_mf(restored, outlets=outlets), split, metric)
    metrics |= of_mf
    best = _beside_best(metric, system.evaluator.by_query(split, metric) | by_query) if system.held_out(split) else {}
    figures = grouped(metrics)
    about["selected_on"] = restored.selected_on
    about["repeat_share"] = metrics.get("repeat_share", 0.0)
    restored.run.write_json(FILE, {"kind": "items", **about, "figures": figures, **best, "parts": part_rows})
    matches = [dict(labels.coverage)] if labels else []
    return {**about, "figures": figures["model"], "beside": figures, "parts": part_rows, "coverage": matches}


def _beside_best(metric: str, values: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """The entry ``against``: the model and the best of the simpler ways by the metric that chose the epoch, with the
    interval of their ratio. ``values`` [Q] by scorer."""
    rivals = {who: of_query.mean() for who, of_query in values.items() if who in SIMPLER and len(of_query)}
    if not rivals:
        return {}
    best = max(rivals, key=lambda who: rivals[who])
    pair = paired_bootstrap(values["model"], values[best])
    low, high = pair.ratio_low, pair.ratio_high
    if np.isnan(low) and pair.second:  # a draw has nothing right: by the difference
        low, high = 1 + pair.low / pair.second, 1 + pair.high / pair.second
    figures = {"model": pair.first, best: pair.second}
    about = {"best": best, "metric": metric, "figures": figures, "low": low, "high": high, "queries": pair.queries}
    return plain({"against": about})


def _item_parts(
    restored: Restored, split: str, labels: NodeLabels | None
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Parts of the held-out items of an evaluated split, and, where all are newer than the training, figures of the
    popularity of late."""
    evaluator, graph = restored.system.evaluator, restored.graph
    if not cast(Any, restored.system).held_out(split):
        return [], {}
    relation = interaction_relation(graph)
    if isinstance(evaluator, SequenceEvaluator):
        of_split, last = evaluator.split(split), max(evaluator.settings.evaluation.top_k)
        counts = (
            np.bincount(evaluator.baselines.users, minlength=evaluator.sequences.num_users),
            evaluator.baselines.popularity,
        )
        pairs, ends = (of_split.users, of_split.targets), first_nodes(graph)[relation.index]
        return item_parts(pairs, evaluator.by_query(split, f"hr@{last}"), last, counts, ends, labels), {}
    assert isinstance(evaluator, RecommenderEvaluator)
    view = evaluator.view
    ks = [k for k in evaluator.settings.evaluation.top_k if k <= view.num_items]
    windows, more = TimeWindows.of(graph, split), {}
    if windows:
        late = torch.from_numpy(windows.recent(relation.index, view.num_items).astype(np.float64))
        more[RECENT] = lambda users: late.expand(len(users), -1)
    lists = evaluator.all_lists(split, more)
    held = known(view.held_out(split))
    users, items = held.of(np.arange(view.num_users))
    hits = {}
    for who, each in lists.items():
        row, place = np.nonzero(each.items[:, : max(ks)] >= 0)
        listed = sorted_unique(each.users[row] * view.num_items + each.items[row, place])
        hits[who] = in_sorted(users * view.num_items + items, listed)
    rows = item_parts(
        (users, items),
        hits,
        max(ks),
        (view.train.counts, view.train_by_item.counts),
        first_nodes(graph)[relation.index],
        labels,
        (windows.names(), windows.number(relation.index, users, items)) if windows else None,
    )
    of_late = lists[RECENT].metrics(METRICS, ks) if windows else {}
    return rows, {f"{RECENT}_{name}": value for name, value in of_late.items()}


def _rank_links(restored: Restored, wanted: QuestionRanking, how: Mapping[str, Any]) -> dict[str, Any]:
    """Rank links, or only those that are asked for, beside the baselines."""
    graph, system, seed = restored.graph, cast(Any, restored.system), restored.job.settings.training.seed
    alone, split = bool(wanted.settings.question or wanted.settings.judgements), wanted.question.split
    about = {**restored.used, "split": split}
    _ = wanted.truth, wanted.labels  # a file that cannot be used is refused before the work
    scorer, windows = system.scorer(restored.model), TimeWindows.of(graph, split)
    every = link_queries(graph, split) if alone else system.ranking_queries(split)
    queries = wanted.queries(every) if alone else every
    rankings = _rankings(restored, system.scorer_for(restored.model, split), every, queries, windows, how)
    baselines = {name: ranking for name, ranking in rankings.items() if name != "model"}
    average: Average = "macro" if alone else system.average
    compared = compare_to_baselines(rankings["model"], baselines, average=average, seed=seed)
    part_rows = parts(queries, rankings, first_nodes(graph), wanted.labels, windows)
    report = {
        **about,
        "kind": "links",
        "comparison": compared,
        "parts": part_rows,
        "rankings": {name: ranking.to_dict() for name, ranking in rankings.items()},
    }
    result = {name: compared[name] for name in ("macro", "micro", "against")}
    result |= {"mrr": compared["against"]["mrr"], "parts": part_rows}
    if alone:
        question = {name: value for name, value in wanted.question.model_dump().items() if value}
        result["question"] = {**question, "judged": wanted.settings.judged}
        result["answer"] = _answer(rankings, wanted.question.metric)
        report |= {name: result[name] for name in ("question", "answer")}
    predicted = plain(wanted.predicted(scorer, split, seed, how["poll"]))
    restored.run.write_json(ANSWER if alone else FILE, {**report, **predicted})
    return {**about, **result, **predicted, "coverage": wanted.coverage}


def _answer(rankings: Mapping[str, LinkRanking], metric: str) -> dict[str, Any]:
    """The figure that the question names: of the model with its interval, and of every scorer."""
    measured = {who: values_of(ranking, metric) for who, ranking in rankings.items()}
    values, groups = measured["model"]
    model = paired_bootstrap(values, np.zeros(len(values)), groups=groups)
    by_scorer = {who: grouped_mean(*values_of_scorer) for who, values_of_scorer in measured.items()}
    return {"metric": metric, "value": model.first, "low": model.low, "high": model.high, "by_scorer": by_scorer}


def _rankings(
    restored: Restored,
    scorer: Scorer,
    every: LinkQueries,
    queries: LinkQueries,
    windows: TimeWindows | None,
    how: Mapping[str, Any],
) -> dict[str, LinkRanking]:
    """The rankings of ``queries``, some or all of ``every`` query of the split, by the model and its baselines.

    These are degree, and those of ``evaluation.baselines`` but the run's own system: parts of the model as they are, others
    from a cache in a folder beside the run directories. Spectral vectors have the width of the model's.
    """
    settings, graph, system = restored.job.settings, restored.graph, cast(Any, restored.system)
    of_model, ks = system.baselines(restored.model), tuple(settings.evaluation.top_k)
    scorers = {"model": scorer, "degree": DegreeScorer(every)}
    if windows:
        scorers[RECENT] = DegreeScorer(windows.by_recent(every))
    scorers |= {name: of_model[name] for name in settings.evaluation.baselines if name in of_model}
    rankings = {}
    for name, each in scorers.items():
        how["poll"]()
        rankings[name] = rank_links(each, queries, ks=ks)
    baselines = LinkBaselines(
        graph,
        queries,
        restored.run.path.parent / "baselines",
        settings.model.embedding_dim if restored.entry.vectors else SPECTRAL_WIDTH,
        average=system.average,
        ks=ks,
        seed=settings.training.seed,
        device=settings.acceleration.device,
        cached=queries is every,
        **how,
    )
    others = [name for name in settings.evaluation.baselines if name not in (system.name, *of_model)]
    return rankings | baselines.rankings(others)


@dataclass(frozen=True)
class QuestionRanking:
    """The links of ``settings`` in a graph."""

    graph: TypedGraph
    settings: RankSettings
    question: Question

    @cached_property
    def nodes(self) -> Nodes:
        """The graph's nodes by name."""
        return Nodes(self.graph)

    @cached_property
    def relations(self) -> list[SelectedLinks]:
        """Relations, heads and candidates. Raises :class:`InputError` for a name that the graph has not."""
        return selected_links(self.nodes, self.question)

    @cached_property
    def judgements(self) -> Judgements | None:
        """Judged links that count as known, if there are any."""
        return read_judgements(self.settings.judgements, self.nodes) if self.settings.judgements else None

    @cached_property
    def truth(self) -> Judgements | None:
        """The outside list, if there is one."""
        return read_judgements(self.settings.truth, self.nodes) if self.settings.truth else None

    @cached_property
    def labels(self) -> NodeLabels | None:
        """The labels, if there is a file."""
        return node_labels(self.graph, self.settings.labels) if self.settings.labels.file else None

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """A row for each list and the labels: how its ids match the graph's."""
        lists = [each.coverage.to_dict() for each in (self.judgements, self.truth) if each]
        return [*lists, *([dict(self.labels.coverage)] if self.labels else [])]

    def queries(self, every: LinkQueries) -> LinkQueries:
        """Those of ``every`` query that are asked for. Raises :class:`InputError` if there are none."""
        parts = []
        for selected in self.relations:
            of_relation, known, without = every.relations[selected.relation.index], None, None
            if self.judgements:
                judged, leave = self.judgements.of(selected.relation.index), self.settings.judged == "leave_out"
                known, without = (judged.all, judged.all) if leave else (judged.yes, judged.no)
            parts.append(narrowed(of_relation, selected.heads, selected.candidates, known, without))
        kept = LinkQueries(every.split, tuple(parts))
        if not kept.total:
            raise InputError(
                f"no link of the {every.split} split is asked for: name more relations, heads or candidates, or the other "
                "split"
            )
        return kept

    def predicted(self, scorer: Scorer, split: str, seed: int, poll: Callable[[], None]) -> dict[str, Any]:
        """Figures of predicted links: ``predicted`` by relation, and ``truth`` and ``judgements`` where there is a list."""
        number, rows = SPLIT_NAMES.index(split), []
        splits = tuple({0, 1, 2} - {number})
        for selected in self.relations:
            judged = self.judgements.of(selected.relation.index) if self.judgements else Judged()
            candidates = Candidates(
                self.graph, selected.relation, scorer, splits, poll, selected.candidates, judged, leave_judged=True
            )
            linked = sorted_unique(candidates.keys >> 2) // candidates.count
            heads = selected.heads[in_sorted(selected.heads, sorted_unique(linked))]
            drawn = sampled(heads, max(MOST_ROWS // len(self.relations), 1), "matrix", seed, selected.relation.index)
            figures = matrix_figures(candidates, np.sort(drawn), number, seed)
            if figures["links"]:
                rows.append({**figures, "of_heads": len(heads)})
        lists = {"truth": self.truth, "judgements": self.judgements}
        every = [Candidates(self.graph, relation, scorer, (TRAIN,), poll) for relation in self.graph.relations]
        return {
            "predicted": rows,
            **{
                name: {"file": each.file, "rows": each.rows, "notes": list(each.notes)}
                | agreement(((every[n], judged) for n, judged in sorted(each.written.items())), seed)
                for name, each in lists.items()
                if each
            },
        }
