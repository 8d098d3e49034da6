"""``graphmill init``: creates a Dagster project, or adds a dataset to an existing one. Existing files are not changed."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.samples import PLACES, write_sample
from graphmill.project.data import RAW, Ask, Dataset, copy_files, dataset_of, place_in
from graphmill.project.existing import DgProject, enclosing_project
from graphmill.version import __version__

SAMPLES = tuple(PLACES)
_TEMPLATE = Path(__file__).with_name("template")
_OWNERS = re.compile(r"^  owners: .*\n", re.MULTILINE)


@dataclass
class Created:
    """The result of ``init``: the project's root, files written and kept (relative to it), and lines for people."""

    root: Path
    dataset: str
    new: bool
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    to_do: list[str] = field(default_factory=list)


def init(
    folder: str | Path,
    *,
    sample: str = "",
    data: Sequence[str] = (),
    format: str = "",
    columns: Mapping[str, str] | None = None,
    name: str = "",
    in_place: bool = False,
    ask: Ask | None = None,
    force: bool = False,
) -> Created:
    """Makes a project in ``folder``, or adds a dataset to the existing project.

    ``sample`` is the project's first dataset (biomed), unless ``data`` is given: files, folders or URLs, one with edges
    or interactions, others with features of its nodes. They are read, and copied into the project unless ``in_place``.

    Raises:
        InputError: the folder cannot be used, or a file cannot be read. Then nothing is written.
        SettingsError: the sample does not exist.
    """
    if sample not in ("", *SAMPLES, "none"):
        raise SettingsError(f"there is no sample '{sample}'; choose one of {', '.join(SAMPLES)}, none")
    root = Path(folder)
    project = enclosing_project(root)
    if project is not None and project.root.resolve() != root.resolve():
        raise InputError(
            f"{root} is inside the Dagster project {project.root}: `graphmill init {shlex.quote(str(project.root))}` adds a "
            "dataset to it, or choose a folder outside"
        )
    if project is None and root.exists():
        _require_empty(root)
    made = Created(root, "", project is None)
    if project is not None and not project.defs.is_dir():
        raise InputError(f"the Dagster project {project.root} has no folder {project.defs}; make it, then try again")
    if data:
        copies: dict[Path, Path] = {}
        place = partial(place_in, root, copies=copies, in_place=in_place)
        dataset: Dataset | None = dataset_of(
            list(data), place, format=format, name=name, columns=columns, ask=ask, force=force, described=True
        )
        copy_files(copies)
        made.written += [target.relative_to(root).as_posix() for target in copies.values()]
    else:
        dataset = _sample(root, made, sample or "biomed")
    if project is None:
        package = _package(root)
        _write_all(made, _project_files(root, package, dataset))
        defs = root / package / "defs"
    else:
        defs = project.defs
        # Outputs stay out of git, whatever is in the project's .gitignore.
        _write_all(made, {"data/06_models/.gitignore": "*\n"})
        _advise(made, project)
    if dataset is not None:
        made.dataset, made.notes = dataset.name, dataset.notes
        _write_all(made, {f"{(defs / dataset.name / 'defs.yaml').relative_to(root).as_posix()}": dataset.defs})
    return made


def _require_empty(root: Path) -> None:
    """The folder must be empty, except for a repository or an environment (``.git``, ``.venv``)."""
    if root.is_dir() and all(entry.name.startswith(".") for entry in root.iterdir()):
        return
    raise InputError(
        f"{root} exists and is not a Dagster project that loads components (root_module in [tool.dg.project] of its "
        "pyproject.toml); choose a new folder"
    )


def _sample(root: Path, made: Created, sample: str) -> Dataset | None:
    if sample == "none":
        return None
    target = root / RAW / PLACES[sample]
    if target.exists():
        made.kept.append(target.relative_to(root).as_posix())
    else:
        write_sample(sample, target)
        made.written.append(target.relative_to(root).as_posix())
    text = (files("graphmill") / "defs" / sample / "defs.yaml").read_text(encoding="utf-8")
    return Dataset(sample, _OWNERS.sub("", text))


def _project_files(root: Path, package: str, dataset: Dataset | None) -> dict[str, str]:
    """Path below the project's root → text, for every template; ``{{name}}`` is replaced by a value."""
    values = {
        "name": root.resolve().name,
        "package": package,
        "distribution": package.replace("_", "-"),
        "version": "0" if "unknown" in __version__ else __version__,
        "about": f"It begins with the dataset `{dataset.name}`." if dataset else "It begins without data.",
        "what": f"the chain of `{dataset.name}`" if dataset else "the chain of a dataset, once there is one,",
    }
    names = {"package": package, "gitignore": ".gitignore"}  # with its real name, tools would use the template
    texts = {}
    for template in sorted(_TEMPLATE.rglob("*.tmpl")):
        text = template.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", value)
        parts = template.relative_to(_TEMPLATE).with_suffix("").parts
        texts["/".join(names.get(part, part) for part in parts)] = text
    return texts


def _package(root: Path) -> str:
    """A Python package name made from the folder's name. Raises :class:`InputError` if this is not possible."""
    package = re.sub(r"[^a-z0-9]+", "_", root.resolve().name.lower()).strip("_")
    if not package or package[0].isdigit() or package in ("graphmill", "dagster", "data", "tests", "src"):
        raise InputError(f"'{root.name}' cannot be the name of a project; begin with a letter, such as my-project")
    return package


def _write_all(made: Created, texts: dict[str, str]) -> None:
    """Writes each file that does not exist."""
    for path, text in texts.items():
        target = made.root / path
        if target.exists():
            made.kept.append(path)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        made.written.append(path)


def _advise(made: Created, project: DgProject) -> None:
    """Advice on changes that only the project's owner should make."""
    settings = [project.root / file for file in ("pyproject.toml", "requirements.txt", "setup.py")]
    if not any(file.is_file() and "graphmill" in file.read_text(encoding="utf-8") for file in settings):
        made.to_do.append('add "graphmill[numba]" to the dependencies of the project')
    instance = project.root / "dagster.yaml"
    if instance.is_file() and "default_limit" in instance.read_text(encoding="utf-8"):
        return
    made.to_do.append(
        "give the pool 'accelerator' a limit, so that one training runs at a time: "
        "concurrency: {pools: {default_limit: 1}} in your dagster.yaml"
    )
