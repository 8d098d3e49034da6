"""Checks the names of datasets and models in all files of a project for collisions, including those of joined names.

Dagster finds a duplicate name only when everything is loaded, and does not name the file. This module reads the
``defs.yaml`` files, whether or not they load. Errors in a broken file are reported when its own component loads.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from graphmill.errors import SettingsError
from graphmill.orchestration.loading import in_a_run
from graphmill.orchestration.snapshots import snapshot_partitions
from graphmill.settings import read_yaml_documents

RESERVED = {
    "graph": "its folder is the dataset's typed graph",
    "features": "its folder is the dataset's feature tables",
    "attributes": "its folder is the dataset's tables of attributes",
    "snapshots": "its folder has the graphs of the dataset's snapshots",
    "which": "its training would be named as the choice of `system: auto` is",
    "raw": "its assets would be named as the dataset's files are",
}


def checked_model_name(name: str) -> str:
    """``name`` if none of the dataset's own folders and assets has it; raises :class:`SettingsError` otherwise."""
    taken = RESERVED.get(name.lower())
    if taken:
        raise SettingsError(f"a model cannot be named {name!r}: {taken}; write another 'name' into the defs.yaml")
    return name


@dataclass(frozen=True)
class Named:
    """A dataset (with empty ``model``) or a model, as named in a file."""

    dataset: str
    model: str
    place: str

    @property
    def joined(self) -> str:
        """The common part of the names of its jobs and schedules, in lower case, because some file systems ignore case."""
        return "_".join(filter(None, (self.dataset, self.model))).lower()

    @property
    def said(self) -> str:
        """Its description in messages."""
        return f"model {self.model!r} on {self.dataset!r}" if self.model else f"dataset {self.dataset!r}"


def require_unique_names(context: dg.ComponentLoadContext) -> None:
    """Raise :class:`SettingsError` for colliding names in this project, with file and line of both.

    It also raises for a repeated key in this component's file, because the second would silently replace the first.
    """
    if in_a_run():
        return  # a running chain depends only on its own file; the code server has already reported errors
    current = context.path if context.path.is_file() else context.path / "defs.yaml"
    if current.is_file() and current.suffix in (".yaml", ".yml"):
        read_yaml_documents(current.read_text(encoding="utf-8"), _relative(current, context.project_root))
    entries = sorted(_names(context.defs_module_path, context.project_root), key=lambda each: each.place)
    for a, b in itertools.combinations(entries, 2):
        if bool(a.model) == bool(b.model) and a.joined == b.joined:
            raise SettingsError(
                f"{a.said} ({a.place}) and {b.said} ({b.place}) would both have jobs named {a.joined}_…: give one of them "
                "another name"
            )


def partitions_of(context: dg.ComponentLoadContext, dataset: str) -> dg.DynamicPartitionsDefinition | None:
    """The partitions of the assets of this dataset and its models, one for each snapshot; None if its ``defs.yaml`` has no
    section ``partitions``."""
    for _, _, kind, attributes in _documents(context.defs_module_path):
        name = attributes.get("name")
        if kind == "GraphDataset" and "partitions" in attributes and getattr(name, "value", "") == dataset:
            return snapshot_partitions(dataset)
    return None


def is_first_dataset(context: dg.ComponentLoadContext) -> bool:
    """Whether this dataset is the first in the project's files, or no file names any. The first one makes the
    definitions that exist once."""
    entries = _documents(context.defs_module_path)
    first = next(((file, number) for file, number, kind, _ in entries if kind == "GraphDataset"), None)
    if first is None:
        return True
    file, number = first
    current = getattr(getattr(context, "component_loc", None), "instance_key", None)
    return context.path in (file, file.parent) and current in (None, number)


def _documents(folder: Path) -> Iterator[tuple[Path, int, str, dict[str, Any]]]:
    """Yield every document of the project's YAML files: file, number, the component's type without its module,
    attributes."""
    for path in sorted(folder.rglob("*.y*ml")):
        try:
            documents = _composed(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            continue
        for number, document in enumerate(documents):
            parts = _mapping(document)
            kind = str(getattr(parts.get("type"), "value", "")).rpartition(".")[2]
            yield path, number, kind, _mapping(parts.get("attributes"))


@lru_cache(maxsize=256)
def _composed(text: str) -> list[yaml.Node]:
    """The documents of a file with this text. Every component of a project reads all its files."""
    return list(yaml.compose_all(text, yaml.SafeLoader))


def _names(folder: Path, root: Path) -> Iterator[Named]:
    for path, _, kind, attributes in _documents(folder):
        values = {name: str(node.value) for name, node in attributes.items() if isinstance(node, yaml.ScalarNode)}
        if any("{{" in value for value in values.values()):
            continue  # a template that Dagster fills in; its value is not known here
        node = attributes.get("name") or attributes.get("system") or attributes.get("dataset")
        line = node.start_mark.line + 1 if node is not None else 1
        place = f"{_relative(path, root)}, line {line}"
        if kind == "GraphDataset" and "name" in values:
            yield Named(values["name"], "", place)
        elif kind == "EmbeddingModel" and "dataset" in values:
            yield Named(values["dataset"], values.get("name") or values.get("system", ""), place)


def _mapping(node: Any) -> dict[str, Any]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
