"""The format ``mmrec``: ``userID<TAB>itemID<TAB>…<TAB>x_label``, and matrices of item features in the same folder.

It reads ``.inter`` files and tab-separated ``.csv`` files, also with names such as ``user_id:token``. Only user, item,
``x_label`` (0 train, 1 valid, 2 test) and a rating, where there is one, are read. Row i of a feature matrix is item i.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError, listed
from graphmill.ingest.files import guarded, load_matrix, path_text, within
from graphmill.ingest.format import ONE_WAY, Candidate, Format
from graphmill.ingest.interactions import (
    ITEM,
    SENTENCES,
    USER,
    as_numbers,
    count_interactions,
    interaction_edges,
    node_table,
    numbers,
    with_dislikes,
)
from graphmill.ingest.interactions_csv import MIN_WEIGHT, InteractionColumns, choose_columns, positive, read_roles
from graphmill.ingest.names import KNOWN_NAMES, first_named, plain
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult, Reading, feature_key, feature_table, sentences
from graphmill.settings import Settings, setting

LABELS = ("x_label", "split_label")
_TABLES = (".inter", ".inter.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_FEATURES = re.compile(r"(?P<name>.+?)_feat(?P<rest>.*)\.npy(\.gz)?")


class MmrecSettings(Settings):
    """How an ``mmrec`` source is read."""

    features: list[str] = setting(
        ["auto"],
        "matrices of item features as name=file, in the folder of the interactions; auto: every *_feat*.npy there, "
        "named by the part of the file name before _feat; none: read no features",
    )
    min_weight: float = MIN_WEIGHT


def mmrec_files(path: str | Path, settings: MmrecSettings | None = None) -> dict[str, str | Path]:
    """Role → file: ``interactions``, and each set of features by its name. ``path``: the file, or its folder.

    Raises :class:`InputError` for a folder without exactly one such file, and for an entry of ``features`` that names
    no file.
    """
    settings = settings or MmrecSettings()
    table = _table_in(Path(path)) if "://" not in str(path) and Path(path).is_dir() else path
    return {"interactions": table, **_feature_files(table, settings.features)}


@guarded
def read_mmrec(path: str | Path, settings: MmrecSettings | None = None) -> IngestResult:
    """Read users, items, interactions with their split, and item features under ``item::<name>``.

    Raises :class:`InputError` for a missing column, a file without usable rows, and a matrix that does
    not have one row per item or has values that are not finite.
    """
    settings = settings or MmrecSettings()
    files = mmrec_files(path, settings)
    with RowFile(files.pop("interactions"), "\t") as file:
        name = file.name
        reading = Reading(name)
        chosen = _choose(file.names, name)
        table, mended = read_roles(file, chosen, ("user", "item", "split"), reading)
        file_notes = [*file.notes, *mended]
    if not table.num_rows:
        raise InputError(f"{name} has no usable interaction{reading.first_reject}")
    rows = table.num_rows + reading.refused
    # Items that nobody likes are items all the same: they have a row in the matrices.
    users, user = _numbered(table["user"])
    items, item = _numbered(table["item"])
    table = table.append_column("user_number", pa.array(user)).append_column("item_number", pa.array(item))
    table, light, weight_notes = positive(table, chosen, settings.min_weight, name)
    user, item = (table[f"{role}_number"].to_numpy() for role in ("user", "item"))
    split = table["split"].to_numpy().astype(np.uint8)
    counts = {"rows": rows, "rejected_rows": reading.refused, "below_min_weight": light.num_rows}
    counts |= count_interactions(user, item, split, len(users), len(items))
    features = {
        feature_key(ITEM, set_name): _features(file, set_name, items, len(users)) for set_name, file in files.items()
    }
    result = IngestResult(
        nodes=node_table([(USER, users), (ITEM, items)], name.rsplit("/")[-1]),
        edges=interaction_edges(user, item, split, len(users)),
        rejects=reading.table(),
        features=features,
        counts=counts,
        notes=[*sentences(counts, SENTENCES), *file_notes, *weight_notes],
    )
    return with_dislikes(result, light) if light.num_rows else result


def _table_in(folder: Path) -> Path:
    tables = sorted(p for p in folder.iterdir() if p.name.endswith(_TABLES))
    inter = [p for p in tables if ".inter" in p.name] or tables
    if len(inter) != 1:
        names = ", ".join(p.name for p in inter) or "none"
        raise InputError(
            f"{path_text(folder)} must hold one .inter file (or .csv); it has {names}; name the file as path"
        )
    return inter[0]


def _feature_files(table: str | Path, wanted: list[str]) -> dict[str, str | Path]:
    folder = str(table).rpartition("/")[0] or "."
    out: dict[str, str | Path] = {}
    for entry in wanted:
        if entry == "auto":
            files = [] if "://" in folder else sorted(Path(folder).iterdir())
            out |= {match["name"] + match["rest"]: file for file in files if (match := _FEATURES.fullmatch(file.name))}
        elif entry != "none":
            name, _, file_name = entry.partition("=")
            if not (name and file_name):
                raise InputError(
                    f"features: {entry!r} is not name=file, such as image=image_feat.npy, and not auto or none"
                )
            out[name] = within(folder, file_name)
    if "interactions" in out:
        raise InputError("features: a set cannot be named 'interactions'; name it otherwise")
    return out


def _choose(names: tuple[str, ...], file: str) -> dict[str, str]:
    split = first_named(names, LABELS)
    if not split or len(names) < 3:
        raise InputError(
            f"{file} has no column for the split ({', '.join(LABELS)}); it has {listed(names)}. The format mmrec is "
            "separated by tabs. For interactions without a split use the format interactions_csv."
        )
    return choose_columns(names, InteractionColumns(timestamp="none"), file) | {"split": split}


def _numbered(column: pa.ChunkedArray) -> tuple[pa.StringArray, np.ndarray]:
    """The ids in order, and each row's number. Ids that are numbers without large gaps are all from 0 to the largest, also
    those without interactions."""
    plain = column.combine_chunks().cast(pa.string()).dictionary_encode()
    codes = plain.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    values = as_numbers(plain.dictionary)
    if values is not None:
        return numbers(int(values.max()) + 1), values[codes]
    return plain.dictionary, codes


def _features(file: str | Path, name: str, items: pa.StringArray, num_users: int) -> pa.Table:
    """The matrix as a feature table of the items."""
    if not items.equals(numbers(len(items))):
        raise InputError(
            f"{path_text(file)}: row i is item i, but the items have names and not numbers; use the format node_features "
            "with the ids of its rows, or features: [none]"
        )
    values = load_matrix(file)
    if len(values) != len(items):
        raise InputError(
            f"{path_text(file)} has {len(values):,} rows, but there are {len(items):,} items (the largest number and one); "
            "row i must be item i, so this is another data set's file, or the interactions were numbered anew"
        )
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(broken):
        raise InputError(
            f"{path_text(file)}: {len(broken):,} rows hold values that are not finite (NaN or infinite), the first is row "
            f"{broken[0]}; mend them, or leave such items out with the format node_features"
        )
    return feature_table(np.arange(num_users, num_users + len(items), dtype=np.int32), values)


def _recognises(candidate: Candidate) -> int:
    if candidate.is_folder:
        return max(
            (min(_recognises(Candidate(str(f))), 92) for n, f in candidate.files.items() if n.endswith(_TABLES)),
            default=0,
        )
    names = {plain(name) for name in candidate.columns}
    both = all(names & set(KNOWN_NAMES[role]) for role in ("user", "item"))
    return 95 if both and names & set(LABELS) else 0


FORMAT = Format(
    "mmrec",
    MmrecSettings,
    "interactions",
    _recognises,
    read_mmrec,
    mmrec_files,
    graph=ONE_WAY,
    brings_features=lambda settings: settings.features != ["none"],
)
