"""Versions that strangers made: whole ones of every system that scores links, and seeded changes of them.

A change with ``forged`` is followed by new hashes in both manifests, so that only the contents can be wrong.
"""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import load_file, save_file

from graphmill.export.embeddings import SCORING
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_paths import NONE
from graphmill.predictions.table import schema
from graphmill.promotion.versions import Versions
from graphmill.runs.warm_start import ROWS_FILE, WEIGHTS_FILE
from graphmill.systems.blend.paths import CHANNELS
from graphmill.systems.conve import exported as conve_export
from graphmill.systems.conve.model import ConvE, ConvEConfig
from graphmill.systems.factor import system as factor_export
from graphmill.systems.factor.model import FactorTables
from graphmill.systems.hgt import decoder as hgt_export
from graphmill.systems.hgt.decoder import LinkDecoder
from graphmill.systems.nbfnet.model import NBFNet
from graphmill.usage.links import TABLE as LINKS
from graphmill.verified_files import describe_file, sealed
from tests.serving.conftest import DIM, RELATIONS, fill, nodes, scoring

SYSTEMS = ("hgt", "blend", "complex", "transe", "conve")
ODD = (
    None,
    -1,
    0,
    1,
    2**31 - 1,
    2**70,
    1e308,
    True,
    "",
    "x",
    "../../../etc/passwd",
    "\ud800",
    [],
    {},
    [[]],
    {"a": None},
)
EXTREME = (-(2**62), -1, 0, 1, 29, 30, 89, 90, 2**31 - 1, 2**62)


def arrays_of(system: str) -> dict[str, np.ndarray]:
    links = TrainingLinks.read(scoring(1), 90)
    torch.manual_seed(0)
    if system == "hgt":
        return hgt_export.scoring_arrays(LinkDecoder(len(RELATIONS), DIM), links)
    if system in ("complex", "transe"):
        return factor_export.scoring_arrays(FactorTables(90, 2 * len(RELATIONS), DIM, system), links)
    if system == "conve":
        config = ConvEConfig(90, 2 * len(RELATIONS), DIM, 4, 4, output_channels=2)
        return conve_export.scoring_arrays(ConvE(config), links)
    count = len(RELATIONS)
    arrays = {
        f"mix.{name}": np.full(count, 0.5, np.float32)
        for name in ("popularity", "spectral", "knn", "paths", "complex", "nbfnet")
    }
    arrays |= {f"{name}.setting": np.array([0, 10.0, 3.0, 0.5, 0], np.float32) for name in ("spectral", "knn")}
    channels, weights = np.full((count, CHANNELS, 2), NONE, np.int32), np.zeros((count, CHANNELS), np.float32)
    channels[0, 0] = 2, 1  # drug – target – gene – associated – disease
    channels[3, 0] = 3, NONE
    weights[[0, 3], 0] = 1.0
    complex_arrays = factor_export.scoring_arrays(FactorTables(90, 2 * count, 4, "complex"), links)
    part = {key: value for key, value in complex_arrays.items() if key not in links.arrays()} | {
        "vectors": np.ones((90, 4), np.float32)
    }
    arrays |= {"paths.channels": channels, "paths.weights": weights}
    network = {f"nbfnet.weights.{k}": v.detach().numpy() for k, v in NBFNet(2 * count, 4, 2).state_dict().items()}
    arrays |= network | {"nbfnet.held_as": np.arange(count) + count, "nbfnet.nodes_per_layer": np.array([20])}
    return arrays | {f"complex.{key}": value for key, value in part.items()} | links.arrays()


def links_table() -> bytes:
    table = nodes()
    ids, kinds = table["id"].to_pylist(), table["type"].to_pylist()
    rows = [
        {
            "head_id": ids[1], "head_name": "a", "head_type": kinds[1], "relation": "indication",
            "tail_id": ids[31 + n], "tail_name": "b", "tail_type": kinds[31 + n],
            "score": 1.0 - n, "rank": n + 1, "median_rank": 1.0, "relative_rank": 1.0, "probability": 0.5, "known": "",
        }
        for n in range(3)
    ]  # fmt: skip
    return parquet(pa.Table.from_pylist(rows, schema(pa.schema([]))))


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def whole_version(folder: Path, system: str) -> Path:
    """A version with a file of every kind; returns its folder."""

    def write(path: Path) -> Mapping[str, Any]:
        files = {
            LINKS: links_table(),
            ROWS_FILE: json.dumps({"w": ["node", [str(n) for n in range(5)]]}).encode(),
            "card.md": b"# A card",
            "settings.json": b'{"system": "hgt", "data": "g"}',
            "graph.json": b'{"content_hash": "0", "node_types": {"drug": 30}, "relations": {"a | b | c": 3}}',
        }
        about = fill(1, arrays_of(system), 5, "Drug 0", files, system)(path)
        save_file({"w": np.ones((5, 2), np.float32)}, path / WEIGHTS_FILE)
        pairs, trained = np.arange(9, dtype=np.uint64), np.packbits(np.ones(9, bool))
        np.savez(path / "graph.npz", pairs=pairs, trained=trained, degrees=np.ones(90, np.int32))
        return about

    store = Versions(folder / "whole" / system)
    with store.lock():
        version = store.add(write)
        store.switch(version, kind="promoted", by="a test", why="")
    return version.path


def stranger(whole: Path, out: Path, rng: random.Random) -> tuple[Path, bool]:
    """A changed copy of a version as the live one of the model ``out``; and whether its hashes are right."""
    folder = Path(shutil.copytree(whole, out / whole.name))
    (out / "current").symlink_to(whole.name)
    forged = rng.random() < 0.7
    if forged:
        rng.choice((_arrays, _arrays, _arrays, _arrays, _table, _json, _json, _npz, _weights))(folder, rng)
        seal(folder, rng if rng.random() < 0.3 else None)
    else:
        path = rng.choice(sorted(folder.iterdir()))
        path.write_bytes(_damaged(path.read_bytes(), rng))
    return folder, forged


def seal(folder: Path, rng: random.Random | None = None) -> None:
    """Write the hashes of the present files into both manifests; with ``rng``, another field of one of them is odd."""
    changed = rng.choice(("manifest.json", "version.json")) if rng else ""
    for name in ("manifest.json", "version.json"):
        about = json.loads((folder / name).read_text())
        about.pop("checksum")
        about["files"] = {each: describe_file(folder / each) for each in about["files"] if (folder / each).is_file()}
        if rng is not None and changed == name:
            field = rng.choice(sorted(about))
            about[field] = _odd(about[field], rng)
        (folder / name).write_text(json.dumps(sealed(about)))


def _odd(value: Any, rng: random.Random) -> Any:
    """The value with something odd in it, or an odd one in its place."""
    if isinstance(value, dict) and value and rng.random() < 0.7:
        name = rng.choice(sorted(value))
        return {**value, name: _odd(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], _odd(value[place], rng), *value[place + 1 :]]
    return rng.choice(ODD)


def _damaged(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return rng.choice((b"", b"{}", b"null", b"[" * 90_000, b"\x80\x04K\x01.", b"\0" * len(data)))
    end = at + 1 if kind == 2 else min(at + rng.randrange(1, 40), len(data))
    return data[:at] + bytes(byte ^ (1 << rng.randrange(8)) for byte in data[at:end]) + data[end:]


def _arrays(folder: Path, rng: random.Random) -> None:
    arrays = load_file(folder / SCORING)
    name = rng.choice(sorted(arrays))
    arrays |= {name: _odd_array(arrays[name].copy(), rng)}
    if rng.random() < 0.1:
        del arrays[name]
    save_file(arrays, folder / SCORING)


def _odd_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    changes: list[Callable[[], np.ndarray]] = [
        lambda: array[:-1],
        lambda: np.concatenate([array, array]),
        lambda: array.reshape(-1),
        lambda: array[..., None],
        lambda: array.astype(rng.choice((np.float64, np.int8, np.int64, np.uint8, np.float16, np.bool_))),
        lambda: array[::-1].copy(),
        lambda: np.zeros_like(array),
        lambda: array[:0],
    ]
    if array.size and rng.random() < 0.7:
        place = rng.randrange(array.size)
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
        odd = rng.choice((np.nan, np.inf, -1.0)) if limits is None else rng.choice(EXTREME)
        array.reshape(-1)[place] = odd if limits is None else min(max(odd, limits.min), limits.max)
        return array
    return np.ascontiguousarray(rng.choice(changes)())


def _table(folder: Path, rng: random.Random) -> None:
    path = folder / rng.choice(("embeddings.parquet", LINKS, "recommendations.parquet"))
    table = pq.read_table(path)
    at = rng.randrange(table.num_columns)
    field = table.schema.field(at)
    changes: list[Callable[[], pa.Table]] = [
        lambda: table.slice(0, rng.randrange(table.num_rows)),
        lambda: pa.concat_tables([table, table]),
        lambda: table.remove_column(at),
        lambda: table.set_column(at, field.name, pa.nulls(table.num_rows, field.type)),
        lambda: table.set_column(at, field.name, pa.array([rng.choice(("x", "\0", "é" * 9))] * table.num_rows)),
        lambda: table.set_column(at, field.name, pa.array(range(table.num_rows))),
        lambda: table.take(pa.array(rng.sample(range(table.num_rows), table.num_rows))),
    ]
    path.write_bytes(parquet(rng.choice(changes)()))


def _json(folder: Path, rng: random.Random) -> None:
    names = ("health", "ranking", "drift", "settings", "graph", "parameter_rows")
    path = folder / f"{rng.choice(names)}.json"
    path.write_text(json.dumps(_odd(json.loads(path.read_text()), rng)))


def _npz(folder: Path, rng: random.Random) -> None:
    with np.load(folder / "graph.npz") as result:
        arrays = dict(result)
    name = rng.choice(sorted(arrays))
    np.savez(folder / "graph.npz", **(arrays | {name: _odd_array(arrays[name], rng)}))


def _weights(folder: Path, rng: random.Random) -> None:
    save_file({"w": _odd_array(np.ones((5, 2), np.float32), rng)}, folder / WEIGHTS_FILE)
