"""Versions of a small made-up model, as promotion writes them: vectors in clusters, and links that its export scores."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import uvicorn
from starlette.testclient import TestClient

from graphmill.export.embeddings import SCORING, export_embeddings
from graphmill.graph.training_links import TrainingLinks
from graphmill.promotion.versions import Version, Versions
from graphmill.serving.application import application
from graphmill.serving.server import bound
from graphmill.systems.hgt.decoder import LinkDecoder, scoring_arrays
from graphmill.training.contract import EmbeddingBlock
from graphmill.training.settings import ExportSettings
from graphmill.usage.recommendations import SCHEMA

TYPES = ("drug", "disease", "gene")
OF_TYPE, DIM = 30, 16
RELATIONS = [
    ["drug", "indication", "disease"],
    ["gene", "associated", "disease"],
    ["drug", "target", "gene"],
    ["gene", "interacts", "gene"],
]
MakeVersion = Callable[..., Version]


def nodes(first_name: str = "Drug 0") -> pa.Table:
    kinds = [kind for kind in TYPES for _ in range(OF_TYPE)]
    ids = [f"{kind[:2].upper()}{number}" for kind in TYPES for number in range(OF_TYPE)]
    names = [f"{kind.capitalize()} {number}" for kind in TYPES for number in range(OF_TYPE)]
    ids[OF_TYPE] = ids[0]  # an id that two types share
    names[0], names[1], names[2] = first_name, "Twin", "Twin"
    return pa.table({"index": np.arange(len(ids)), "id": ids, "name": names, "type": kinds})


def vectors(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(6, DIM))
    return (np.tile(centres, (len(TYPES) * OF_TYPE // 6, 1)) + 0.4 * rng.normal(size=(90, DIM))).astype(np.float32)


def scoring(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    starts = {kind: number * OF_TYPE for number, kind in enumerate(TYPES)}
    outgoing = [sp.csr_matrix(rng.random((OF_TYPE, OF_TYPE)) < 0.1, dtype=np.int64) for _ in RELATIONS]
    links = TrainingLinks(outgoing, [(starts[source], starts[target]) for source, _, target in RELATIONS])
    return scoring_arrays(LinkDecoder(len(RELATIONS), DIM), links)


HEALTH = {
    "status": "warn",
    "verdicts": [
        {
            "name": "mean_cosine",
            "value": 0.1,
            "threshold": 0.5,
            "status": "pass",
            "meaning": "Two random rows point apart.",
            "remedy": "",
        },
        {
            "name": "effective_rank",
            "value": 3.0,
            "threshold": 8.0,
            "status": "warn",
            "meaning": "Few directions are used.",
            "remedy": "Train longer.",
        },
    ],
}
RANKING = {
    "kind": "items",
    "epoch": 1,
    "split": "test",
    "figures": {"popularity": {"mrr": 0.1}, "model": {"mrr": 0.3, "hits@10": 0.5}},
}
DRIFT = {
    "against": "0001-aaaaaaaa",
    "name": "rotation_only",
    "status": "pass",
    "changed": 0.3,
    "overall": {
        "overlap_10": 0.7,
        "overlap_50": 0.8,
        "cosine_aligned": 0.8,
        "shared": 90,
        "new": 0,
        "vanished": 0,
    },
    "findings": [{"name": "rotation_only", "status": "pass", "meaning": "Only a rotation.", "remedy": ""}],
    "moved": [{"id": "DR5", "name": "Drug 5", "type": "drug", "cosine": 0.2, "overlap_10": 0.1}],
}


def fill(
    seed: int,
    arrays: Mapping[str, np.ndarray],
    items: int,
    first_name: str,
    files: Mapping[str, bytes],
    system: str = "hgt",
) -> Callable[[Path], Mapping[str, Any]]:
    def write(folder: Path) -> Mapping[str, Any]:
        extra_files = {SCORING: arrays} if arrays else {}
        about: dict[str, Any] = {
            "fingerprint": f"run{seed}",
            "epoch": 1,
            "system": system,
            "relations": RELATIONS if arrays else [],
        }
        about["data"] = {"path": "gone/graph", "content_hash": "0" * 64}
        formats = ExportSettings(csv=False)
        values = vectors(seed)
        export_embeddings([EmbeddingBlock(0, values)], nodes(first_name), DIM, folder, formats, about, extra_files)
        for name, result in (("health", HEALTH), ("ranking", RANKING), ("drift", DRIFT)):
            (folder / f"{name}.json").write_text(json.dumps(result))
        (folder / "report.html").write_text(f"<!doctype html><style>p {{}}</style><h1>The report of run{seed}</h1>")
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if items:
            ids, names = nodes()["id"].to_pylist(), nodes()["name"].to_pylist()
            rows = [
                {
                    "user_id": ids[u],
                    "user_name": names[u],
                    "rank": r + 1,
                    "item_id": ids[60 + r],
                    "item_name": names[60 + r],
                }
                for u in (1, 2, 3)
                for r in range(items)
            ]
            table = pa.Table.from_pylist([{**row, "score": 1.0 / row["rank"]} for row in rows], SCHEMA)
            pq.write_table(table, folder / "recommendations.parquet")
        return {
            "system": system,
            "run_dir": f"data/06 models/toy/hgt/run{seed}",
            "fingerprint": f"run{seed}",
            "epoch": 1,
            "rows": len(values),
            "dim": DIM,
            "selection_metric": "mrr",
            "metrics": {"valid_mrr": 0.25, "test_mrr": 0.2},
            "graph": {"nodes": dict.fromkeys(TYPES, OF_TYPE)},
        }

    return write


@pytest.fixture
def promoted(tmp_path: Path) -> Path:
    return tmp_path / "data" / "07_promoted"


@pytest.fixture
def make(promoted: Path) -> MakeVersion:
    """Makes a version of ``toy/hgt``, or of another model, live."""

    def make(
        seed: int = 1,
        model: str = "toy/hgt",
        *,
        links: bool = True,
        items: int = 0,
        first_name: str = "Drug 0",
        files: Mapping[str, bytes] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Version:
        store = Versions(promoted / model)
        with store.lock():
            write = fill(seed, scoring(seed) if links else {}, items, first_name, files or {})
            version = store.add(lambda folder: {**write(folder), **(about or {})})
            store.switch(version, kind="promoted", by="a test", why=f"seed {seed}")
        return version

    return make


@pytest.fixture
def client(promoted: Path) -> Iterator[TestClient]:
    with TestClient(application(promoted), base_url="http://127.0.0.1") as opened:
        yield opened


@contextmanager
def served_here(promoted: Path, token: str = "") -> Iterator[str]:
    """The address of a server in a thread of this process."""
    with bound("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(application(promoted, token), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join()
