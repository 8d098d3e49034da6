"""Parquet files are written with checksums of their pages; damage of them is one sentence, never another value."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import InputError
from graphmill.parquet import ParquetTable, parquet_writer, write_parquet

TABLE = pa.table({
    "id": [f"node {n}" for n in range(40)], "kind": pa.array(["drug", "gene"] * 20).dictionary_encode(),
    "n": range(40), "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(80, dtype=np.float32)), 2),
})  # fmt: skip


def data_of(table: pa.Table = TABLE, **options: object) -> bytes:
    written = io.BytesIO()
    write_parquet(table, written, **options)
    return written.getvalue()


def test_it_is_read_whole_by_groups_and_in_parts(tmp_path: Path) -> None:
    with parquet_writer(tmp_path / "x.parquet", TABLE.schema) as writer:
        writer.write_table(TABLE, row_group_size=30)
    result = ParquetTable(tmp_path / "x.parquet", mapped=True)
    assert (result.rows, result.groups, result.names) == (40, 2, ("id", "kind", "n", "vector"))
    assert result.read() == TABLE
    assert result.group(1, ["n"]) == TABLE.select(["n"]).slice(30)
    assert pa.Table.from_batches(result.batches(7, ["id", "n"])) == TABLE.select(["id", "n"])


def test_a_folder_named_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    (tmp_path / "year=2026").mkdir()
    write_parquet(TABLE, tmp_path / "year=2026" / "x.parquet")
    assert ParquetTable(tmp_path / "year=2026" / "x.parquet").read() == TABLE


def read_or_refusal(data: bytes) -> pa.Table | str:
    try:
        return ParquetTable(pa.BufferReader(data), "x.parquet").read()
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_no_flipped_bit_of_a_page_changes_a_value(compression: str) -> None:
    whole, rng = data_of(compression=compression), np.random.default_rng(7)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refusals = []
    for place in range(0, footer, 2):
        hurt = bytearray(whole)
        hurt[place] ^= 1 << int(rng.integers(8))
        result = read_or_refusal(bytes(hurt))
        if isinstance(result, str):
            refusals.append(result)
        else:
            assert result == TABLE, place
    assert len(refusals) > footer // 4
    assert all(text.startswith("x.parquet is") and "\n" not in text for text in refusals)


def test_the_sentence_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    path, whole = tmp_path / "x.parquet", bytearray(data_of(compression="none"))
    whole[whole.find(b"node 7") + 5] ^= 1
    path.write_bytes(whole)
    for read in (lambda table: table.read(), lambda table: table.group(0), lambda table: list(table.batches(9))):
        with pytest.raises(InputError, match=r"x\.parquet is damaged \(OSError: .*CRC.*\); export it again$"):
            read(ParquetTable(path, remedy="export it again"))
    path.write_bytes(whole[:100])
    with pytest.raises(InputError, match=r"x\.parquet is not a readable Parquet file .*; write it again$"):
        ParquetTable(path)


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet", compression="none", use_dictionary=False)
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole.replace(b"node 7", b"node \xff"))
    with pytest.raises(InputError, match=r"is damaged .*UTF8"):
        ParquetTable(tmp_path / "x.parquet").read()
    (tmp_path / "x.parquet").write_bytes(whole.replace(b"vector", b"vect\xf3r"))
    with pytest.raises(InputError, match=r"is not a readable Parquet file .*utf-8"):
        ParquetTable(tmp_path / "x.parquet")
