"""Lists the synthetic samples and writes one to disk. The generators are in the modules beside this one."""

import os
from collections.abc import Iterable
from pathlib import Path

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.samples import biomed, kg_bench, music, watch

CHAINS = {"biomed": biomed.PRESETS, "kg_bench": tuple(kg_bench.PRESETS), "music": music.PRESETS, "watch": watch.PRESETS}
"""The presets of each chain."""

FILES = {"biomed": "kg.csv", "watch": "views.tsv"}
"""The file that each chain's sample is; kg_bench and music are directories of files."""


def write_sample(chain: str, preset: str, out: str | Path, seed: int = 0) -> Path:
    """Write the sample ``preset`` of ``chain``; the same bytes for the same arguments. Returns the file written
    (the directory, for kg_bench and music).

    ``out`` is the file if it ends in ``.csv`` or ``.tsv``, else a directory that gets the chain's :data:`FILES`. The
    file is written as a whole or not at all.

    Raises :class:`SettingsError` for a chain or preset that does not exist, :class:`InputError` where the file cannot
    be written.
    """
    if chain not in CHAINS:
        raise SettingsError(f"there is no sample chain '{chain}'; choose one of {', '.join(CHAINS)}")
    if preset not in CHAINS[chain]:
        raise SettingsError(
            f"the sample chain '{chain}' has no preset '{preset}'; choose one of {', '.join(CHAINS[chain])}"
        )
    if chain in ("kg_bench", "music"):
        sample = kg_bench.KgBench(preset, seed) if chain == "kg_bench" else music.Music(preset, seed)
        for name, content in sample.files():
            _write_whole(Path(out) / name, [content])
        return Path(out)
    path = Path(out) if str(out).endswith((".csv", ".tsv")) else Path(out) / FILES[chain]
    chunks = biomed.Biomed(preset, seed).csv_chunks() if chain == "biomed" else watch.Watch(preset, seed).chunks()
    _write_whole(path, chunks)
    return path


def _write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                file.writelines(chunks)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from None
