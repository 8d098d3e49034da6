"""The evidence of edges: texts of the edges table, joined by node pair, so that merged edges and reverses keep them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from graphmill.graph.numbering import Numbering

COLUMN, FILE = "evidence", "evidence.arrow"
SEPARATOR, LONGEST = " | ", 500
"""Between the texts of a pair; characters of all of them that are kept."""


def evidence_table(edges: pa.Table, numbering: Numbering) -> pa.Table | None:
    """``key`` int64, ascending: low · nodes + high of a pair's global numbers; ``text``: its different texts, sorted. None
    if no edge of the graph has any."""
    if COLUMN not in edges.column_names:
        return None
    column = edges[COLUMN].combine_chunks()
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = [(text or "").strip() for text in column.dictionary.to_pylist()]
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    ends = [numbering.of_row[edges[name].to_numpy()].astype(np.int64) for name in ("head", "tail")]
    has_text = np.append([bool(text) for text in texts], False)  # the last place is that of null
    kept = has_text[codes] & (ends[0] >= 0) & (ends[1] >= 0)
    keys = np.minimum(*ends)[kept] * numbering.num_nodes + np.maximum(*ends)[kept]
    of_pair: dict[int, set[str]] = {}
    for key, code in zip(keys.tolist(), codes[kept].tolist(), strict=True):
        of_pair.setdefault(key, set()).add(texts[code])
    if not of_pair:
        return None
    joined = [SEPARATOR.join(sorted(of_pair[key])) for key in sorted(of_pair)]
    short = [text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for text in joined]
    return pa.table({"key": pa.array(sorted(of_pair), pa.int64()), "text": pa.array(short, pa.string())})
