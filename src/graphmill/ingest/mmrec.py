"""The format ``mmrec``: ``userID<TAB>itemID<TAB>…<TAB>x_label`` with a split, and matrices of item features in the same
folder.

It reads ``.inter`` files and tab-separated ``.csv`` files, also with names such as ``user_id:token``. Only user, item,
``x_label`` (0 train, 1 valid, 2 test) and a rating, where there is one, are read. Row i of a feature matrix is item i.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError, listed
from graphmill.ingest.feature_files import load_matrix
from graphmill.ingest.files import shown, within
from graphmill.ingest.format import ONE_WAY, Format, Look, table_preview
from graphmill.ingest.guard import guarded
from graphmill.ingest.interactions_csv import MIN_WEIGHT, positive, read_roles
from graphmill.ingest.names import KNOWN_NAMES, first_named, plain
from graphmill.ingest.rejects import max_rejects_setting, reject_table
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult, feature_key, feature_table
from graphmill.ingest.user_items import (
    ITEM,
    USER,
    Ids,
    as_numbers,
    count_interactions,
    interaction_edges,
    interaction_notes,
    node_table,
    numbers,
)
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
    ids: Literal["auto", "numbers", "names"] = setting(
        "auto",
        "numbers: items are 0 to the largest number, also those without interactions; names: items are the ids that "
        "occur; auto: numbers if all ids are numbers without large gaps",
    )
    min_weight: float = MIN_WEIGHT
    strict: bool = setting(False, "refuse the file if a row is rejected or a pair is repeated")
    max_rejects: int = max_rejects_setting("the file if")


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

    Raises :class:`InputError` for a missing column, a file without usable rows, too many rejects, a matrix that does
    not have one row per item or has values that are not finite and, with ``strict``, for any reject or repeated pair.
    """
    settings = settings or MmrecSettings()
    files = mmrec_files(path, settings)
    with RowFile(files.pop("interactions"), "\t") as file:
        name = file.name
        chosen = _choose(file.names, name)
        table, rejects, _, _ = read_roles(file, chosen, ("user", "item", "split"))
        file_notes = file.notes
    if 0 < settings.max_rejects < len(rejects):
        raise InputError(
            f"{name}: {len(rejects)} rows cannot be used, more than max_rejects ({settings.max_rejects}); the first on "
            f"{rejects[0].place}"
        )
    if settings.strict and rejects:
        raise InputError(f"{name}: {rejects[0].place} ({rejects[0].value!r}); mend the file, or set strict: false")
    if not table.num_rows:
        first = f", the first on {rejects[0].place} ({rejects[0].value!r})" if rejects else ""
        raise InputError(f"{name} has no usable interaction ({len(rejects)} rows refused{first})")
    rows = table.num_rows + len(rejects)
    # Items that nobody likes are items all the same: they have a row in the matrices.
    users, user = _numbered(table["user"], settings.ids, f"{name}: user")
    items, item = _numbered(table["item"], settings.ids, f"{name}: item")
    table = table.append_column("user_number", pa.array(user)).append_column("item_number", pa.array(item))
    table, light, weight_notes = positive(table, chosen, settings.min_weight, name)
    user, item = (table[f"{role}_number"].to_numpy() for role in ("user", "item"))
    split = table["split"].to_numpy().astype(np.uint8)
    counts = {"rows": rows, "rejects": len(rejects), "below_min_weight": light}
    counts |= count_interactions(user, item, split, len(users), len(items))
    if settings.strict and counts["duplicate_interactions"] + counts["pairs_in_two_splits"]:
        raise InputError(f"{name}: pairs of user and item are repeated; remove them, or set strict: false")
    features = {
        feature_key(ITEM, set_name): _features(file, set_name, items, len(users)) for set_name, file in files.items()
    }
    notes = [f"{len(rejects):,} rows cannot be used; see the rejects"] if rejects else []
    return IngestResult(
        nodes=node_table([(USER, users), (ITEM, items)], name.rsplit("/")[-1]),
        edges=interaction_edges(user, item, split, len(users)),
        rejects=reject_table((name, reject) for reject in rejects),
        features=features,
        counts=counts,
        notes=[*notes, *weight_notes, *interaction_notes(counts), *file_notes],
    )


def _table_in(folder: Path) -> Path:
    found = sorted(p for p in folder.iterdir() if p.name.endswith(_TABLES))
    inter = [p for p in found if ".inter" in p.name] or found
    if len(inter) != 1:
        names = ", ".join(p.name for p in inter) or "none"
        raise InputError(f"{shown(folder)} must hold one .inter file (or .csv); it has {names}; name the file as path")
    return inter[0]


def _feature_files(table: str | Path, wanted: list[str]) -> dict[str, str | Path]:
    folder = str(table).rpartition("/")[0] or "."
    out: dict[str, str | Path] = {}
    for entry in wanted:
        if entry == "auto":
            there = [] if "://" in folder else sorted(Path(folder).iterdir())
            out |= {found["name"] + found["rest"]: file for file in there if (found := _FEATURES.fullmatch(file.name))}
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
    known = {"user": KNOWN_NAMES["user"], "item": KNOWN_NAMES["item"], "split": LABELS}
    chosen = {role: first_named(names, options) for role, options in known.items()}
    for role, options in known.items():
        if not chosen[role]:
            remedy = " For interactions without a split use the format interactions_csv." if role == "split" else ""
            raise InputError(
                f"{file} has no column for the {role} ({', '.join(options)}); it has {listed(names)}. The format mmrec "
                f"is separated by tabs.{remedy}"
            )
    return chosen | ({"weight": weight} if (weight := first_named(names, KNOWN_NAMES["weight"])) else {})


def _numbered(column: pa.ChunkedArray, how: str, what: str) -> tuple[Ids, np.ndarray]:
    """The ids in order, and each row's number."""
    plain = column.combine_chunks().cast(pa.string()).dictionary_encode()
    codes = plain.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    values = None if how == "names" else as_numbers(plain.dictionary)
    if values is not None:
        return numbers(int(values.max()) + 1), values[codes]
    if how == "numbers":
        raise InputError(
            f"{what} ids are not whole numbers from 0 without large gaps, as ids: numbers expects; use ids: names"
        )
    return Ids(plain.dictionary), codes


def _features(file: str | Path, name: str, items: Ids, num_users: int) -> pa.Table:
    """The matrix as a feature table of the items."""
    if not items.ids.equals(numbers(len(items)).ids):
        raise InputError(
            f"{shown(file)}: row i is item i, but the items have names and not numbers; use the format node_features with "
            "the ids of its rows, or features: [none]"
        )
    values = load_matrix(file)
    if len(values) != len(items):
        raise InputError(
            f"{shown(file)} has {len(values):,} rows, but there are {len(items):,} items (the largest number and one); row "
            "i must be item i, so this is another data set's file, or the interactions were numbered anew"
        )
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(broken):
        raise InputError(
            f"{shown(file)}: {len(broken):,} rows hold values that are not finite (NaN or infinite), the first is row "
            f"{broken[0]}; mend them, or leave such items out with the format node_features"
        )
    return feature_table(np.arange(num_users, num_users + len(items), dtype=np.int32), values)


def _recognises(look: Look) -> int:
    if look.is_folder:
        return max(
            (min(_recognises(Look(str(f))), 92) for n, f in look.files.items() if n.endswith(_TABLES)), default=0
        )
    names = {plain(name) for name in look.columns}
    both = all(names & set(KNOWN_NAMES[role]) for role in ("user", "item"))
    return 95 if both and names & set(LABELS) else 0


FORMAT = Format(
    "mmrec",
    MmrecSettings,
    "interactions and nodes",
    _recognises,
    read_mmrec,
    mmrec_files,
    data_roles=("interactions",),
    graph=ONE_WAY,
    own_features=lambda settings: settings.features != ["none"],
    preview=lambda location, settings, role: table_preview(location, None, role),
)
