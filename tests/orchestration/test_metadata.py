"""What reaches the UI: plain numbers, schemas, tables and pictures within Dagster's limits."""

import base64
import io
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from graphmill.orchestration import metadata


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(2.0), 2.0),
        (float("nan"), "nan"),
        (np.float32("inf"), "inf"),
        (Colour.RED, "red"),
        ("text", "text"),
        ([1, 3, 10], "1, 3, 10"),
    ],
)
def test_scalars_are_plain_python(value: Any, expected: Any) -> None:
    got = metadata.scalar(value)
    assert got == expected
    assert type(got) is type(expected)


def test_what_is_no_scalar_is_refused() -> None:
    with pytest.raises(TypeError, match="set is not a scalar"):
        metadata.scalar({1, 2})


def test_nested_figures_are_flattened_and_accepted_by_dagster() -> None:
    values = metadata.scalars({"loss": {"link": np.float32(0.5)}, "best": None, "run": Path("runs/1")})
    assert list(values) == ["loss_link", "run"]
    dg.AssetMaterialization("a", metadata=values)


def test_a_table_shows_rows_and_columns() -> None:
    table = pa.table({"id": ["1"], "type": pa.array(["drug"]).dictionary_encode()})
    output = metadata.table_metadata(table, {"id": "as the source wrote it"})
    assert output["dagster/row_count"] == 1
    columns = output["columns"].columns
    assert [(column.name, column.type, column.description) for column in columns] == [
        ("id", "string", "as the source wrote it"),
        ("type", "string", None),
    ]


def test_long_tables_are_cut() -> None:
    rows = [{"relation": f"r{i}", "mrr": np.float64(i) / 7, "good": i > 3} for i in range(60)]
    assert len(metadata.records(rows).value.records) == metadata.TABLE_ROWS
    assert "10 more rows are not shown" in metadata.markdown_table(rows)


def test_markdown_tables_are_readable() -> None:
    assert metadata.markdown_table([{"name": "a|b", "n": 1234567, "x": 0.123456, "ok": True, "none": None}]) == (
        "| name | n | x | ok | none |\n| --- | --- | --- | --- | --- |\n| a\\|b | 1,234,567 | 0.1235 | yes |  |"
    )


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def noise(side: int) -> bytes:
    return png(Image.fromarray(np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8)))


def inline_image(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text.split("base64,")[1].split(")")[0])))


def test_pictures_are_shrunk_until_they_fit(tmp_path: Path) -> None:
    full = noise(800)
    assert len(full) > 1_000_000
    text = metadata.picture(metadata.Picture(full, "run/plot.png", "PCA"), tmp_path).value
    assert len(text) <= metadata.PICTURE_BYTES
    assert "`run/plot.png`" in text
    assert (tmp_path / "run" / "plot.png").read_bytes() == full
    assert min(inline_image(text).size) >= 160


def test_small_pictures_keep_their_size(tmp_path: Path) -> None:
    text = metadata.picture(
        metadata.Picture(png(Image.new("RGB", (640, 480), "white")), "plot.png", "PCA"), tmp_path
    ).value
    assert inline_image(text).size == (640, 480)
