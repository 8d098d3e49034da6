"""What a component reads of all ``defs.yaml`` files of its project, whether or not they load: repeated names and keys,
partitions, and which dataset is the first. Errors in a broken file are reported when its own component loads."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from graphmill.errors import SettingsError
from graphmill.orchestration.automation import snapshot_partitions
from graphmill.orchestration.loading import in_a_run
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


def require_unique_names(context: dg.ComponentLoadContext) -> None:
    """Raise :class:`SettingsError` for names in this project that would be one, because some disks ignore case, with file
    and line of both; and for a key that this component's file gives twice, of which the second would silently win."""
    if in_a_run():
        return  # a running chain depends only on its own file; the code server has already reported errors
    current = context.path if context.path.is_file() else context.path / "defs.yaml"
    if current.is_file() and current.suffix in (".yaml", ".yml"):
        read_yaml_documents(current.read_text(encoding="utf-8"), _relative(current, context.project_root))
    before: dict[tuple[bool, str], str] = {}
    for place, dataset, model in sorted(_names(context.defs_module_path, context.project_root)):
        joined = "_".join(filter(None, (dataset, model))).lower()
        described = f"model {model!r} on {dataset!r} ({place})" if model else f"dataset {dataset!r} ({place})"
        if other := before.get((bool(model), joined)):
            raise SettingsError(
                f"{other} and {described} would both have jobs named {joined}_…: give one of them another name"
            )
        before[bool(model), joined] = described


def _names(folder: Path, root: Path) -> Iterator[tuple[str, str, str]]:
    """File and line, dataset, and model ("" for a dataset) of each component; not of templates that Dagster fills in."""
    for path, _, kind, attributes in _documents(folder):
        values = {name: str(node.value) for name, node in attributes.items() if isinstance(node, yaml.ScalarNode)}
        if any("{{" in value for value in values.values()):
            continue
        node = attributes.get("name") or attributes.get("system") or attributes.get("dataset")
        place = f"{_relative(path, root)}, line {node.start_mark.line + 1 if node is not None else 1}"
        if kind == "GraphDataset" and "name" in values:
            yield place, values["name"], ""
        elif kind == "EmbeddingModel" and "dataset" in values:
            yield place, values["dataset"], values.get("name") or values.get("system", "")


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


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


def _mapping(node: Any) -> dict[str, Any]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}
