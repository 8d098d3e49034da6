"""Files of every format whose lines are about nodes of their own, seeded damages of them, and what a damage may change.

No reader can know that one letter was another, but each can keep a damage where it is. A change is *silent* where a line
that was left alone gives other rows than before, or rows come up that no line holds, and neither notes nor rejects say a
word. Files that are no lines: a ``.npy`` must keep its size and its ids, and Parquet its number of rows, since a byte of a
plain value is a letter as in any text; where its pages have checksums, every value.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from graphmill.ingest.formats import FORMATS
from graphmill.ingest.interactions import node_table, numbers
from graphmill.ingest.node_features import NodeFeatureSettings, read_node_features
from graphmill.ingest.tables import IngestResult
from graphmill.settings import parse
from tests.ingest.kg_text import row, text

COUNT = 9
"""Lines of each file."""
N = range(COUNT)
ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})")
Key = tuple[str, str]
"""What a row is about: ("edge", id of the head), ("node", id) or ("feature", id); ("user", id) where lines are parted."""


def packed(write: Callable[[io.BytesIO], object]) -> bytes:
    made = io.BytesIO()
    write(made)
    return made.getvalue()


def joined(lines: list[str], header: str = "") -> bytes:
    return "".join(f"{line}\n" for line in ([header] if header else []) + lines).encode()


@dataclass(frozen=True)
class Target:
    """Files of one format. ``about``: what each line of a file (by its place, from 0, without the header) is about."""

    format: str
    files: Mapping[str, bytes]
    entry: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    about: Mapping[str, list[Key]] = field(default_factory=dict)
    header_lines: Mapping[str, int] = field(default_factory=dict)
    encoding: str = "utf-8"
    summed: bool = False
    """Whether the file's pages have checksums."""

    def read(self, folder: Path) -> IngestResult:
        if self.format == "node_features":
            nodes = node_table([("item", numbers(COUNT))], "x")
            return read_node_features(folder / self.entry, nodes, NodeFeatureSettings(**self.settings))
        known = FORMATS[self.format]
        assert known.read is not None
        return known.read(str(folder / self.entry).rstrip("/"), parse(known.settings, self.settings, "x"))

    def lines(self, data: bytes) -> list[str]:
        return data.decode(self.encoding, "replace").replace("\r", "\n").split("\n")


def edges(prefix: str = "a") -> list[Key]:
    return [("edge", f"{prefix}{n:03}") for n in N]


def nodes(*prefixes: str) -> list[Key]:
    return [("node", f"{prefix}{n:03}") for prefix in prefixes for n in N]


KG = text(*(row(f"{2 * n},a{n:03},drug,A{n:03},s", f"{2 * n + 1},b{n:03},disease,B{n:03},s") for n in N))
FRAME = pd.DataFrame({"id": [str(n) for n in N], "a": np.arange(COUNT) * 1.0, "b": np.arange(COUNT) / 7})
TYPED = pd.DataFrame(
    [(f"a{n:03}", "Drug", "treats", f"b{n:03}", "Disease") for n in N],
    columns=["subject", "subject_type", "relation", "object", "object_type"],
)
MAP = {"columns": {"head_id": "subject", "head_type": "subject_type", "relation": "relation", "tail_id": "object",
                   "tail_type": "object_type"}}  # fmt: skip
TAKEN = [f"{100 + n}\t{200 + n}\t{1 + n}\t{1_600_000_000 + 60 * n}" for n in N]
USERS = [("edge", str(100 + n)) for n in N]
MATRIX = packed(lambda out: np.save(out, np.arange(3.0 * COUNT, dtype=np.float32).reshape(COUNT, 3)))
ITEMS = [("feature", str(n)) for n in N]
HTTP = "http://x.org/"

TARGETS: dict[str, Target] = {
    "kg_csv": Target("kg_csv", {"kg.csv": KG}, "kg.csv", about={"kg.csv": edges()}, header_lines={"kg.csv": 1}),
    "kg_csv, Parquet": Target("kg_csv", {"kg.parquet": packed(TYPED.to_parquet)}, "kg.parquet", MAP),
    "kg_csv, Parquet with checksums": Target(
        "kg_csv", {"kg.parquet": packed(lambda out: TYPED.to_parquet(out, write_page_checksum=True))}, "kg.parquet", MAP,
        summed=True,
    ),
    "kg_csv, JSON lines": Target(
        "kg_csv", {"kg.jsonl": TYPED.to_json(orient="records", lines=True).encode()}, "kg.jsonl", MAP,
        {"kg.jsonl": edges()},
    ),
    "kg_csv, UTF-16": Target(
        "kg_csv", {"kg.csv": KG.decode().encode("utf-16")}, "kg.csv", about={"kg.csv": edges()},
        header_lines={"kg.csv": 1}, encoding="utf-16",
    ),
    "triples": Target(
        "triples",
        {"train.txt": joined([f"a{n:03}\tr{n % 2}\tb{n:03}" for n in N]),
         "valid.txt": joined([f"b{n:03}\tr0\ta{n:03}" for n in N]),
         "node_dict.txt": joined([f"{end}{n:03}\t{n + COUNT * (end == 'b')}" for end in "ab" for n in N])},
        about={"train.txt": edges(), "valid.txt": edges("b")},
    ),
    "sequence": Target("sequence", {"x.txt": joined(TAKEN)}, "x.txt", about={"x.txt": USERS}),
    "interactions_csv": Target(
        "interactions_csv", {"x.csv": joined([line.replace("\t", ",") for line in TAKEN], "user,item,rating,time")},
        "x.csv", about={"x.csv": USERS}, header_lines={"x.csv": 1},
    ),
    "mmrec": Target(
        "mmrec",
        {"x.inter": joined([f"{100 + n}\t{n}\t{n % 3}" for n in N], "userID\titemID\tx_label"), "image_feat.npy": MATRIX},
        "x.inter", about={"x.inter": [("user" if n % 3 == 0 else "user test", str(100 + n)) for n in N]},
        header_lines={"x.inter": 1},
    ),
    "kgat": Target(
        "kgat",
        {"train.txt": joined([f"{n} {n} {(n + 1) % COUNT}" for n in N]),
         "test.txt": joined([f"{n} {(n + 2) % COUNT}" for n in N]),
         "kg_final.txt": joined([f"{n} {n % 2} {COUNT + n}" for n in N]),
         "item_list.txt": joined([f"i{n:03} {n}" for n in N], "org_id remap_id")},
        about={"train.txt": [("user", str(n)) for n in N], "test.txt": [("user test", str(n)) for n in N],
               "kg_final.txt": [("edge", str(n)) for n in N], "item_list.txt": [("node", str(n)) for n in N]},
        header_lines={"item_list.txt": 1},
    ),
    "node_features, .npy": Target(
        "node_features", {"f.npy": MATRIX, "f.ids.txt": joined([str(n) for n in N])}, "f.npy", {"node_type": "item"},
        {"f.ids.txt": ITEMS},
    ),
    "node_features, Parquet": Target(
        "node_features", {"f.parquet": packed(FRAME.to_parquet)}, "f.parquet", {"node_type": "item"},
    ),
    "node_features, CSV": Target(
        "node_features", {"f.csv": FRAME.to_csv(index=False).encode()}, "f.csv", {"node_type": "item"}, {"f.csv": ITEMS},
        {"f.csv": 1},
    ),
    "kg_files": Target(
        "kg_files",
        {"e.csv": joined([f"a{n:03},b{n:03}" for n in N]),
         "n.csv": joined([f"{e}{n:03},{e}kind,{n}" for e in "ab" for n in N], "id,kind,w")}, "",
        {"edges": [{"file": "e.csv", "relation": "r", "header": False}],
         "nodes": [{"file": "n.csv", "type_column": "kind"}]},
        {"e.csv": edges(), "n.csv": nodes("a", "b")}, {"n.csv": 1},
    ),
    "kg_files, KGX": Target(
        "kg_files",
        {"nodes.tsv": joined([f"{e}{n:03}\tbiolink:{k}|biolink:NamedThing\tname {e}{n:03}"
                              for e, k in (("a", "Gene"), ("b", "Drug")) for n in N], "id\tcategory\tname"),
         "edges.tsv": joined([f"a{n:03}\tbiolink:treats\tb{n:03}" for n in N], "subject\tpredicate\tobject")},
        about={"nodes.tsv": nodes("a", "b"), "edges.tsv": edges()}, header_lines={"nodes.tsv": 1, "edges.tsv": 1},
    ),
    "kg_files, Neo4j": Target(
        "kg_files",
        {"n.csv": joined([f"{e}{n:03},name {n},{k}" for e, k in (("a", "Drug;Chem"), ("b", "Gene")) for n in N],
                         ":ID(D),name,:LABEL"),
         "r.csv": joined([f"a{n:03},b{n:03},T{n % 2}" for n in N], ":START_ID(D),:END_ID(D),:TYPE")},
        about={"n.csv": nodes("a", "b"), "r.csv": edges()}, header_lines={"n.csv": 1, "r.csv": 1},
    ),
    "ntriples": Target(
        "ntriples",
        {"x.nt": joined([f"<{HTTP}a{n:03}> <{HTTP}p> <{HTTP}b{n:03}> ." for n in N]
                        + [f'<{HTTP}b{n:03}> <{HTTP}q> "x\\u00e9"@en .' for n in N])},
        "x.nt", about={"x.nt": edges(f"{HTTP}a")},
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


def contents(result: IngestResult) -> dict[Key, Counter[tuple[Any, ...]]]:
    """Rows by what they are about. Types of ends are the nodes' matter, not the edges'."""
    answer: dict[Key, Counter[tuple[Any, ...]]] = {}
    kinds, ids, names = (result.nodes[name].to_pylist() for name in ("type", "id", "name"))
    said = [name for name in result.edges.column_names if name not in ("head", "tail", "display_relation", "position")]
    for edge in result.edges.to_pylist():
        kind = "edge"
        if kinds[edge["head"]] == "user" and "split" in edge:
            kind = "user test" if edge["split"] else "user"
        head = (kind, ids[edge["head"]])
        answer.setdefault(head, Counter())[(ids[edge["tail"]], *(str(edge[name]) for name in said))] += 1
    for kind, node, name in zip(kinds, ids, names, strict=True):
        answer.setdefault(("node", node), Counter())[(kind, name)] += 1
    for table in result.features.values():
        for of in table.to_pylist():
            answer.setdefault(("feature", ids[of["node"]]), Counter())[tuple(of["values"])] += 1
    return answer


def said(line: str) -> str:
    """A line, also with its escapes by number as what they stand for, and of an object of JSON also its values."""
    with suppress(ValueError, RecursionError):
        if isinstance(record := json.loads(line), dict):
            return "\n".join([line, *map(str, record.values())])
    return f"{line}\n{ESCAPE.sub(lambda match: chr(int(match[1], 16)), line)}"


def silent_change(target: Target, name: str, hurt: bytes, before: IngestResult, after: IngestResult) -> str:
    """What of ``after`` a damage of the file ``name`` should not have changed without a word; empty where all is well."""
    if after.rejects.num_rows > before.rejects.num_rows or after.notes != before.notes:
        return ""
    was, now = contents(before), contents(after)
    whole = target.files[name]
    if name.endswith(".parquet"):
        if target.summed:
            return f"other rows: {[key for key in was if was[key] != now.get(key)][:3]}" if was != now else ""
        rows = [sum(sum(kept.values()) for key, kept in of.items() if key[0] != "node") for of in (was, now)]
        return "{} rows became {}".format(*rows) if rows[0] != rows[1] else ""
    if name.endswith(".npy"):
        other = was.keys() ^ now.keys()
        sized = f"{len(whole)} bytes became {len(hurt)}" if len(whole) != len(hurt) else ""
        return sized or (f"other ids: {sorted(other)[:3]}" if other else "")
    about = target.about.get(name, [])
    left, lines = Counter(target.lines(hurt)), target.lines(whole)[target.header_lines.get(name, 0) :]
    kept = {key for key, line in zip(about, lines, strict=False) if left[line]}
    others = {key for file, keys in target.about.items() if file != name for key in keys}
    hurt_lines = set(about) - kept
    for key in sorted((kept | others) - hurt_lines):
        if lost := was[key] - now.get(key, Counter()):
            return f"the line about {key} was left alone, and {lost} is lost"
    came = "\n".join(map(said, (left - Counter(target.lines(whole))).elements()))
    for key in sorted(now):
        # A carriage return within a line parts it here, and not in every reader.
        if now[key] - was.get(key, Counter()) and key not in hurt_lines and key[1].rpartition("\r")[2] not in came:
            return f"no line holds {key}: {now[key]}"
    return ""
