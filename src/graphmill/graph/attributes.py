"""Features from attributes of nodes: one feature set a node type, made by encoders that stay with the graph.

Every attribute becomes columns whose rows have a length of about 1, so that none outweighs the others. Encoders are fitted
once; attributes of nodes that join later are encoded without fitting.

* text: hashed words (letters, where a script has no blanks) and pairs of them, TF-IDF, truncated SVD (latent semantic
  analysis, Deerwester et al. 1990), length 1;
* category: one-hot; list: multi-hot, length 1; more than :data:`ONE_HOT` values are hashed into as many columns;
* number, date: standardised, cut at ±4, 0 where missing; and a column that is 1 where missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.ingest.attributes import frequent
from graphmill.ingest.tables import attribute_kind, feature_table

Float32 = NDArray[np.float32]
SET = "attributes"
"""Name of the feature set that is made from attributes."""
TEXT_WIDTH, BUCKETS, USED = 64, 1 << 18, 20_000
"""Columns of a text; buckets that words are hashed into; and buckets that are used, those of the most frequent words."""
ONE_HOT = 64
CUT = 4.0
_NO_BLANKS = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts without blanks between words: Chinese, Japanese, Thai, Lao, Tibetan, Burmese, Khmer."""
_WORD = rf"[{_NO_BLANKS}]|(?:(?![{_NO_BLANKS}])[\w\u0900-\u0dff]){{2,}}"
"""A letter of these scripts, or two letters and more of others; vowel signs of Indian scripts are letters."""


@dataclass(frozen=True)
class Encoder:
    """How one attribute becomes ``width`` columns. ``parameters``: plain values, for the manifest.

    ``basis``: of a text, float32 [2 + width, used buckets]: the bucket's number, the inverse document frequency, and the
    right singular vectors; None for other kinds.
    """

    name: str
    kind: str
    width: int
    parameters: Mapping[str, Any]
    basis: Float32 | None = None


@dataclass(frozen=True)
class EncodedAttributes:
    """The features of a type's nodes with attributes, and what the manifest says of them.

    ``table``: their feature table (:func:`graphmill.ingest.tables.feature_table`). ``about``: a mapping for each attribute.
    """

    table: pa.Table
    encoders: Sequence[Encoder]
    about: Sequence[Mapping[str, Any]]


def encoded_attributes(table: pa.Table, usable: NDArray[np.bool_]) -> EncodedAttributes:
    """Fit encoders to the rows of an attribute table whose node is ``usable`` (bool, by row of the nodes table), and encode
    all rows. ``nodes`` of each mapping: with a value.

    Raises :class:`InputError` if no row is usable, none has a value of some attribute, or a text has no words.
    """
    node, fitted = table["node"].to_numpy(), pa.array(usable[table["node"].to_numpy()])
    columns = {name: table[name].combine_chunks() for name in table.column_names[1:]}
    if not pc.any(fitted, min_count=0).as_py():
        raise InputError("attributes: every node that has some is held out; hold out fewer groups")
    encoders = [_fitted(name, column.filter(fitted)) for name, column in columns.items()]
    values = np.concatenate([encode(encoder, columns[encoder.name]) for encoder in encoders], axis=1)
    present = np.any([column.is_valid().to_numpy(zero_copy_only=False) for column in columns.values()], axis=0)
    about = [
        {"name": e.name, "kind": e.kind, "width": e.width, "nodes": len(columns[e.name].drop_null()),
         "frequent": [list(pair) for pair in frequent(columns[e.name])], **e.parameters}
        for e in encoders
    ]  # fmt: skip
    return EncodedAttributes(feature_table(node[present], values[present]), encoders, about)


def encode(encoder: Encoder, column: pa.Array) -> Float32:
    """float32 [rows, width] of a column with a type of :data:`graphmill.ingest.tables.ATTRIBUTE_TYPES`; null: missing."""
    if encoder.kind in ("number", "date"):
        given = _numbers(column)
        missing = np.isnan(given)
        scaled = np.clip((given - encoder.parameters["mean"]) / encoder.parameters["deviation"], -CUT, CUT)
        return np.stack([np.where(missing, 0, scaled), missing], axis=1).astype(np.float32)
    if encoder.basis is not None:
        weighted = _weighted(_words(column), encoder.basis[0].astype(np.int64), encoder.basis[1])
        rows = np.asarray(weighted @ encoder.basis[2:].T)
    else:
        values = column.cast(pa.list_(pa.string())) if encoder.kind == "list" else column.cast(pa.string())
        rows = _hot(encoder, values.to_pylist())
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)


def _hot(encoder: Encoder, rows: list[Any]) -> Float32:
    """float32 [rows, width]: counts of the values' columns."""
    from sklearn.utils import murmurhash3_32

    places = {value: place for place, value in enumerate(encoder.parameters["values"])}
    out = np.zeros((len(rows), encoder.width), np.float32)
    for row, values in enumerate(rows):
        for value in [values] if isinstance(values, str) else values or ():
            if places and value in places:
                out[row, places[value]] = 1
            elif not places:
                hashed = murmurhash3_32(value, seed=0)
                out[row, abs(hashed) % encoder.width] += 1 if hashed >= 0 else -1
    return out


def _fitted(name: str, column: pa.Array) -> Encoder:
    kind = attribute_kind(column.type)
    if column.null_count == len(column):
        raise InputError(
            f"attribute {name!r}: only nodes that are held out have a value; leave it out, or hold out fewer groups"
        )
    if kind == "text":
        basis = _text_basis(name, column)
        return Encoder(name, kind, len(basis) - 2, {}, basis)
    if kind in ("number", "date"):
        given = _numbers(column)
        known = given[~np.isnan(given)]
        mean, deviation = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
        return Encoder(name, kind, 2, {"mean": mean, "deviation": deviation or 1.0})
    values = [value for value, _ in frequent(column, ONE_HOT + 1)]
    return Encoder(name, kind, min(len(values), ONE_HOT), {"values": values if len(values) <= ONE_HOT else []})


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    plain = column if pa.types.is_floating(column.type) else column.cast(pa.int64()).cast(pa.float64())
    return np.asarray(plain.fill_null(np.nan).to_numpy(zero_copy_only=False), np.float64)


def _words(column: pa.Array) -> sp.csr_matrix:
    """float32 [rows, BUCKETS]: log(1 + count) of words and pairs of words, whose accents and case do not count."""
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        n_features=BUCKETS,
        ngram_range=(1, 2),
        token_pattern=_WORD,
        strip_accents="unicode",
        alternate_sign=False,
        norm=None,
        dtype=np.float32,
    )
    counts = sp.csr_matrix(hashing.transform(column.fill_null("").to_pylist()))
    counts.data = np.log1p(counts.data)
    return counts


def _weighted(words: sp.csr_matrix, used: NDArray[np.int64], idf: Float32) -> sp.csr_matrix:
    from sklearn.preprocessing import normalize

    return normalize(words[:, used].multiply(idf).tocsr())


def _text_basis(name: str, column: pa.Array) -> Float32:
    """:attr:`Encoder.basis` of a text."""
    from sklearn.decomposition import TruncatedSVD

    words = _words(column)
    rows = np.bincount(words.indices, minlength=BUCKETS)
    if not rows.any():
        raise InputError(f"attribute {name!r} has no word of two letters or more, so it is no text; make it a category")
    shared = np.flatnonzero(rows > 1) if (rows > 1).sum() > 1 else np.flatnonzero(rows)
    used = np.sort(shared[np.argsort(-rows[shared], kind="stable")[:USED]])
    idf = (np.log((1 + words.shape[0]) / (1 + rows[used])) + 1).astype(np.float32)
    weighted, width = _weighted(words, used, idf), min(TEXT_WIDTH, len(used))
    if width > 1 and weighted.shape[0] > 1:
        right = TruncatedSVD(width, random_state=0).fit(weighted).components_
    else:
        right = np.eye(max(width, 1), len(used))
    return np.concatenate([[used, idf], right]).astype(np.float32)
