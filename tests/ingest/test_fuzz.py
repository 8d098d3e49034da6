"""Damaged files, seeded: every reader gives tables or one sentence, in little time and memory. ``slow`` has longer runs."""

import io
import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from graphmill.errors import GraphmillError
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.node_features import NodeFeatureSettings, read_node_features
from graphmill.ingest.report import ingest_report
from graphmill.ingest.user_items import node_table, numbers
from graphmill.settings import parse
from tests.ingest.kg_text import CLEAN, text

CASES, MORE = 40, 600
"""Damages of each kind of file in CI, and in the slow run."""
LONGEST = 10.0
"""Seconds for one file: far more than any takes."""
MOST_MEMORY = 3 << 30

NUMBERS = "".join(f"{u}\t{(7 * u + k) % 9}\t{1 + k}\t{1_600_000_000 + 60 * k}\n" for u in range(6) for k in range(4))
FRAME = pd.DataFrame({"id": [str(n) for n in range(8)], "a": np.arange(8.0), "b": np.arange(8) / 7})
TYPED = pd.DataFrame(
    [(f"d{n}", "Drug", "treats", f"x{n % 3}", "Disease") for n in range(9)],
    columns=["subject", "subject_type", "relation", "object", "object_type"],
)
MAP = {"columns": {"head_id": "subject", "head_type": "subject_type", "relation": "relation", "tail_id": "object",
                   "tail_type": "object_type"}}  # fmt: skip


def packed(write: Callable[[io.BytesIO], object]) -> bytes:
    made = io.BytesIO()
    write(made)
    return made.getvalue()


TARGETS: dict[str, tuple[str, dict[str, bytes], str, dict]] = {
    "kg_csv": ("kg_csv", {"kg.csv": text(*CLEAN)}, "kg.csv", {}),
    "kg_csv, Parquet": ("kg_csv", {"kg.parquet": packed(TYPED.to_parquet)}, "kg.parquet", MAP),
    "kg_csv, JSON lines": (
        "kg_csv", {"kg.jsonl": TYPED.to_json(orient="records", lines=True).encode()}, "kg.jsonl", MAP,
    ),
    "kg_csv, UTF-16": ("kg_csv", {"kg.csv": text(*CLEAN).decode().encode("utf-16")}, "kg.csv", {}),
    "triples": (
        "triples",
        {"train.txt": b"a\tr\tb\nb\tr\tc\nc\ts\ta\n", "valid.txt": b"a\ts\tb\n", "node_dict.txt": b"a\t0\nb\t1\nc\t2\n"},
        "", {},
    ),
    "sequence": ("sequence", {"x.txt": NUMBERS.encode()}, "x.txt", {}),
    "interactions_csv": (
        "interactions_csv", {"x.csv": b"user,item,rating,time\n" + NUMBERS.replace("\t", ",").encode()}, "x.csv", {},
    ),
    "mmrec": (
        "mmrec",
        {"x.inter": b"userID\titemID\tx_label\n" + b"".join(b"%d\t%d\t%d\n" % (n % 3, n % 5, n % 3) for n in range(15)),
         "image_feat.npy": packed(lambda out: np.save(out, np.ones((5, 3), np.float32)))},
        "x.inter", {},
    ),
    "kgat": (
        "kgat",
        {"train.txt": b"0 0 1 2\n1 2 3\n", "test.txt": b"0 3\n1 0\n", "kg_final.txt": b"0 0 4\n1 1 5\n2 0 4\n",
         "item_list.txt": b"org_id remap_id\na 0\nb 1\nc 2\nd 3\n"},
        "", {},
    ),
    "node_features, .npy": (
        "node_features",
        {"f.npy": packed(lambda out: np.save(out, np.ones((8, 3), np.float32))),
         "f.ids.txt": "".join(f"{n}\n" for n in range(8)).encode()},
        "f.npy", {"node_type": "item"},
    ),
    "node_features, Parquet": (
        "node_features", {"f.parquet": packed(FRAME.to_parquet)}, "f.parquet", {"node_type": "item"},
    ),
    "node_features, CSV": (
        "node_features", {"f.csv": FRAME.to_csv(index=False).encode()}, "f.csv", {"node_type": "item"},
    ),
    "kg_files": (
        "kg_files",
        {"e.csv": b"0,1\n1,2\n2,0\n", "n.csv": b"id,kind,w\n0,a,1\n1,b,2\n2,a,3\n"}, "",
        {"edges": [{"file": "e.csv", "relation": "r", "header": False}],
         "nodes": [{"file": "n.csv", "type_column": "kind", "features": ["w"]}]},
    ),
    "kgx": (
        "kgx",
        {"nodes.tsv": b"id\tcategory\tname\nA:1\tbiolink:Gene|biolink:NamedThing\tone\nA:2\tbiolink:Drug\ttwo\n",
         "edges.tsv": b"subject\tpredicate\tobject\nA:1\tbiolink:treats\tA:2\nA:2\tbiolink:treats\tA:1\n"}, "", {},
    ),
    "neo4j": (
        "neo4j",
        {"n.csv": b":ID(D),name,:LABEL\n1,x,Drug;Chem\n2,y,Drug\n", "r.csv": b":START_ID(D),:END_ID(D),:TYPE\n1,2,T\n"},
        "", {},
    ),
    "ntriples": (
        "ntriples",
        {"x.nt": b'<http://a/1> <http://a/p> <http://a/2> .\n<http://a/1> <http://a/q> "x\\u00e9"@en .\n'
                 b"<http://a/1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://a/K> .\n_:b <http://a/p> _:c .\n"},
        "x.nt", {},
    ),
}  # fmt: skip
TOKENS = [
    b"\0", b'"', b"\r", b"\n", b"\t", b",", b";", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"9" * 25, b"99999999999",
    b"2147483646", b"-1", b"1e999", b"nan", b"1_0", b"\xe2\x80\xa8", b"sep=;\n", b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"{",
    b"[[[[", b"\\u", b"\xed\xa0\x80", b"x" * 300_000, b"\n" * 50, b" " * 200_000,
    b'"' * 5_000, b"\\" * 5_000,
]  # fmt: skip


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three damages: bytes flipped, cut, doubled, zeroed, or a token put in."""
    for _ in range(int(rng.integers(1, 4))):
        size = len(data)
        at = int(rng.integers(0, size + 1))
        end = min(size, at + int(rng.integers(1, 40)))
        match int(rng.integers(0, 7)):
            case 0:
                flipped = bytearray(data)
                for place in rng.integers(0, max(size, 1), 4):
                    if size:
                        flipped[place] ^= int(rng.integers(1, 256))
                data = bytes(flipped)
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + data[end:]
            case 3:
                data = data[:at] + data[at:end] * int(rng.integers(2, 6)) + data[end:]
            case 4:
                data = data[:at] + bytes(end - at) + data[end:]
            case _:
                data = data[:at] + TOKENS[int(rng.integers(len(TOKENS)))] + data[at:]
    return data


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A limit on the process's memory a little above what it has: an allocation by a wrong number fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def attempts(tmp_path: Path, target: str, seeds: range) -> dict[str, int]:
    """How many damaged files were read, and how many refused."""
    format, files, entry, settings = TARGETS[target]
    ends = {"read": 0, "refused": 0}
    for seed in seeds:
        rng = np.random.default_rng([seed, *target.encode()])
        names = sorted(files)
        chosen = names[int(rng.integers(len(names)))]
        for name, data in files.items():
            (tmp_path / name).write_bytes(damaged(data, rng) if name == chosen else data)
        started, refusal = time.perf_counter(), None
        try:
            if format == "node_features":
                nodes = node_table([("item", numbers(8))], "x")
                read_node_features(tmp_path / entry, nodes, NodeFeatureSettings(**settings))
            else:
                known = FORMATS[format]
                assert known.read is not None
                result = known.read(str(tmp_path / entry).rstrip("/"), parse(known.settings, settings, "x"))
                json.dumps([result.counts, result.notes])
            ends["read"] += 1
        except GraphmillError as error:
            ends["refused"] += 1
            refusal = error
        assert time.perf_counter() - started < LONGEST, seed
        if refusal is not None:
            assert "\n" not in str(refusal), (seed, refusal)
            # The guard around the readers is for what nobody has met: here is what it would have caught.
            assert refusal.__cause__ is None, (seed, refusal, refusal.__cause__)
    return ends


@pytest.mark.parametrize("target", TARGETS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(tmp_path: Path, target: str, little_memory: None) -> None:
    ends = attempts(tmp_path, target, range(CASES))
    assert ends["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_many_damaged_files(tmp_path: Path, target: str, little_memory: None) -> None:
    attempts(tmp_path, target, range(CASES, CASES + MORE))


@pytest.mark.parametrize("target", TARGETS)
def test_the_report_says_what_is_wrong(tmp_path: Path, target: str, little_memory: None) -> None:
    _, files, entry, _ = TARGETS[target]
    for seed in range(8):
        rng = np.random.default_rng([seed, *target.encode()])
        for name, data in files.items():
            (tmp_path / name).write_bytes(damaged(data, rng))
        found = ingest_report(tmp_path / entry if entry else tmp_path)
        assert found.problem or found.counts
        assert "\n" not in found.problem
        json.dumps(found.to_dict())
