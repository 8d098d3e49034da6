"""A graph whose links have known reasons: a drug treats a disease because they have a gene in common."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph

COUNTS = {"drug": 90, "gene": 30, "disease": 90, "effect": 40, "symptom": 40}


def planted_graph(out: Path) -> TypedGraph:
    """Drug i and disease i have gene i mod 30, and two effects and symptoms at random that mean nothing.

    Known indications are those of drug i for disease i; what is predicted is drug i for disease j of the same gene.
    """
    rng = np.random.default_rng(3)
    types = np.repeat(list(COUNTS), list(COUNTS.values()))
    first = dict(zip(COUNTS, np.cumsum([0, *COUNTS.values()][:-1]).tolist(), strict=True))
    rows: list[tuple[str, int, int]] = []
    for i in range(COUNTS["drug"]):
        rows.append(("targets", first["drug"] + i, first["gene"] + i % COUNTS["gene"]))
        rows += [
            ("causes", first["drug"] + i, first["effect"] + int(e)) for e in rng.choice(COUNTS["effect"], 2, False)
        ]
    for i in range(COUNTS["disease"]):
        rows.append(("associated", first["disease"] + i, first["gene"] + i % COUNTS["gene"]))
        rows += [
            ("shows", first["disease"] + i, first["symptom"] + int(s)) for s in rng.choice(COUNTS["symptom"], 2, False)
        ]
        rows.append(("indication", first["drug"] + i, first["disease"] + i))
    names = pa.array([name for name, _, _ in rows]).dictionary_encode()
    edges = pa.table(
        {
            "relation": names,
            "display_relation": names,
            "head": pa.array([h for _, h, _ in rows], pa.int32()),
            "tail": pa.array([t for _, _, t in rows], pa.int32()),
        }
    )
    nodes = pa.table(
        {
            "index": pa.array(range(len(types)), pa.int64()),
            "id": pa.array([f"n{i}" for i in range(len(types))]),
            "type": pa.array(types.tolist()).dictionary_encode(),
            "name": pa.array([f"{kind} {i - first[kind]}" for i, kind in enumerate(types.tolist())]),
            "source": pa.array(["planted"] * len(types)).dictionary_encode(),
        }
    )
    split = {"valid": 0.05, "test": 0.05}
    return build_graph(nodes, edges, GraphSettings.model_validate({"split": split}), out)
