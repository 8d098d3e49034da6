"""Metadata for the UI: plain numbers, table schemas, small tables, small inline pictures, code snippets.

Dagster accepts only Python scalars, and stores an inline picture several times. Only this module handles these limits.
It does not interpret figures.
"""

import base64
import io
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
from graphmill.evaluation.pictures.canvas import small_png
from graphmill.orchestration.io_managers import REMEDY
from graphmill.parquet import ParquetTable

INLINE_IMAGE_BYTES = 80_000
TABLE_ROWS = 50
_SMALLEST_SIDE = 160


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
    """A table of at most ``TABLE_ROWS`` rows, with numbers rounded to five digits. Columns are the keys of the first row."""
    if not rows:
        return dg.MetadataValue.text("none")
    kept = [dg.TableRecord({key: _rounded(_cell(value)) for key, value in row.items()}) for row in rows[:TABLE_ROWS]]
    kinds = {bool: "bool", int: "int", float: "float"}
    columns = [dg.TableColumn(key, kinds.get(type(value), "string")) for key, value in kept[0].data.items()]
    return dg.MetadataValue.table(kept, dg.TableSchema(columns=columns))


def _rounded(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


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
    """A PNG, its file (relative to the project) and its title. ``on_top``: also beside the summary, if it is served."""

    png: bytes
    path: str
    title: str
    on_top: bool = True


def picture(image: Picture, root: Path, max_bytes: int = INLINE_IMAGE_BYTES) -> dg.MetadataValue:
    """Write the picture in full size to its file, and show it inline with at most ``max_bytes``.

    The bound applies to the stored text: the image in base64, its title and the path.
    """
    write_atomically(root / image.path, image.png)
    encoded = _small_png(image.png, max_bytes - len(image.title) - len(image.path) - 100)
    inline = f"![{image.title}](data:image/png;base64,{encoded})\n\n" if encoded else ""
    return dg.MetadataValue.md(f"{inline}Full size: `{image.path}`")


def _small_png(png: bytes, max_bytes: int) -> str:
    """Base64 of the image, scaled down until it fits; empty if it would become unreadably small."""
    from PIL import Image  # imported here, because most steps draw nothing

    with Image.open(io.BytesIO(png)) as image:
        width, height = image.size
    scale = 1.0
    while min(width, height) * scale >= min(_SMALLEST_SIDE, width, height):
        encoded = base64.b64encode(small_png(png, max(1, round(width * scale)), colours=64)).decode("ascii")
        if len(encoded) <= max_bytes:
            return encoded
        # The file size grows with the area; scale down a little more, because detail shrinks more slowly.
        scale *= min(0.9, 0.95 * math.sqrt(max(max_bytes, 1) / len(encoded)))
    return ""
