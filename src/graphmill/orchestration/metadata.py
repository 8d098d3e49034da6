"""Metadata for the UI: plain numbers, table schemas, small tables, small inline pictures, code snippets.

Dagster accepts only Python scalars, and stores an inline picture several times. Only this module handles these limits.
It does not interpret figures.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from graphmill.atomic_files import write_atomically
from graphmill.evaluation import markdown
from graphmill.evaluation.pictures.canvas import png_width, small_png
from graphmill.orchestration.io_managers import REMEDY
from graphmill.parquet import ParquetTable

PICTURE_BYTES, PAGE_BYTES = 40_000, 150_000
"""Largest size of a picture's text, and of all those of one materialization: the database stores each about seven times."""
TABLE_ROWS = 50


def scalar(value: Any) -> Any:
    """``value`` as a bool, int, float or str for Dagster, converted from NumPy and torch scalars, enums and paths.

    NaN and infinities become text, because as numbers the event log would return null.
    """
    if hasattr(value, "item") and callable(value.item):
        value = value.item()
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return dg.MetadataValue.path(str(value))
    if isinstance(value, list | tuple):
        return ", ".join(str(scalar(item)) for item in value)
    raise TypeError(f"{type(value).__name__} is not a scalar: {value!r}")


def scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """:func:`scalar` of each value; nested mappings are flattened (``loss_link``), ``None`` is left out."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            out.update({f"{key}_{name}": inner for name, inner in scalars(value).items()})
        elif value is not None:
            out[key] = scalar(value)
    return out


def rounded(value: Any) -> Any:
    """Round numbers to four significant digits."""
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value


def table_metadata(table: pa.Table, descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Row count and column schema, with the UI's keys."""
    return {
        "dagster/row_count": table.num_rows,
        COLUMNS_KEY: column_schema(table.schema, descriptions),
    }


COLUMNS_KEY = "columns"
"""Key of a table's schema. With Dagster's own key, it would be above the summary and push it off the first screen."""


def column_schema(schema: pa.Schema, descriptions: Mapping[str, str]) -> dg.TableSchema:
    """An Arrow schema as Dagster's, with the given descriptions of columns."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                # "string" is clearer to a reader than "dictionary<values=string, indices=int32, ordered=0>".
                str(field.type.value_type if pa.types.is_dictionary(field.type) else field.type),
                description=descriptions.get(field.name),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def records(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    """A table of at most ``TABLE_ROWS`` rows, with numbers rounded to four digits. Columns are the keys of the first row."""
    if not rows:
        return dg.MetadataValue.text("none")
    kept = [dg.TableRecord({key: rounded(_cell(value)) for key, value in row.items()}) for row in rows[:TABLE_ROWS]]
    kinds = {bool: "bool", int: "int", float: "float"}
    columns = [dg.TableColumn(key, kinds.get(type(value), "string")) for key, value in kept[0].data.items()]
    return dg.MetadataValue.table(kept, dg.TableSchema(columns=columns))


def _cell(value: Any) -> Any:
    return "" if value is None else scalar(value)


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table (at most ``TABLE_ROWS``); numbers to four significant digits."""
    if not rows:
        return "none"
    names = list(rows[0])
    lines = [markdown.table(names, [[_cell(row.get(name)) for name in names] for row in rows[:TABLE_ROWS]])]
    if len(rows) > TABLE_ROWS:
        lines.append(f"\n{len(rows) - TABLE_ROWS} more rows are not shown.")
    return "\n".join(lines)


def snippet(code: str) -> dg.MetadataValue:
    """A Python snippet to paste."""
    return dg.MetadataValue.md(f"```python\n{code.strip()}\n```")


def parquet_file(root: Path, file: str, descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Row count, columns and path of a Parquet file (relative to ``root``), and how to load it."""
    table = ParquetTable(root / file, remedy=REMEDY)
    return {
        "dagster/row_count": table.rows,
        COLUMNS_KEY: column_schema(table.schema, descriptions),
        "file": dg.MetadataValue.path(file),
        "how_to_load": snippet(f"import pandas as pd\n\nframe = pd.read_parquet({file!r})"),
    }


@dataclass(frozen=True)
class Picture:
    """A PNG, its file (relative to the project) and its title."""

    png: bytes
    path: str
    title: str


def picture(image: Picture, root: Path, pictures: int = 1) -> dg.MetadataValue:
    """Write the picture to its file, and show it inline, whole after one click, as one of ``pictures`` of a page.

    If its text would be too long, it gets fewer colours, and then a smaller size, with the file's path beside it.
    """
    write_atomically(root / image.path, image.png)
    room = min(PICTURE_BYTES, PAGE_BYTES // max(pictures, 1)) - len(image.title) - len(image.path) - 100
    png, share, colours = image.png, 1.0, 64
    while len(png) * 4 > room * 3:
        png = small_png(image.png, max(1, round(png_width(image.png) * share)), colours)
        colours, share = (colours // 2, share) if colours > 8 else (colours, share * 0.8)
    smaller = f"\n\nSmaller than in `{image.path}`." if png_width(png) < png_width(image.png) else ""
    return dg.MetadataValue.md(f"![{image.title}](data:image/png;base64,{base64.b64encode(png).decode()}){smaller}")
