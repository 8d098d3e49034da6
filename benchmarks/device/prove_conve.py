"""The proof's phase ``conve``: whole trainings on FB15k-237, from its files to test figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import torch

from benchmarks.device.prove_common import FOLDER, row

CONVE: dict[str, dict[str, Any]] = {
    "batch 512, rate 0.004": {"training": {"learning_rate": 0.004}, "acceleration": {"batch_size": 512}},
    "batch 512, rate 0.002": {"training": {"learning_rate": 0.002}, "acceleration": {"batch_size": 512}},
}
"""Tried side by side on validation triples; ``CONVE=N`` takes the Nth alone, whose time is then its own."""


def conve(device: torch.device, tiny: bool) -> str:
    """ConvE on FB15k-237 (``$GRAPHMILL_DATASETS``), from its files to test figures: bf16, a falling rate, dropout 0.5."""
    only = os.environ.get("CONVE", "")
    names = [list(CONVE)[int(only)]] if only else list(CONVE)[: 1 if tiny else None]
    program = "import sys; from benchmarks.device import prove_conve; prove_conve.conve_once(*sys.argv[1:])"
    started = time.monotonic()
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", program, name, device.type, str(int(tiny))], stdout=subprocess.PIPE, text=True
        )
        for name in names
    }
    found = {}
    for name, process in running.items():
        out, _ = process.communicate()
        if process.returncode:
            row(conve=name.replace(" ", "_"), failed=f"exit {process.returncode}")
            continue
        found[name] = json.loads(out.strip().splitlines()[-1])
        row(conve=name.replace(" ", "_"), together=len(names), s=time.monotonic() - started, **found[name])
    best = max(found, key=lambda n: found[n]["valid_mrr"])
    return f"chosen on validation: {best}, test MRR {found[best]['test_mrr']:.4f}"


def conve_once(name: str, device: str, tiny: str) -> None:
    """One training; its figures as a line of JSON."""
    from benchmarks.parts.card import DATASETS
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.triples import read_triples
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train
    from graphmill.training.run_directory import RunDirectory

    begin = time.perf_counter()
    small = bool(int(tiny))
    tables = read_triples(DATASETS / ("UMLS" if small else "FB15k-237"))
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), FOLDER / name)
    values = {
        "recipe": "conve",
        "data": str(graph.path),
        "preset": "none",
        "model": {"output_dropout": 0.5},
        "training": {"epochs": 1 if small else int(os.environ.get("EPOCHS", "80")), "lr_decay": "cosine"},
        "evaluation": {"eval_every": 10, "max_queries": 3000, "baselines": []},
        "acceleration": {"device": device, "allow_fallback": False, "precision": "fp32" if small else "bf16"},
    }
    ready = time.perf_counter()
    result = train(merge(values, CONVE[name]), "prove", root=str(FOLDER / f"{name}-run"))
    epochs = RunDirectory(result["run_dir"]).metrics.read("epoch")
    print([(e["epoch"], e["valid"].get("mrr")) for e in epochs if "valid" in e], file=sys.stderr, flush=True)
    said = {k: result["metrics"].get(k) for k in ("valid_mrr", "test_mrr", "test_hits@10")}
    said |= {"best_epoch": result.get("best_epoch"), "ms_per_step": result["seconds_per_step"] * 1e3}
    print(json.dumps(said | {"reading_s": ready - begin, "training_s": time.perf_counter() - ready}))
