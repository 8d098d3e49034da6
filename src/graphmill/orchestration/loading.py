"""Loads a project's definitions so that a running chain depends only on its own files.

Every step of a run is a process that loads all definitions again. A broken file of another dataset, which a user is
editing, must not stop a long training. So the processes of a run leave out files that cannot be loaded. In the code
server, ``dg check defs`` and the command line, such a file is an error as usual.
"""

import logging
import multiprocessing
import shutil
import tempfile
from pathlib import Path
from types import ModuleType

import dagster as dg
from dagster.components.core.component_tree import ComponentTree

_YAML = ("defs.yaml", "defs.yml", "component.yaml")
_logger = logging.getLogger(__name__)


def in_a_run() -> bool:
    """Whether this process is a run's worker or step. Dagster starts them as children of a code server or of each other."""
    return multiprocessing.parent_process() is not None


def load_project(path_within_project: Path) -> dg.Definitions:
    """Load all definitions below the project's ``defs/``. The processes of a run leave out files that cannot be loaded."""
    try:
        return dg.load_from_defs_folder(path_within_project=path_within_project)
    except Exception as error:
        if not in_a_run():
            raise
        return _what_can_be_loaded(ComponentTree.for_project(path_within_project), error)


def _what_can_be_loaded(project: ComponentTree, error: Exception) -> dg.Definitions:
    """Load from a copy of ``defs/`` without the broken files. Modules are imported from their original place, by name."""
    with tempfile.TemporaryDirectory(prefix="graphmill-defs-") as scratch:
        folder = Path(scratch) / project.defs_module_path.name
        shutil.copytree(project.defs_module_path, folder, ignore=shutil.ignore_patterns("__pycache__"))
        module = ModuleType(project.defs_module.__name__)
        module.__file__, module.__path__ = str(folder / "__init__.py"), [str(folder)]

        def tree() -> ComponentTree:
            return ComponentTree.from_module(module, project.project_root)

        # One file that Dagster cannot parse prevents it from loading any, so add the files one by one, Python first.
        held = {path: path.rename(Path(scratch) / str(number)) for number, path in enumerate(_files(folder))}
        broken = []
        for path, aside in held.items():
            aside.rename(path)
            if not _builds(tree(), path):
                path.unlink()
                broken.append(path)
                _logger.warning("left out of this run's definitions: %s", path.relative_to(folder))
        if not broken:
            raise error
        return tree().build_defs()


def _files(folder: Path) -> list[Path]:
    """Files with definitions, Python before YAML."""
    files = [path for path in folder.rglob("*") if path.name in _YAML or path.suffix == ".py"]
    return sorted((path for path in files if path.name != "__init__.py"), key=lambda path: (path.suffix != ".py", path))


def _builds(tree: ComponentTree, path: Path) -> bool:
    try:
        tree.build_defs_at_path(path.parent if path.suffix != ".py" else path)
    except Exception:
        return False
    return True
