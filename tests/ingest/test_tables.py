"""A table is held against its schema with a message that names what differs."""

import pyarrow as pa
import pytest

from graphmill.errors import InputError
from graphmill.ingest.tables import EDGES, REJECTS, check_table, features_schema


def test_a_table_of_the_schema_passes() -> None:
    check_table(EDGES.empty_table(), EDGES, "edges")
    assert features_schema(3).field("values").type == pa.list_(pa.float32(), 3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"line": [1]}), "table 'rejects' has the columns line; expected file, line, column, reason, value"),
        (
            REJECTS.empty_table().set_column(1, "line", pa.array([], pa.int32())),
            "table 'rejects': column 'line' is int32; expected int64",
        ),
        (
            pa.table([["f"], [1], ["c"], [None], ["v"]], REJECTS),
            "table 'rejects': column 'reason' has 1 empty values; none allowed",
        ),
    ],
)
def test_anything_else_is_refused(table: pa.Table, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_table(table, REJECTS, "rejects")
