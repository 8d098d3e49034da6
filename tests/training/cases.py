"""One small training per system and mode: what the parametrised suites of tests/training run on.

A new system joins by adding its cases here; ``test_every_registered_system_has_a_case`` fails until it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions_csv import read_sequence
from graphmill.ingest.tables import feature_key, features_schema
from graphmill.runs.resolve import Job, merge, resolve
from graphmill.systems import registry
from graphmill.training.contract import StepSizes, System
from graphmill.training.engine import Engine
from graphmill.training.run_state import TrainingListener
from tests.systems.conve.graphs import random_graph


def typed_graph(
    out: Path, features: dict[str, pa.Table] | None = None, attributes: dict[str, pa.Table] | None = None
) -> TypedGraph:
    """Three node types, two relations in both directions and one symmetric, with communities to learn."""
    rng = np.random.default_rng(5)
    counts = {"disease": 30, "gene/protein": 60, "drug": 24}
    types = np.repeat(list(counts), list(counts.values()))
    first = dict(zip(counts, np.cumsum([0, *counts.values()][:-1]), strict=True))
    rows = []
    for name, a, b, m in (("disease_protein", "disease", "gene/protein", 150), ("drug_protein", "drug", "gene/protein", 110),
                          ("protein_protein", "gene/protein", "gene/protein", 120)):  # fmt: skip
        heads = rng.integers(0, counts[a], m)
        # Same community (number mod 6) nine times in ten.
        tails = (
            rng.integers(0, counts[b] // 6, m) * 6 + np.where(rng.random(m) < 0.9, heads % 6, rng.integers(0, 6, m))
        ) % counts[b]
        rows += [(name, first[a] + h, first[b] + t) for h, t in zip(heads, tails, strict=True) if a != b or h != t]
    rows += [(name, t, h) for name, h, t in rows]
    names = pa.array([r[0] for r in rows]).dictionary_encode()
    edges = pa.table(
        {
            "relation": names,
            "display_relation": names,
            "head": pa.array([r[1] for r in rows], pa.int32()),
            "tail": pa.array([r[2] for r in rows], pa.int32()),
        }
    )
    n = len(types)
    nodes = pa.table(
        {
            "index": pa.array(range(n), pa.int64()),
            "id": pa.array([f"n{i}" for i in range(n)]),
            "type": pa.array(types.tolist()).dictionary_encode(),
            "name": pa.array([f"node {i}" for i in range(n)]),
            "source": pa.array(["synthetic"] * n).dictionary_encode(),
        }
    )
    settings = GraphSettings.model_validate({"split": {"valid": 0.1, "test": 0.1}})
    return build_graph(nodes, edges, settings, out, features, attributes)


def featured_graph(out: Path) -> TypedGraph:
    """The typed graph with features that tell the community: of every drug, of two diseases in three, of no gene."""
    rng = np.random.default_rng(13)
    tables = {}
    for kind, rows, width in (("drug", np.arange(90, 114), 5), ("disease", np.flatnonzero(np.arange(30) % 3), 7)):
        centres = rng.normal(size=(6, width))
        values = centres[rows % 6] + 0.2 * rng.normal(size=(len(rows), width))
        columns = [
            pa.array(rows.astype(np.int32)),
            pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).reshape(-1)), width),
        ]
        tables[kind] = pa.table(columns, features_schema(width))
    return typed_graph(out, tables)


def sequence_graph(out: Path) -> TypedGraph:
    """Sixty users in circles of eight items, with times; lengths 1 to 12."""
    rng = np.random.default_rng(7)
    lines = []
    for user in range(60):
        first, times = int(rng.integers(24)), np.cumsum(rng.integers(0, 90, 12))
        views = range(int(rng.integers(1, 13)))
        lines += [f"u{user} i{first // 8 * 8 + (first + i) % 8} {times[i]}\n" for i in views]
    out.parent.mkdir(parents=True, exist_ok=True)
    path = out.with_suffix(".txt")
    path.write_text("".join(lines))
    tables = read_sequence(path)
    return build_graph(tables.nodes, tables.edges, GraphSettings(), out)


TWO_SETS = {"image": 6, "text": 5}
THREE_SETS = {**TWO_SETS, "audio": 4}


def recommender_graph(out: Path, sets: dict[str, int] = TWO_SETS) -> TypedGraph:
    """Forty users and thirty items in five groups of taste, ``sets`` of item features with at most six columns, and
    knowledge about the items.
    """
    rng = np.random.default_rng(11)
    users, items, entities = 40, 30, 12
    pairs = [(u, i) for u in range(users) for i in range(items) if rng.random() < (0.6 if u % 5 == i % 5 else 0.05)]
    facts = [("genre", i, i % 5) for i in range(items)]
    facts += [("maker", i, 5 + int(rng.integers(7))) for i in range(items) if i % 3]
    first = {"user": 0, "item": users, "entity": users + items}
    rows = [("interacted", u, users + i, int(rng.choice(3, p=(0.8, 0.1, 0.1)))) for u, i in pairs]
    rows += [(name, users + i, first["entity"] + e, 0) for name, i, e in facts]
    rows.append(("part_of", first["entity"] + 5, first["entity"], 0))
    names = pa.array([r[0] for r in rows]).dictionary_encode()
    edges = pa.table(
        {
            "relation": names,
            "display_relation": names,
            "head": pa.array([r[1] for r in rows], pa.int32()),
            "tail": pa.array([r[2] for r in rows], pa.int32()),
            "split": pa.array([r[3] for r in rows], pa.uint8()),
        }
    )
    types = ["user"] * users + ["item"] * items + ["entity"] * entities
    nodes = pa.table(
        {
            "index": pa.array(range(len(types)), pa.int64()),
            "id": pa.array([f"{kind}{n - first[kind]}" for n, kind in enumerate(types)]),
            "type": pa.array(types).dictionary_encode(),
            "name": pa.array([f"node {n}" for n in range(len(types))]),
            "source": pa.array(["synthetic"] * len(types)).dictionary_encode(),
        }
    )
    taste = rng.normal(size=(5, 6))
    features = {}
    for name, width in sets.items():
        values = (taste[np.arange(items) % 5, :width] + 0.3 * rng.normal(size=(items, width))).astype(np.float32)
        item_rows = pa.array(np.arange(users, users + items, dtype=np.int32))
        columns = [item_rows, pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)]
        features[feature_key("item", name)] = pa.table(columns, features_schema(width))
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), out, features)


def triples_graph(out: Path) -> TypedGraph:
    """Triples with several relations between the same nodes, and no reverses."""
    return random_graph(out, entities=40, relations=4, triples=400)


@dataclass(frozen=True)
class Case:
    """A system in one mode, on a graph that it can learn something from in seconds.

    ``row_split``: whether the loss of one step may be cut into chunks and shards of rows. ``steps``: whether it trains by
    gradient steps.
    """

    system: str
    settings: dict[str, Any]
    graph: Callable[[Path], TypedGraph] = typed_graph
    row_split: bool = True
    steps: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    def job(self, graph: TypedGraph, **sections: dict[str, Any]) -> Job:
        """The resolved job, with some settings overridden."""
        values = merge({"system": self.system, "data": str(graph.path), "preset": "none", **self.settings}, sections)
        return resolve(values, "test")

    def build(self, graph: TypedGraph, **sections: dict[str, Any]) -> tuple[Job, System]:
        """The system on the CPU."""
        job = self.job(graph, **sections)
        system = registry.create(self.system, graph, job.settings, job.batching)
        system.to(torch.device("cpu"))
        return job, system

    def model(
        self, system: System, dtype: torch.dtype = torch.float32, step_sizes: StepSizes | None = None
    ) -> torch.nn.Module:
        """A fresh model in ``dtype``, in train mode."""
        return system.build(step_sizes or StepSizes()).to(dtype).train()


_HGT = {
    "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2, "num_layers": 2, "inputs": "tables"},
    "objective": {"loss": "link_contrastive"},
    "training": {"epochs": 4, "steps_per_epoch": 5, "warmup_steps": 3, "learning_rate": 0.01},
    "evaluation": {"eval_every": 2},
}

_SOFTMAX = {
    "model": {"embedding_dim": 16, "hidden_dim": 8, "num_heads": 2},
    "objective": {"loss": "softmax", "candidates": 20},
    "training": {"epochs": 4, "steps_per_epoch": 5, "warmup_steps": 3, "learning_rate": 0.01, "weight_decay": 0.00001},
    "evaluation": {"eval_every": 2},
}

_CONVE = {
    "model": {"embedding_dim": 12, "output_channels": 3, "kernel_height": 2},
    "training": {"epochs": 4, "steps_per_epoch": 5, "learning_rate": 0.01},
    "acceleration": {"batch_size": 60},
    "evaluation": {"eval_every": 2},
}

_FACTOR = {
    "model": {"embedding_dim": 12},
    "objective": {"candidates": 20, "n3": 0.1},
    "training": {"epochs": 4, "steps_per_epoch": 5},
    "acceleration": {"batch_size": 60},
    "evaluation": {"eval_every": 2},
}

_DISTANCE = merge(
    {name: each for name, each in _FACTOR.items() if name != "objective"}, {"objective": {"candidates": 20}}
)

_NBFNET = {
    "model": {"hidden_dim": 8, "num_layers": 2, "nodes_per_layer": 12},
    "objective": {"candidates": 20},
    "training": {"epochs": 4, "steps_per_epoch": 5, "warmup_steps": 3, "learning_rate": 0.01},
    "acceleration": {"batch_size": 20},
    "evaluation": {"eval_every": 2},
}

_SEQUENCES = {
    "model": {"embedding_dim": 8, "max_length": 6, "num_blocks": 1, "dropout": 0.3},
    "training": {"epochs": 4, "steps_per_epoch": 5, "warmup_steps": 3, "learning_rate": 0.01},
    "acceleration": {"batch_size": 24},
    "evaluation": {"eval_every": 2, "baselines": []},
}

_RECOMMENDERS = {
    "model": {"embedding_dim": 8},
    "training": {"epochs": 4, "steps_per_epoch": 5, "learning_rate": 0.01},
    "acceleration": {"batch_size": 50},
    "evaluation": {"eval_every": 2, "baselines": [], "top_k": [5], "selection_metric": "recall@5"},
}

_PUBLISHED_BPR = {"loss": "bpr", "negatives_per_positive": 1}
_KGAT = merge(_RECOMMENDERS, {"model": {"layer_dims": [8, 4]}, "objective": {"kg_batch_size": 40}})

CASES = {
    "mf": Case(
        "mf", merge(_RECOMMENDERS, {"objective": {**_PUBLISHED_BPR, "regularisation": 0.01}}), graph=recommender_graph
    ),
    "mf-softmax": Case(
        "mf", merge(_RECOMMENDERS, {"objective": {"negatives_per_positive": 8}}), graph=recommender_graph
    ),
    "lightgcn": Case(
        "lightgcn",
        merge(
            _RECOMMENDERS,
            {"model": {"num_layers": 2}, "objective": {**_PUBLISHED_BPR, "regularisation": 0.0001}},
        ),
        graph=recommender_graph,
    ),
    "kgat": Case("kgat", _KGAT, graph=recommender_graph),
    "kgat-graphsage": Case(
        "kgat",
        merge(
            _KGAT,
            {
                "model": {"aggregation": "graphsage"},
                "objective": {"mask_pairs": True},
                # Ten times this, and rounding grows to 8 % of the loss within 50 steps: processors would differ.
                "training": {"learning_rate": 0.001},
            },
        ),
        graph=recommender_graph,
    ),
    "mmgcn": Case("mmgcn", merge(_RECOMMENDERS, {"model": {"num_layers": 2}}), graph=recommender_graph),
    "mmgcn-published": Case(
        "mmgcn",
        merge(_RECOMMENDERS, {"model": {"trainable_embeddings": False, "combination": "add", "latent_dims": [0, 0]}}),
        graph=recommender_graph,
    ),
    "dragon": Case("dragon", merge(_RECOMMENDERS, {"model": {"user_neighbours": 6}}), graph=recommender_graph),
    "dragon-negatives": Case(
        "dragon",
        merge(
            _RECOMMENDERS,
            {
                "model": {"item_layers": 2, "item_neighbours": 4, "user_neighbours": 0},
                "objective": {"negatives_per_positive": 3},
            },
        ),
        graph=recommender_graph,
    ),
    "conve-kvsall": Case("conve", _CONVE, row_split=False),
    "conve-softmax": Case("conve", merge(_CONVE, {"objective": {"loss": "softmax"}}), row_split=False),
    "conve-slcwa": Case(
        "conve", merge(_CONVE, {"objective": {"negatives": "sampled", "negatives_per_positive": 4}}), row_split=False
    ),
    "complex": Case("complex", _FACTOR),
    "complex-triples": Case("complex", merge(_FACTOR, {"objective": {"relation_weight": 0.5}}), graph=triples_graph),
    "distmult": Case(
        "distmult",
        merge(_FACTOR, {"objective": {"candidates": 0}, "training": {"learning_rate": 0.01}}),
    ),
    "rotate": Case(
        "rotate",
        merge(_DISTANCE, {"objective": {"candidates": 0}}),
        graph=triples_graph,
    ),
    "transe": Case("transe", _DISTANCE),
    "nbfnet": Case("nbfnet", _NBFNET),
    "nbfnet-triples": Case("nbfnet", _NBFNET, graph=triples_graph),
    "blend": Case(
        "blend",
        {"model": {"embedding_dim": 16, "parts": ["spectral", "knn", "paths", "features", "complex"]}},
        steps=False,
    ),
    "blend-untrained": Case(
        "blend", {"model": {"embedding_dim": 16, "parts": ["spectral", "knn", "paths"]}}, steps=False
    ),
    "hgt-full": Case("hgt", merge(_HGT, {"acceleration": {"batching": "full"}})),
    "hgt-edge-sampled": Case(
        "hgt",
        merge(_HGT, {"acceleration": {"batching": "edge_sampled"}, "sampling": {"edge_sample_size": 80}}),
    ),
    "hgt-features": Case("hgt", merge(_HGT, {"acceleration": {"batching": "full"}}), graph=featured_graph),
    "hgt-softmax": Case("hgt", merge(_SOFTMAX, {"acceleration": {"batching": "full"}}), graph=featured_graph),
    "hgt-softmax-edge-sampled": Case(
        "hgt",
        merge(_SOFTMAX, {"acceleration": {"batching": "edge_sampled"}, "sampling": {"edge_sample_size": 80}}),
    ),
    "sasrec": Case("sasrec", _SEQUENCES, graph=sequence_graph),
    "tisasrec-mhc": Case(
        "tisasrec",
        merge(
            _SEQUENCES,
            {
                "model": {"mhc": "lite", "num_heads": 2, "time_span": 16},
                "objective": {"loss": "bce"},
            },
        ),
        graph=sequence_graph,
    ),
}


STEPPED = {name: case for name, case in CASES.items() if case.steps}
"""What the suites of the training mathematics run on: a system without gradient steps has none."""


def trained(job: Job, system: System) -> Engine:
    """An engine that has trained ``system`` to its end in this process: fp32 on the CPU, nothing saved."""
    s = job.settings
    engine = Engine(
        system,
        s.training,
        s.acceleration,
        s.evaluation,
        device=torch.device("cpu"),
        precision="fp32",
        step_sizes=StepSizes(),
        listener=TrainingListener(),
    )
    engine.fit()
    return engine


_ITEMS = {"evaluation": {"baselines": [], "top_k": [5], "selection_metric": "recall@5"}}
_NEXT = {"evaluation": {"baselines": [], "top_k": [5], "selection_metric": "ndcg@5"}}

CLOSED_FORMS = {
    "ease": Case("ease", _ITEMS, graph=recommender_graph),
    "item_knn": Case("item_knn", _ITEMS, graph=recommender_graph),
    "ials": Case("ials", merge(_ITEMS, {"model": {"embedding_dim": 8}}), graph=recommender_graph),
    "popularity": Case("popularity", _ITEMS, graph=recommender_graph),
    "markov": Case("markov", _NEXT, graph=sequence_graph),
    "session_knn": Case("session_knn", _NEXT, graph=sequence_graph),
    "repeats": Case("repeats", _NEXT, graph=sequence_graph),
}
"""Recommenders without gradient steps: one step computes the model (``test_closed_forms.py``)."""

_LINKS = {"evaluation": {"baselines": []}}
CLOSED_LINKS = {
    "knn": Case("knn", _LINKS),
    "spectral": Case("spectral", merge(_LINKS, {"model": {"embedding_dim": 16}})),
}
"""Systems that score links, without gradient steps."""
