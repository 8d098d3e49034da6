"""Seconds of KGAT's phases in this process, ours or the plain one's: one JSON line. ``benchmarks.recommenders`` runs it.

``--data last-fm`` is the public data set; ``book`` its shape at 96 k nodes and 425 k edges, ``amazon-book`` at 184 k and
6.4 m (synthetic: everything random). CF 1024, KG 2048, 64-32-16, bi-interaction, Adam. Ours has the defaults, which are what
the plain one computes (one negative, dropout 0.1), or with ``--settings`` a file's model and objective: the plain one stays
as it is then. ``--variant rates`` measures the machine instead (:mod:`benchmarks.rates`), so that it can be asked in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks import rates
from benchmarks.card import ROOT, peak_rss

SHAPES = {
    "book": (17_860, 14_967, 62_936, 151_623, 25, 61_000),
    "amazon-book": (70_679, 24_915, 88_572, 2_557_746, 39, 652_514),
}
"""Users, items, other entities, facts, relations, training interactions."""
DIMS = (64, 64, 32, 16)


def graph_of(data: str, folder: Path) -> Any:
    """The typed graph of a data set."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.kgat_files import read_kgat
    from graphmill.ingest.user_items import ENTITY, ITEM, USER, edge_table, interaction_edges, node_table, numbers

    if data == "last-fm":
        root = Path(os.environ.get("GRAPHMILL_DATASETS", Path(__file__).resolve().parents[2] / "shared" / "datasets"))
        tables = read_kgat(root / "last-fm-hetrec" / "kgat")
        nodes, edges = tables.nodes, tables.edges
    else:
        users, items, others, facts, relations, count = SHAPES[data]
        rng = np.random.default_rng(0)
        entity = numbers(others)
        nodes = node_table([(USER, numbers(users)), (ITEM, numbers(items)), (ENTITY, entity)], data)
        pairs = np.stack((rng.integers(0, users, count), (items * rng.random(count) ** 2).astype(np.int64)))
        total = items + others
        triples = np.stack(((total * rng.random(facts) ** 2).astype(np.int64), rng.integers(0, total, facts)))
        kinds = rng.integers(0, relations, facts)
        known = edge_table(
            triples[0] + users, triples[1] + users, np.zeros(facts), kinds, [f"r{i}" for i in range(relations)]
        )
        edges = pa.concat_tables([interaction_edges(pairs[0], pairs[1], np.zeros(count), users), known])
        edges = edges.unify_dictionaries().combine_chunks()
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), folder)


def sections_of(name: str) -> dict[str, dict[str, Any]]:
    """Model and objective of a settings file of ``examples/recommenders``; of none, nothing: the defaults."""
    if not name:
        return {}
    import yaml

    text = (ROOT / "examples" / "recommenders" / f"{name}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return {part: found[part] for part in ("model", "objective") if part in found}


def recipe_of(data: str, folder: Path, batch: int = 1024, sections: dict[str, dict[str, Any]] | None = None) -> Any:
    """Our recipe, for steps of so many pairs and twice as many facts; ``sections``: settings beside the defaults."""
    from graphmill.settings import parse
    from graphmill.systems import registry

    values = {"recipe": "kgat", "data": "benchmark", "preset": "none", "acceleration": {"batch_size": batch}}
    values |= sections or {}
    return registry.create("kgat", graph_of(data, folder), parse(registry.settings_model("kgat"), values, ""), "full")


def ours(recipe: Any, precision: str) -> dict[str, Callable[[int], object]]:
    """What one step of each phase, one refresh of attention and one evaluation do."""
    from graphmill.training.contract import Execution
    from graphmill.training.precision import Precision
    from graphmill.training.processes import Ranks
    from graphmill.training.step import compute_gradient

    device = torch.device("cpu")
    recipe.to(device)
    model = recipe.build(Execution()).train()
    recipe.begin_epoch(model, 1)
    out: dict[str, Callable[[int], object]] = {}
    for phase in recipe.phases:
        groups = recipe.parameter_groups(model, phase)
        parameters = [p for g in groups for p in g.parameters]
        optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

        def step(n: int, phase: Any = phase, parameters: Any = parameters, optimizer: Any = optimizer) -> None:
            compute_gradient(
                recipe,
                model,
                parameters,
                recipe.step(phase, 1, n),
                execution=Execution(),
                precision=Precision(precision, device),
                ranks=Ranks(),
                seed_parts=(0, phase.name, 1, n),
            )
            optimizer.step()
            for p in parameters:
                p.grad = None

        out[phase.name] = step
    out["attention"] = lambda n: recipe.begin_epoch(model, 2 + n)
    if len(recipe.view.test):
        out["evaluation"] = lambda n: recipe.evaluate(model.eval(), "test", final=False, poll=lambda: None)
    return out


def naive(recipe: Any) -> dict[str, Callable[[int], object]]:
    """The plain one on the same graph."""
    from benchmarks.naive import kgat

    g, view = recipe.facts, recipe.view
    edges = torch.from_numpy(np.stack((g.head, g.relation, g.tail)))
    model = kgat.Kgat(g.num_nodes, g.num_relations, DIMS, edges, g.matrix.forward.value)
    model.refresh()
    rng = random.Random(0)
    lists: dict[int, list[int]] = {}
    for user, item in zip(view.train.row.tolist(), view.train.columns.tolist(), strict=True):
        lists.setdefault(user, []).append(item)
    seen = {user: set(items) for user, items in lists.items()}
    facts: dict[int, list[tuple[int, int]]] = {}
    for h, r, t in zip(g.head.tolist(), g.relation.tolist(), g.tail.tolist(), strict=True):
        facts.setdefault(h, []).append((r, t))
    cf, kg = (torch.optim.Adam(model.parameters(), lr=1e-3) for _ in range(2))
    offsets = torch.tensor([view.user_offset, view.item_offset, view.item_offset])[:, None]

    def step_cf(n: int) -> None:
        users, positives, negatives = torch.tensor(kgat.draw_users(lists, seen, view.num_items, 1024, rng)) + offsets
        cf.zero_grad()
        model.cf_loss(users, positives, negatives, 1e-5).backward()
        cf.step()

    def step_kg(n: int) -> None:
        heads, relations, tails, wrong = torch.tensor(kgat.draw_facts(facts, 2048, g.num_nodes, rng))
        kg.zero_grad()
        model.kg_loss(heads, relations, tails, wrong, 1e-5).backward()
        kg.step()

    out: dict[str, Callable[[int], object]] = {"cf": step_cf, "kg": step_kg, "attention": lambda n: model.refresh()}
    if len(view.test):
        held = view.test
        test = [held.columns[a:b].tolist() for a, b in zip(held.indptr[:-1], held.indptr[1:], strict=True)]
        train = [lists.get(u, []) for u in range(view.num_users)]

        def evaluate(n: int) -> float:
            with torch.no_grad():
                final = model.eval().final()
            users, items = (
                final[o : o + c] for o, c in ((view.user_offset, view.num_users), (view.item_offset, view.num_items))
            )
            return kgat.evaluate(users, items, train, test, 20)

        out["evaluation"] = evaluate
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=["last-fm", *SHAPES], default="last-fm")
    parser.add_argument("--variant", choices=["ours", "naive", "rates"], default="ours")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1024, help="of ours")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of ours")
    parser.add_argument(
        "--settings", default="", help="of ours: a file of examples/recommenders, for model and objective"
    )
    parser.add_argument("--unmasked", action="store_true", help="of ours: a step's pairs stay in its propagation")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.variant == "rates":
        print(json.dumps(rates.rates()))
        return
    sections = sections_of(arguments.settings)
    if arguments.unmasked:
        sections["objective"] = {**sections.get("objective", {}), "mask_pairs": False}
    with tempfile.TemporaryDirectory() as folder:
        import graphmill.systems.kgat.recipe  # noqa: F401  (imports are not what is measured)

        base = peak_rss()
        recipe = recipe_of(arguments.data, Path(folder) / "graph", arguments.batch, sections)
        works = ours(recipe, arguments.precision) if arguments.variant == "ours" else naive(recipe)
        seconds = {}
        for name, work in works.items():
            times = []
            for n in range(arguments.steps + 1):
                started = time.perf_counter()
                work(n)
                times.append(time.perf_counter() - started)
            seconds[name] = statistics.median(times[1:])
    steps = {phase.name: phase.steps_per_epoch for phase in recipe.phases}
    seconds["epoch"] = sum(count * seconds[name] for name, count in steps.items()) + seconds["attention"]
    about = {"peak_gib": peak_rss() - base, "nodes": recipe.graph.num_nodes, "edges": len(recipe.facts), "steps": steps}
    print(json.dumps({**seconds, **about}))


if __name__ == "__main__":
    main()
