"""The synthetic samples that come with graphmill: one archive per chain, in the formats of the readers."""

import zipfile
from pathlib import Path

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError, SettingsError

FOLDER = Path(__file__).parent / "sample_files"
PLACES = {"biomed": "kg.csv", "kg_bench": "triples", "music": "music", "watch": "watch/views.tsv"}
"""Chain → place of its file, or of its folder of files, below ``data/01_raw`` of a project."""


def write_sample(chain: str, out: str | Path) -> Path:
    """Write the sample of ``chain`` and return the path of its file (of its folder, for kg_bench and music).

    ``out`` is the file if it ends in ``.csv`` or ``.tsv``, else a folder for the sample's files. Raises
    :class:`SettingsError` for another chain, and :class:`InputError` if a file cannot be written.
    """
    if chain not in PLACES:
        raise SettingsError(f"there is no sample chain '{chain}'; choose one of {', '.join(PLACES)}")
    one = Path(PLACES[chain]).name if Path(PLACES[chain]).suffix else ""
    target = Path(out) / one if one and Path(out).suffix not in (".csv", ".tsv") else Path(out)
    with zipfile.ZipFile(FOLDER / f"{chain}.zip") as archive:
        for name in archive.namelist():
            path = target if one else target / name
            try:
                write_atomically(path, archive.read(name))
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from None
    return target
