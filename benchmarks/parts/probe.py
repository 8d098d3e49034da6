"""What vectors know of a drug: its pharmacologic classes, which the graph does not have (Hetionet's ``kg_5k``).

``python -m benchmarks.health probe --json`` trains ``--systems`` by their defaults on the five node types of
``hetionet.py``, which leave out the classes and their edges, and probes each run's vectors for a drug's classes: a row is
the mean over drugs of the average precision of their classes, beside degree and spectral vectors, with intervals.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from benchmarks.parts import card
from benchmarks.parts.hetionet import hetionet
from graphmill.evaluation.probe import VECTORS, LabelSettings
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.runs.export import export_run, restore
from graphmill.runs.messages import Terminal
from graphmill.runs.train import train
from graphmill.usage.probe import probe_run

SYSTEMS = ("spectral", "blend", "hgt")


def write_labels(path: Path) -> None:
    """Write a CSV with a row for each pharmacologic class of each drug: id, class."""
    tables = read_kg_csv(card.DATASETS / "hetionet" / "kg_5k.csv.gz")
    edges = tables.edges.filter(pc.equal(tables.edges["relation"].cast(pa.string()), "class_drug"))
    ids, kinds = tables.nodes["id"], tables.nodes["type"].cast(pa.string())
    pairs = pa.table({"id": ids.take(edges["head"]), "class": ids.take(edges["tail"])})
    pairs = pairs.filter(pc.equal(kinds.take(edges["head"]), "drug"))
    pyarrow.csv.write_csv(pairs, path)


def row_of(system: str, labels: Path, graph: Path, root: Path) -> card.Row:
    """Train, export and probe one system."""
    values = {"system": system, "data": str(graph), "training": {"seed": 0}, "export": {"csv": False}}
    run = Path(train(values, "the benchmark", root=str(root), outlets=[Terminal()])["run_dir"])
    export_run(restore(run))
    result = probe_run(run, LabelSettings(file=str(labels), node_type="drug", column="class", id="id"))
    scores = result["scores"]
    rival = max((name for name in scores if name not in (VECTORS, system)), key=lambda name: scores[name]["value"])
    intervals = {
        name: f"{each['value']:.3f} ({each['low']:.3f} to {each['high']:.3f})" for name, each in scores.items()
    }
    gap = result["over"][rival]
    note = f"{result['nodes']} drugs, {result['classes']} classes; " + ", ".join(
        f"{n} {s}" for n, s in intervals.items()
    )
    note += f"; minus {rival} {gap['value']:+.3f} ({gap['low']:+.3f} to {gap['high']:+.3f})"
    ours, theirs = scores[VECTORS]["value"], scores[rival]["value"]
    metric = f"{system}: {result['metric']} of pharmacologic classes"
    return card.row("kg_5k", metric, "", ours, rival=rival, theirs=theirs, note=note)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/probe.json")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        graph = hetionet("kg_5k", 0, folder)
        write_labels(folder / "classes.csv")
        for system in options.systems:
            row = row_of(system, folder / "classes.csv", graph.path, folder / "runs" / system)
            print(f"{row.metric}: {row.ours:.3f}; {row.note}", flush=True)
            if options.json:
                print(card.store("probe", row, "python -m benchmarks.health probe --json"))


if __name__ == "__main__":
    main()
