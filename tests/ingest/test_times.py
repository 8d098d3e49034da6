"""Times: no order is lost by rounding, and each number's unit is told by its own size."""

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from graphmill.errors import InputError
from graphmill.ingest.interactions_csv import read_interactions_csv, read_sequence
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.times import Time, parse_time

START = 1_700_000_000_000
"""Milliseconds."""
CLICKS = [(user, f"i{step}", START + 1000 * user + 150 * step) for user in range(4) for step in range(6)]


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


SPELLINGS = {
    "milliseconds": str,
    "milliseconds with a point": lambda ms: f"{ms}.0",
    "milliseconds as pandas writes large floats": lambda ms: f"{ms / 1e12:.12f}e+12",
    "seconds with a fraction": lambda ms: f"{ms / 1000:.3f}",
    "microseconds": lambda ms: str(ms * 1000 + 7),
    "nanoseconds": lambda ms: str(ms * 1_000_000 + 7),
    "ISO with a zone": iso,
    "ISO with Z": lambda ms: iso(ms).replace("+00:00", "Z"),
    "as pandas prints it": lambda ms: iso(ms).replace("T", " ").replace("+00:00", "000"),
}


def in_order(result: IngestResult) -> dict[str, list[str]]:
    ids, edges = result.nodes["id"].to_pylist(), result.edges.to_pylist()
    out: dict[str, list[str]] = {}
    for edge in sorted(edges, key=lambda e: (e["head"], e["position"])):
        out.setdefault(ids[edge["head"]], []).append(ids[edge["tail"]])
    return out


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("reader", ["interactions_csv", "sequence"])
def test_a_file_with_the_newest_first_is_in_order_within_a_second_however_times_are_written(
    tmp_path: Path, spelling: str, reader: str
) -> None:
    rows = [f"{user},{item},{SPELLINGS[spelling](ms)}" for user, item, ms in reversed(CLICKS)]
    path = tmp_path / "clicks.csv"
    header = ["user,item,timestamp"] if reader == "interactions_csv" else []
    path.write_text("\n".join([*header, *rows]) + "\n", encoding="utf-8")
    result = read_sequence(path) if reader == "sequence" else read_interactions_csv(path)
    assert in_order(result) == {str(user): [f"i{step}" for step in range(6)] for user in range(4)}
    assert set(result.edges["timestamp"].to_pylist()) == {ms // 1000 for _, _, ms in CLICKS}
    assert result.counts["same_time"] == 0


def test_times_of_the_same_instant_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("user,item,time\n1,b,1700000000500\n1,a,1700000000500\n1,c,1700000000400\n", encoding="utf-8")
    result = read_interactions_csv(path)
    assert in_order(result) == {"1": ["c", "b", "a"]}
    assert result.counts["same_time"] == 1


@pytest.mark.parametrize("late", [1, 3, 5])
@pytest.mark.parametrize("scale", [10**3, 10**6, 10**9])
def test_a_writer_that_changed_its_unit_is_read_right_and_counted(tmp_path: Path, late: int, scale: int) -> None:
    days = [1_690_000_000 + 86_400 * day for day in range(6)]
    rows = [f"u,i{day},{time * scale if day >= 6 - late else time}" for day, time in enumerate(days)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n", encoding="utf-8")
    result = read_interactions_csv(path)
    assert result.edges["timestamp"].to_pylist() == days
    assert result.counts["times_of_another_unit"] == min(late, 6 - late)
    assert any(note.startswith("timestamps have several units") for note in result.notes)


def test_times_in_the_future_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("user,item,time\nu,a,1700000000\nu,b,5600000000\nv,a,1700000001\n", encoding="utf-8")
    assert any(note.startswith("1 times are in the future") for note in read_interactions_csv(path).notes)


def test_sizes_that_do_not_tell_the_unit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("user,item,time\nu,a,90000000000\nu,b,110000000000\n", encoding="utf-8")
    with pytest.raises(InputError, match="unit cannot be told"):
        read_interactions_csv(path)


@pytest.mark.parametrize("name", ["milliseconds", "microseconds", "nanoseconds"])
def test_the_unit_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"{u}\t{i}\t{SPELLINGS[name](ms)}\n" for u, i, ms in CLICKS), encoding="utf-8")
    assert any(note.startswith(f"timestamps are {name};") for note in read_sequence(path).notes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", Time(0, 0, 0)),
        ("-1.5", Time(-2, 500_000_000, 0)),
        ("1700000000.000000001", Time(1_700_000_000, 1, 0)),
        ("2024-01-01T00:00:00.123456789", Time(1_704_067_200, 123_456_789, 4)),
        ("2024-01-01 02:00:00+02:00", Time(1_704_067_200, 0, 4)),
        ("nan", None),
        ("1e30", None),
        ("May", None),
        ("", None),
    ],
)
def test_one_time(text: str, expected: Time | None) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_of_parquet_keep_their_order(tmp_path: Path, unit: str, zone: str | None) -> None:
    times = pd.to_datetime([ms for _, _, ms in CLICKS], unit="ms", utc=True).as_unit(unit)
    times = times.tz_localize(None) if zone is None else times.tz_convert(zone)
    frame = pd.DataFrame({"user": [str(u) for u, _, _ in CLICKS], "item": [i for _, i, _ in CLICKS], "time": times})
    frame.iloc[::-1].to_parquet(tmp_path / "x.parquet")
    result = read_interactions_csv(tmp_path / "x.parquet")
    assert in_order(result) == {str(user): [f"i{step}" for step in range(6)] for user in range(4)}
    assert set(result.edges["timestamp"].to_pylist()) == {ms // 1000 for _, _, ms in CLICKS}


def test_what_is_held_out_is_the_newest_within_a_second_too(tmp_path: Path) -> None:
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.settings import parse

    rows = [f"u{user},i{step},{START + 100 * step}" for user in range(20) for step in reversed(range(6))]
    (tmp_path / "x.csv").write_text("\n".join(["user,item,time", *rows]) + "\n", encoding="utf-8")
    tables = read_interactions_csv(tmp_path / "x.csv")
    settings = parse(
        GraphSettings, {"add_reverse": "never", "split": {"method": "leave_one_out", "valid": 0.0, "test": 0.2}}, "x"
    )
    graph = build_graph(tables.nodes, tables.edges, settings, tmp_path / "graph")
    (relation,) = graph.relations
    edges = graph.edges(relation.index)
    # Positions are those of the reader: 5 is the newest of six.
    places = {int(place) for place in edges.position[edges.split == 2]}
    names = {e["position"]: tables.nodes["id"][e["tail"]].as_py() for e in tables.edges.to_pylist()}
    held = {names[place] for place in places}
    assert held == {"i5"}


@pytest.mark.parametrize("reader", ["kg_csv", "kg_files"])
def test_times_of_edges_are_of_the_unit_that_their_size_says(tmp_path: Path, reader: str) -> None:
    from graphmill.ingest.column_maps import KgColumns, KgCsvSettings
    from graphmill.ingest.kg_csv import read_kg_csv
    from graphmill.ingest.kg_files import KgFilesSettings, read_kg_files

    def read(*times: int) -> IngestResult:
        rows = [f"a{n},b,{time}" for n, time in enumerate(times)]
        (tmp_path / "x.csv").write_text("\n".join(["head,tail,time", *rows]) + "\n", encoding="utf-8")
        if reader == "kg_csv":
            columns = KgColumns(head_id="head", tail_id="tail", timestamp="time", relation_constant="r",
                                head_type_constant="n", tail_type_constant="n")  # fmt: skip
            return read_kg_csv(tmp_path / "x.csv", KgCsvSettings(columns=columns))
        columns = {"head_id": "head", "tail_id": "tail", "timestamp": "time"}
        return read_kg_files(
            tmp_path,
            KgFilesSettings.model_validate({"edges": [{"file": "x.csv", "relation": "r", "columns": columns}]}),
        )

    result = read(1_690_000_000, 1_690_086_400, 1_690_172_800_000)
    assert result.edges["timestamp"].to_pylist() == [1_690_000_000, 1_690_086_400, 1_690_172_800]
    assert result.counts["times_of_another_unit"] == 1
    assert any(note.startswith("1 times are in the future") for note in read(1_690_000_000, 5_600_000_000).notes)
    with pytest.raises(InputError, match="the unit cannot be told"):
        read(2001, 1_690_172_800_000)
    assert read(2001, 2005).edges["timestamp"].to_pylist() == [2001, 2005]  # years alone are an order
