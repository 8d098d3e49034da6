"""Names of datasets and models over all files of a project: which are taken, and which would become one when joined.

Dagster finds a name that is there twice only when everything is loaded, and says so without a file. Here the ``defs.yaml``
files are looked through, whether or not they load: a file that is broken is its own component's business.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from graphmill.errors import SettingsError
from graphmill.orchestration.loading import in_a_run
from graphmill.settings import read_yaml_documents

RESERVED = {
    "graph": "its folder is the dataset's typed graph",
    "features": "its folder is the dataset's feature tables",
    "raw": "its assets would be named as the dataset's files are",
}
_REPORTS = "_acceleration"


def checked_model_name(name: str) -> str:
    """``name`` if no folder or asset of the dataset's own has it; raises :class:`SettingsError` otherwise."""
    taken = RESERVED.get(name.lower())
    if name.lower().endswith(_REPORTS):
        taken = f"the folder of a model's acceleration report ends in {_REPORTS}"
    if taken:
        raise SettingsError(f"a model cannot be named {name!r}: {taken}; write another 'name' into the defs.yaml")
    return name


@dataclass(frozen=True)
class Named:
    """A dataset (``model`` empty) or a model, as a file names it."""

    dataset: str
    model: str
    place: str

    @property
    def joined(self) -> str:
        """What its jobs and schedules are called by, as on file systems that know no capitals."""
        return "_".join(filter(None, (self.dataset, self.model))).lower()

    @property
    def said(self) -> str:
        """For a message."""
        return f"model {self.model!r} on {self.dataset!r}" if self.model else f"dataset {self.dataset!r}"


def require_own_names(context: dg.ComponentLoadContext) -> None:
    """Raise :class:`SettingsError` for names of this project that collide, with file and line of both.

    Also for a key that this component's file has twice: the second would win without a word.
    """
    if in_a_run():
        return  # a chain that runs depends on its own file alone; the code server has said what there is to say
    own = context.path if context.path.is_file() else context.path / "defs.yaml"
    if own.is_file() and own.suffix in (".yaml", ".yml"):
        read_yaml_documents(own.read_text(encoding="utf-8"), _shown(own, context.project_root))
    found = sorted(_names(context.defs_module_path, context.project_root), key=lambda each: each.place)
    for a, b in itertools.combinations(found, 2):
        if bool(a.model) == bool(b.model) and a.joined == b.joined:
            raise SettingsError(
                f"{a.said} ({a.place}) and {b.said} ({b.place}) would both have jobs named {a.joined}_…: give one of them "
                "another name"
            )


def is_first_dataset(context: dg.ComponentLoadContext) -> bool:
    """Whether this dataset is the first of the project's files, or no file names any: it brings what there is once."""
    found = _documents(context.defs_module_path)
    first = next(((file, number) for file, number, kind, _ in found if kind == "GraphDataset"), None)
    if first is None:
        return True
    file, number = first
    own = getattr(getattr(context, "component_loc", None), "instance_key", None)
    return context.path in (file, file.parent) and own in (None, number)


def _documents(folder: Path) -> Iterator[tuple[Path, int, str, dict[str, Any]]]:
    """Every document of the project's YAML files: file, number, the component's type without its module, attributes."""
    for path in sorted(folder.rglob("*.y*ml")):
        try:
            documents = list(yaml.compose_all(path.read_text(encoding="utf-8"), yaml.SafeLoader))
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            continue
        for number, document in enumerate(documents):
            parts = _mapping(document)
            kind = str(getattr(parts.get("type"), "value", "")).rpartition(".")[2]
            yield path, number, kind, _mapping(parts.get("attributes"))


def _names(folder: Path, root: Path) -> Iterator[Named]:
    for path, _, kind, attributes in _documents(folder):
        values = {name: str(node.value) for name, node in attributes.items() if isinstance(node, yaml.ScalarNode)}
        if any("{{" in value for value in values.values()):
            continue  # Dagster fills it in; what comes of it is not known here
        node = attributes.get("name") or attributes.get("recipe") or attributes.get("dataset")
        line = node.start_mark.line + 1 if node is not None else 1
        place = f"{_shown(path, root)}, line {line}"
        if kind == "GraphDataset" and "name" in values:
            yield Named(values["name"], "", place)
        elif kind == "EmbeddingModel" and "dataset" in values:
            yield Named(values["dataset"], values.get("name") or values.get("recipe", ""), place)


def _mapping(node: Any) -> dict[str, Any]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
