"""The sources of a dataset in the YAML, and their files: local or by fsspec URL, with location, state and content hash.

:mod:`graphmill.ingest.formats` defines the formats.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.attributes import AttributeSettings, checked_kinds, with_attributes
from graphmill.ingest.files import clear_of_client, path_text
from graphmill.ingest.format import Gives
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.id_columns import Aliases, with_aliases
from graphmill.ingest.interactions import with_knowledge
from graphmill.ingest.node_features import NodeFeatureSettings, with_features
from graphmill.ingest.tables import IngestResult, checked_share
from graphmill.settings import Settings, SettingsT, abbreviated, parse

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileState:
    """The state of a file without reading it: size in bytes, and the time or tag of its version."""

    size: int
    version: str


def located(path: str, root: Path) -> str:
    """``path`` as given if it is a URL or absolute, else below ``root``."""
    return path if "://" in path or Path(path).is_absolute() else str(root / path)


def state(path: str) -> FileState:
    """Size and version of the file at ``path`` (local or URL). Raises :class:`InputError` if there is no such file."""
    try:
        with clear_of_client(f"{path_text(path)} cannot be read"):
            filesystem, inner = fsspec.core.url_to_fs(path)
            filesystem.invalidate_cache()  # a cached listing of an object store would hide a change
            info: dict[str, Any] = filesystem.info(inner)
    except FileNotFoundError:
        raise InputError(
            f"{path_text(path)} does not exist; put the file there, or correct 'path' in the defs.yaml"
        ) from None
    except OSError as error:
        raise InputError(f"{path_text(path)} cannot be read ({type(error).__name__})") from None
    if info.get("type") == "directory":
        raise InputError(f"{path_text(path)} is a directory; name a file in the defs.yaml")
    version = next((info[key] for key in ("mtime", "ETag", "etag", "LastModified", "updated") if info.get(key)), "")
    return FileState(int(info.get("size") or 0), str(version))


def digest(path: str) -> str:
    """Hex digest (BLAKE2b, 128 bits) of the content of the file at ``path``. Raises :class:`InputError` as above."""
    state(path)
    hasher = hashlib.blake2b(digest_size=16)
    with fsspec.open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ADDED = ("features", "attributes", "knowledge")
"""What a source gives to the nodes and edges of another one."""


def checked_name(value: str, what: str) -> str:
    """``value`` if it can be part of an asset key; raises :class:`SettingsError` otherwise."""
    if not _NAME.fullmatch(value):
        raise SettingsError(f"{what} {value!r} must be letters, digits and underscores, beginning with no digit")
    return value


@dataclass(frozen=True)
class SourceFile:
    """One source: its name in the asset keys, its format, its path (as written, and resolved), and its reading settings.
    ``force``: it is used although more than a tenth of its rows is refused."""

    name: str
    format: str
    path: str
    location: str
    settings: Settings
    force: bool = False

    @property
    def gives(self) -> Gives:
        """The kind of its rows."""
        return FORMATS[self.format].gives_by(self.settings)

    def files(self) -> dict[str, str]:
        """Role → location of every file that is read; the role is "" if there is only one file. Raises :class:`InputError`
        if a folder lacks a file that its format needs."""
        find = FORMATS[self.format].files
        if find is None:
            return {"": self.location}
        return {role: str(file) for role, file in find(self.location, self.settings).items()}


def parse_sources(values: Any, root: Path, attributes: Any = None) -> list[SourceFile]:
    """Parse the ``sources`` of a dataset, and its ``attributes`` (node type → file, id, and the kind of each attribute) as
    further ones. ``root`` is the folder for relative paths.

    Raises :class:`SettingsError` for an invalid source.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise SettingsError("sources must be a list with at least one {name, format, path}")
    sources = [_parse_source(value, root) for value in values]
    if wrong := [source.name for source in sources if source.gives == "attributes"]:
        raise SettingsError(f"source {wrong[0]!r}: write attributes of nodes under attributes, by node type")
    sources += parse_attributes(attributes, root)
    names = [source.name for source in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"two sources are named {twice[0]!r}; each needs its own name")
    main = [source.name for source in sources if source.gives not in ADDED]
    if len(main) != 1:
        links = ", ".join(name for name, format in FORMATS.items() if format.read is not None)
        raise SettingsError(
            f"a dataset has exactly one source of edges or interactions ({links}), this one has {len(main)}"
            + (f" ({', '.join(main)}): join the files, or make one dataset of each" if main else "")
        )
    knowledge = [source.name for source in sources if source.gives == "knowledge"]
    if knowledge and "interactions" not in table_names(sources):
        raise SettingsError(f"source {knowledge[0]!r} (part: knowledge) adds to interactions, but there are none")
    # If a node type has several sources of features, each feature set is named after its source.
    kinds = [s.settings.node_type for s in sources if isinstance(s.settings, NodeFeatureSettings)]
    return [
        replace(source, settings=source.settings.model_copy(update={"name": source.name}))
        if isinstance(source.settings, NodeFeatureSettings) and kinds.count(source.settings.node_type) > 1
        else source
        for source in sources
    ]


def parse_attributes(values: Any, root: Path) -> list[SourceFile]:
    """A source for each node type of the ``attributes`` of a dataset. Raises :class:`SettingsError` for invalid ones."""
    if not isinstance(values or {}, Mapping):
        raise SettingsError(f"attributes: write file, id and kinds under each node type, not {abbreviated(values)}")
    sources = []
    for kind, value in (values or {}).items():
        where = f"attributes of {str(kind)!r}"
        if not isinstance(value, Mapping) or not value.get("file"):
            raise SettingsError(
                f"{where}: write file: and the kind of each attribute under it, not {abbreviated(value)}"
            )
        kinds = {str(name): each for name, each in value.items() if name not in ("file", "id")}
        name = f"attributes_{re.sub(r'[^A-Za-z0-9_]', '_', str(kind))}"
        source = {"name": name, "format": "attributes", "path": value["file"], "node_type": str(kind)}
        sources.append(_parse_source(source | {"id": value.get("id", ""), "kinds": checked_kinds(kinds, where)}, root))
    return sources


def _parse_source(value: Any, root: Path) -> SourceFile:
    if not isinstance(value, Mapping):
        raise SettingsError(f"a source is a mapping with name, format and path, not {value!r}")
    rest = dict(value)
    force = rest.pop("force", False)
    if not isinstance(force, bool):
        raise SettingsError(f"source {rest.get('name', '?')!r}: force is true or false, not {abbreviated(force)}")
    parts = {part: str(rest.pop(part, "")) for part in ("name", "format", "path")}
    if missing := [part for part, text in parts.items() if not text]:
        raise SettingsError(f"source {parts['name'] or '?'!r} has no {missing[0]}")
    name = checked_name(parts["name"], "source name")
    if parts["format"] not in FORMATS:
        raise SettingsError(f"source {name!r}: unknown format {parts['format']!r} (known: {', '.join(FORMATS)})")
    format = FORMATS[parts["format"]]
    settings = parse(format.settings, rest, f"source {name!r}")
    return SourceFile(name, parts["format"], parts["path"], located(parts["path"], root), settings, force)


def read_tables(sources: Sequence[SourceFile], aliases: Aliases | None = None) -> IngestResult:
    """Read all sources into checked tables, with the ids that ``aliases`` replaces.

    Raises :class:`graphmill.errors.InputError` for a file that cannot be used.
    """
    aliases = aliases or Aliases()
    (main,) = [source for source in sources if source.gives not in ADDED]
    result = with_aliases(_read(main), aliases)
    for source in sources:
        if source.gives == "knowledge":
            result = with_knowledge(result, with_aliases(_read(source), aliases), source.name)
    for source in sources:
        if isinstance(source.settings, NodeFeatureSettings):
            result = with_features(result, source.location, source.settings, aliases)
        elif isinstance(source.settings, AttributeSettings):
            result = with_attributes(result, source.location, source.settings, aliases)
    return result


def _read(source: SourceFile) -> IngestResult:
    read = FORMATS[source.format].read
    assert read is not None
    result = read(source.location, source.settings)
    if not source.force and (problem := checked_share(result.counts, result.rejects, f"source {source.name!r}")):
        raise InputError(problem)
    return result


def table_names(sources: Sequence[SourceFile]) -> tuple[str, ...]:
    """The names of a dataset's table assets: ``nodes``, and those that its sources give."""
    gives = {source.gives for source in sources}
    names = ["interactions"] if gives & {"interactions", "interactions and facts"} else []
    names.append("nodes")
    if gives & {"edges", "knowledge", "interactions and facts"}:
        names.append("edges")
    if "features" in gives or any(FORMATS[s.format].brings_features(s.settings) for s in sources):
        names.append("features")
    return (*names, "attributes") if "attributes" in gives else tuple(names)


def graph_settings(written: SettingsT, sources: Sequence[SourceFile]) -> SettingsT:
    """The graph settings of the YAML, with defaults that suit the formats."""
    suited = {name: value for source in sources for name, value in FORMATS[source.format].graph}
    return written.model_copy(update={k: v for k, v in suited.items() if k not in written.model_fields_set})
