"""Stores values between assets: Arrow tables as Parquet, small plain values as JSON, no pickles.

Large objects that are not tables (a typed graph, a run directory) stay where they were written. Their asset's value is
a small dictionary with their path.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pydantic import Field
from upath import UPath

from graphmill.atomic_files import replacing, write_atomically
from graphmill.errors import InputError, SettingsError, one_line
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.home import project_root
from graphmill.parquet import ParquetTable, write_parquet

PARQUET = ".parquet"
JSON = ".json"
REMEDY = "materialize the asset again"
"""What to do about a damaged file."""


class ArtifactIOManager(dg.UPathIOManager):
    """One file per asset (or partition) below ``base_path``: ``<asset key>.parquet`` or ``<asset key>.json``.

    Files are written atomically.
    """

    def dump_to_path(self, context: dg.OutputContext, obj: Any, path: UPath) -> None:
        """Write an Arrow table, or a small value of JSON types. Raises :class:`InputError` for anything else."""
        if obj is None:
            return
        if isinstance(obj, pa.Table):
            with replacing(_with_suffix(path, PARQUET)) as part:
                write_parquet(obj, part.file)
        else:
            write_atomically(_with_suffix(path, JSON), _as_json(obj, path.name))
        other = JSON if isinstance(obj, pa.Table) else PARQUET
        _with_suffix(path, other).unlink(missing_ok=True)  # the kind of the asset's value may have changed

    def get_metadata(self, context: dg.OutputContext, obj: Any) -> dict[str, dg.MetadataValue]:
        """The path with its suffix, relative to the project if it is in it. The base class has the path without a suffix."""
        if obj is None:
            return {}
        paths = self._get_paths_for_partitions(context).values() if context.has_asset_partitions else ()
        path = _with_suffix(
            next(iter(paths), None) or self._get_path(context), PARQUET if isinstance(obj, pa.Table) else JSON
        )
        text = str(path)
        with contextlib.suppress(InputError, ValueError):
            text = path.relative_to(project_root()).as_posix()
        return {"path": dg.MetadataValue.path(text)}

    def load_from_path(self, context: dg.InputContext, path: UPath) -> Any:
        """The value as written. A damaged file raises :class:`InputError`."""
        parquet, plain = _with_suffix(path, PARQUET), _with_suffix(path, JSON)
        with user_errors():
            if parquet.exists():
                return ParquetTable(str(parquet), mapped=True, remedy=REMEDY).read()
            if plain.exists():
                return _read_json(plain)
        raise FileNotFoundError(f"{parquet} is not there: materialize the asset '{path.name}' first")

    def path_exists(self, path: UPath) -> bool:
        """Whether one of the two files exists. ``path`` has no suffix."""
        return _with_suffix(path, PARQUET).exists() or _with_suffix(path, JSON).exists()


class ArtifactStore(dg.ConfigurableIOManagerFactory["ArtifactIOManager"]):
    """Keeps the tables and references of all assets below one directory of this machine, as graphs and runs are."""

    base_path: str = Field(description="Directory of this machine.")

    def create_io_manager(self, context: dg.InitResourceContext) -> ArtifactIOManager:
        """The manager for ``base_path``. Raises :class:`SettingsError` for a URL."""
        if "://" in self.base_path:
            raise SettingsError(f"graphmill_store.base_path = {self.base_path}: must be a directory of this machine")
        return ArtifactIOManager(base_path=UPath(self.base_path))


def _with_suffix(path: UPath, suffix: str) -> Path:
    return Path(str(path.parent)) / (path.name + suffix)  # with_suffix() would cut a partition key at its last dot


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({one_line(error)}); {REMEDY}") from None


def _as_json(value: Any, name: str) -> bytes:
    try:
        return json.dumps(value, indent=1, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"asset '{name}' returned a {type(value).__name__} ({error}): return an Arrow table or a small JSON value, or "
            "give the asset an io_manager_key of your own"
        ) from None
