"""The sources of a dataset as the YAML names them, and the one place that knows which reader a format has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.components.fields import as_settings, checked_name
from graphmill.errors import SettingsError
from graphmill.ingest.kg_columns import KgCsvSettings
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.node_features import NodeFeatureSettings, with_features
from graphmill.ingest.tables import IngestResult
from graphmill.orchestration.files import located
from graphmill.settings import Settings

FORMATS: dict[str, type[Settings]] = {"kg_csv": KgCsvSettings, "node_features": NodeFeatureSettings}


@dataclass(frozen=True)
class SourceFile:
    """One file: its name in the asset keys, its format, where it is (as written, and resolved), how it is read."""

    name: str
    format: str
    path: str
    location: str
    settings: Settings


def parse_sources(values: Any, root: Path) -> list[SourceFile]:
    """The ``sources`` of a dataset; ``root`` is where relative paths start.

    Raises :class:`SettingsError`, in one sentence, for a source that cannot be understood.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise SettingsError("sources must be a list with at least one {name, format, path}")
    sources = [_parse_source(value, root) for value in values]
    names = [source.name for source in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"two sources are named {twice[0]!r}; each needs a name of its own")
    edges = [source.name for source in sources if source.format == "kg_csv"]
    if len(edges) != 1:
        raise SettingsError(
            f"a dataset has exactly one source of format kg_csv, this one has {len(edges)}"
            + (f" ({', '.join(edges)}): join the files, or make a dataset of each" if edges else "")
        )
    return sources


def _parse_source(value: Any, root: Path) -> SourceFile:
    if not isinstance(value, Mapping):
        raise SettingsError(f"a source is a mapping with name, format and path, not {value!r}")
    rest = dict(value)
    parts = {part: str(rest.pop(part, "")) for part in ("name", "format", "path")}
    if missing := [part for part, text in parts.items() if not text]:
        raise SettingsError(f"source {parts['name'] or '?'!r} has no {missing[0]}")
    name = checked_name(parts["name"], "source name")
    if parts["format"] not in FORMATS:
        raise SettingsError(f"source {name!r}: unknown format {parts['format']!r} (known: {', '.join(FORMATS)})")
    settings = as_settings(FORMATS[parts["format"]], rest, f"source {name!r}")
    return SourceFile(name, parts["format"], parts["path"], located(parts["path"], root), settings)


def read_tables(sources: Sequence[SourceFile]) -> IngestResult:
    """Read all sources into checked tables. Raises :class:`graphmill.errors.InputError` for a file that cannot be used."""
    (result,) = [
        read_kg_csv(source.location, source.settings)
        for source in sources
        if isinstance(source.settings, KgCsvSettings)
    ]
    for source in sources:
        if isinstance(source.settings, NodeFeatureSettings):
            result = with_features(result, source.location, source.settings)
    return result


def has_features(sources: Sequence[SourceFile]) -> bool:
    """Whether any source gives numbers to nodes."""
    return any(isinstance(source.settings, NodeFeatureSettings) for source in sources)
