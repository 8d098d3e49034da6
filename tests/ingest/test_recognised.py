"""``graphmill ingest-report PATH`` tells formats and folders by their content."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from graphmill import read_interactions
from graphmill.errors import InputError
from graphmill.ingest.column_maps import KgCsvSettings
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.public_readers import ingest_report, recognised
from tests.ingest.kg_text import CLEAN, text

INTER = "userID\titemID\trating\ttimestamp\tx_label\n" + "".join(
    f"{n % 3}\t{n % 5}\t5\t1\t{n % 3}\n" for n in range(15)
)
LAST_FM = {"train.txt": "0 0 1 2\n1 2\n", "test.txt": "0 3\n", "kg_final.txt": "0 0 4\n1 0 5\n"}
TRIPLES = "a\tr\tb\nb\ts\tc\n"
FEATURES = "id,x,y\na,1,2\nb,3,4\n"

PATHS: dict[str, tuple[str, dict[str, str | bytes], str]] = {
    "PrimeKG": ("kg_csv", {"kg.csv": text(*CLEAN)}, "kg.csv"),
    "named ends": ("kg_csv", {"x.csv": "source,relation,target\na,r,b\n"}, "x.csv"),
    "MMRec's .inter": ("mmrec", {"baby.inter": INTER}, "baby.inter"),
    "MMRec's folder": ("mmrec", {"baby.inter": INTER, "u_id_mapping.csv": "user_id\tuserID\na\t0\n"}, ""),
    "RecBole's .inter": (
        "interactions_csv", {"x.inter": "user_id:token\titem_id:token\ttimestamp:float\n1\t2\t3\n"}, "x.inter",
    ),
    "MovieLens' ratings.csv": ("interactions_csv", {"r.csv": "userId,movieId,rating,timestamp\n1,2,3.5,4\n"}, "r.csv"),
    "ratings of films": ("interactions_csv", {"r.csv": "user,film,rating\nanna,alien,3.5\n"}, "r.csv"),
    "MovieLens' u.data": ("sequence", {"u.data": "196\t242\t3\t881250949\n186\t302\t3\t891717742\n"}, "u.data"),
    "MovieLens' ratings.dat": ("sequence", {"ratings.dat": "1::1193::5::978300760\n1::661::3::978302109\n"}, "ratings.dat"),
    "KGAT's folder": ("kgat", dict(LAST_FM), ""),
    "LightGCN's folder": ("kgat", {"train.txt": "0 0 1 2\n1 2\n2 1 0\n", "test.txt": "0 3\n"}, ""),
    "triples' folder": ("triples", {"train.txt": TRIPLES, "valid.txt": "a\ts\tb\n", "test.txt": "c\tr\ta\n"}, ""),
    "one file of triples": ("triples", {"facts.tsv": TRIPLES}, "facts.tsv"),
    "OGB's folder": ("kg_files", {"a.csv": "head,tail\n1,2\n", "b.csv": "head,tail\n2,1\n"}, ""),
    "features": ("node_features", {"f.csv": FEATURES}, "f.csv"),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_the_format_is_told_and_the_path_is_read_as_it(tmp_path: Path, name: str) -> None:
    format, files, entry = PATHS[name]
    for file, data in files.items():
        (tmp_path / file).write_bytes(data if isinstance(data, bytes) else data.encode())
    assert recognised(tmp_path / entry)[0] == format
    result = ingest_report(tmp_path / entry)
    assert (result.format, result.problem) == (format, "")
    assert result.defs


def test_a_matrix_is_of_features(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    (tmp_path / "x.ids.txt").write_text("a\nb\n", encoding="utf-8")
    assert recognised(tmp_path / "x.npy") == ["node_features"]


def test_a_folder_of_nothing_known_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("hello", encoding="utf-8")
    problem = ingest_report(tmp_path).problem
    assert "readme.md" in problem
    assert "--format" in problem


def test_columns_of_parquet_are_listed(tmp_path: Path) -> None:
    pd.DataFrame({"id": ["a", "b"], "x": [1.5, 2], "y": [1, 2]}).to_parquet(tmp_path / "f.parquet")
    result = ingest_report(tmp_path / "f.parquet")
    assert [(c["name"], c["part"], c["example"]) for c in result.columns] == [
        ("id", "key", "a"), ("x", "feature", "1.5"), ("y", "feature", "1"),
    ]  # fmt: skip


def of(frame: pd.DataFrame, how: str) -> bytes:
    made = io.BytesIO()
    getattr(frame, how)(made)
    return made.getvalue()


FOREIGN: dict[str, tuple[Callable[[], bytes], str]] = {
    "pickle": (lambda: of(pd.DataFrame({"a": [1]}), "to_pickle"), "a pickle, which may run any code"),
    "Arrow": (lambda: of(pd.DataFrame({"a": [1]}), "to_feather"), r"an Arrow \(Feather\) file; write it as Parquet"),
    "HDF5": (lambda: b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5 file"),
    "SQLite": (lambda: b"SQLite format 3\0" + bytes(100), "a SQLite database"),
    "old Excel": (lambda: b"\xd0\xcf\x11\xe0" + bytes(100), r"\.xls\); save the sheet as CSV"),
    "Turtle": (lambda: b"@prefix ex: <http://ex.org/> .\nex:a ex:b ex:c .\n", "Turtle; write it as N-Triples"),
    "RDF/XML": (lambda: b'<?xml version="1.0"?>\n<rdf:RDF></rdf:RDF>\n', "XML .*write RDF as N-Triples"),
    "JSON array": (lambda: b'[{"head": "a", "tail": "b"}]', "one JSON array; write one object a line"),
    "JSON over lines": (lambda: b'{\n "edges": []\n}\n', "its first line is not an object; write one object per line"),
    "web page": (lambda: b"<!DOCTYPE html><html>Sign in</html>", r"a web page \(of a login or an error\?\)"),
    "git-lfs": (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run git lfs pull"),
    "UTF-32": (lambda: "head,tail\n".encode("utf-32"), "UTF-32 text; save it as UTF-8"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_cannot_be_read_is_refused_by_name_with_the_way_out(tmp_path: Path, kind: str) -> None:
    write, message = FOREIGN[kind]
    (tmp_path / "x.csv").write_bytes(write())
    with pytest.raises(InputError, match=message):
        read_kg_csv(tmp_path / "x.csv", KgCsvSettings())
    assert ingest_report(tmp_path / "x.csv").problem


def test_ids_of_parquet_and_json_are_text(tmp_path: Path) -> None:
    pd.DataFrame({"user": [1, 2], "item": ["007", "7"]}).to_parquet(tmp_path / "x.parquet")
    result = ingest_report(tmp_path / "x.parquet")
    assert (result.format, result.node_types) == ("interactions_csv", {"user": 2, "item": 2})
    (tmp_path / "x.jsonl").write_text('{"user": 1, "item": "007"}\n{"user": 2.0, "item": 7}\n', encoding="utf-8")
    assert ingest_report(tmp_path / "x.jsonl").counts["interactions"] == 2
    assert read_interactions(tmp_path / "x.jsonl").nodes["id"].to_pylist() == ["1", "2", "007", "7"]


def test_a_first_line_that_may_be_a_header_is_no_interaction(tmp_path: Path) -> None:
    (tmp_path / "about.csv").write_text("id,desc\nA,same\nB,same\nC,same\n")
    assert recognised(tmp_path / "about.csv") == []
    report = ingest_report(tmp_path / "about.csv")
    assert "no two columns could be told" in report.problem


@pytest.mark.parametrize("header", ["id,name", "code,label", "id,title,year"])
def test_ids_with_their_names_are_no_edges(tmp_path: Path, header: str) -> None:
    rows = "".join(f"C{n},thing {n}" + ",1999" * (header.count(",") - 1) + "\n" for n in range(6))
    (tmp_path / "nodes.csv").write_text(f"{header}\n{rows}")
    assert "no two columns could be told" in ingest_report(tmp_path / "nodes.csv").problem


def test_the_column_of_few_values_is_the_relation(tmp_path: Path) -> None:
    rows = "".join(f"d{n % 7},x{n % 11},{'treats' if n % 2 else 'causes'}\n" for n in range(60))
    (tmp_path / "effects.csv").write_text(f"drug,disease,effect\n{rows}")
    report = ingest_report(tmp_path / "effects.csv")
    assert report.relations == {"causes": 30, "treats": 30}
    assert report.node_types == {"disease": 11, "drug": 7}


@pytest.mark.parametrize("header", ["", "disorder,how,factor\n"])
def test_few_heads_at_the_beginning_of_a_sorted_file_are_no_relations(tmp_path: Path, header: str) -> None:
    rows = "".join(f"d{n // 100},has kind {n % 9},g{n}\n" for n in range(400))
    (tmp_path / "sorted.csv").write_text(header + rows)
    report = ingest_report(tmp_path / "sorted.csv", "kg_csv")
    assert sorted(report.relations) == [f"has kind {n}" for n in range(9)]
