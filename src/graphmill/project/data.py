"""What ``graphmill init --data`` makes of files: where they go, how they are read, and the ``defs.yaml`` for them.

How a file is read is ``ingest.report``'s guess; this module only asks it, and joins the answers of several files.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from graphmill.errors import InputError
from graphmill.ingest.format import Look
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.kg_files import examine_files, guessed_files
from graphmill.ingest.names import as_number, role_of
from graphmill.ingest.report import IngestReport, ingest_report
from graphmill.ingest.report import recognised as known_formats
from graphmill.runs.resolve import merge

RAW = "data/01_raw"
SCHEDULE = {"cron": "0 3 * * 1", "timezone": "UTC"}
FRESHNESS = {"warn_hours": 170, "fail_hours": 192}

Ask = Callable[[str, Sequence[str]], str]
"""Asks a person to choose one of several answers; returns the answer."""

_FALLBACKS = ("kg_csv", "interactions_csv", "sequence")
"""What a file is tried as that no format knows by its content."""


@dataclass
class Dataset:
    """A dataset that will be written: its name, its ``defs.yaml``, and what was found out, as lines for a person."""

    name: str
    defs: str
    found: list[str] = field(default_factory=list)


def recognised(path: str, format: str = "", ask: Ask | None = None) -> IngestReport:
    """The report on ``path`` as ``format``, or as the first that can read it of those that its content may be of.

    Raises:
        InputError: there is no such file, or no format can read it; the message says what each of them wants.
    """
    if "://" not in path and not Path(path).exists():
        raise InputError(f"{path} does not exist")
    tried = []
    for candidate in [format] if format else known_formats(path) or (["auto"] if Path(path).is_dir() else _FALLBACKS):
        tried.append(ingest_report(path, candidate))
        if not tried[-1].problem:
            break
    if not tried[-1].problem:
        return tried[-1]
    if ask is not None and not format:
        chosen = ask(f"{path}: which format is it?", list(FORMATS))
        return recognised(path, chosen)
    why = "; ".join(f"as {report.format}: {report.problem}" for report in tried)
    raise InputError(
        f"{path} cannot be read ({why}). Say how with --format, or look at it with `graphmill ingest-report`"
    )


class Places:
    """Where files (or folders) are in the project; those from outside are copied, once all is known to be well.

    A URL stays as it is, as does, with ``in_place``, a file outside of the project (by its absolute path).
    """

    def __init__(self, root: Path, *, in_place: bool = False) -> None:
        self._root = root
        self._in_place = in_place
        self._copies: dict[Path, Path] = {}

    def of(self, path: str, format: str) -> str:
        """The path that the YAML gives: relative to the project's root where it is inside.

        Files that ``format`` reads beside a file go with it.

        Raises:
            InputError: something else is there under the same name.
        """
        source = Path(path).resolve()
        if "://" in path:
            return path
        if source.is_relative_to(self._root.resolve()):
            return source.relative_to(self._root.resolve()).as_posix()
        if self._in_place:
            return str(source)
        for each in (source, *_beside(source, format)):
            target = self._root / RAW / each.name
            if target.exists() or target in self._copies.values():
                raise InputError(f"{target} exists already; rename {each}, or keep it where it is with --in-place")
            self._copies[each] = target
        return f"{RAW}/{source.name}"

    def copy(self) -> list[str]:
        """Copy what has been asked for; each appears whole or not at all. Returns the paths below the root."""
        for source, target in self._copies.items():
            part = target.with_name(f".{target.name}.part")
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if source.is_dir() else shutil.copyfile)(source, part)
                part.replace(target)
            except OSError as error:
                raise InputError(f"{source} cannot be copied to {target}: {error.strerror or error}") from None
        return [target.relative_to(self._root).as_posix() for target in self._copies.values()]


def _beside(source: Path, format: str) -> list[Path]:
    """The other files that are read where ``source`` is one file."""
    if source.is_dir():
        return []
    if format == "node_features":  # the ids of a matrix's rows
        return [ids for ids in (source.with_suffix(".ids.txt"),) if ids.is_file()]
    find = FORMATS[format].files
    found = find(str(source), FORMATS[format].settings()).values() if find else ()
    return [Path(file) for file in found if Path(file).resolve() != source]


def dataset_of(
    paths: Sequence[str], place: Callable[[str, str], str], *, format: str = "", name: str = "", ask: Ask | None = None
) -> Dataset:
    """Read the files and write the dataset that fits: edges or interactions, and features of their nodes.

    Several edge files, and node files beside them, become one source of the format ``kg_files``. ``place`` says under which
    path the YAML names a file of a format.

    Raises:
        InputError: a file cannot be read, there are several sources of interactions or of other formats, or none.
    """
    folder, joined = ("", {}) if format else _joined(paths)
    reports = [(path, recognised(path, format if len(paths) == 1 else "", ask))
               for path in paths if path not in joined.values()]  # fmt: skip
    if joined:
        reports.insert(0, (", ".join(joined), examine_files(folder, *guessed_files(joined, unsure=True))))
        if problem := reports[0][1].problem:
            raise InputError(f"{reports[0][0]} cannot be read together: {problem}")
    main = [(path, report) for path, report in reports if report.format != "node_features"]
    if len(main) != 1:
        listed = "; ".join(f"{path} as {report.format}" for path, report in main) or "none"
        raise InputError(
            f"a dataset has one source of edges or interactions besides node features, but these files have {len(main)} "
            f"({listed}): make a dataset of each with a separate call, or give their folder"
        )
    (main_path, report), features = main[0], [each for each in reports if each[1].format == "node_features"]
    kinds = [_node_type(path, report, ask) for path, _ in features]
    dataset, *models = yaml.safe_load_all(report.defs)
    attributes = dataset["attributes"]
    attributes["name"] = name or attributes["name"]
    if joined:
        attributes["sources"][0] |= _placed(attributes["sources"][0], joined, place)
    else:
        attributes["sources"][0]["path"] = place(main_path, report.format)
    for number, ((path, each), kind) in enumerate(zip(features, kinds, strict=True)):
        source = yaml.safe_load(each.defs)["sources"][0]
        label = "features" if len(features) == 1 else f"features_{number + 1}"
        attributes["sources"].append({**source, "name": label, "path": place(path, each.format), "node_type": kind})
    for model in models:
        own = model["attributes"]
        own["dataset"] = attributes["name"]
        if features and own["recipe"] == "bpr_mf":
            own["recipe"] = "mmgcn"  # the system that reads features of items
        own |= {"schedule": SCHEDULE, "freshness": FRESHNESS}
    head = f"# Written by `graphmill init` from {', '.join(Path(path).name for path, _ in reports)}.\n"
    text = yaml.dump_all(
        [dataset, *models], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
    return Dataset(attributes["name"], head + text, [_told(path, each) for path, each in reports])


def _joined(paths: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The files, of several, that are edges or nodes of these edges: their folder, and name in it → path.

    None where one is enough, or where no file is surely of edges.
    """
    formats = {path: known_formats(path) for path in paths if not Path(path).is_dir()} if len(paths) > 1 else {}
    tables = {
        path for path, known in formats.items() if known[:1] in ([], ["kg_csv"]) or _pairs_with_names(path, known)
    }
    found, _ = guessed_files({path: path for path in tables}, unsure=True)
    edges, nodes = ({entry["file"] for entry in found[kind]} for kind in ("edges", "nodes"))
    if len(edges | nodes) < 2 or not any("kg_csv" in formats[path][:1] for path in edges):
        return "", {}
    kept = [path for path in paths if path in edges | nodes]
    folder = _folder(kept)
    return folder, {path if "://" in path else os.path.relpath(path, folder): path for path in kept}


def _pairs_with_names(path: str, known: Sequence[str]) -> bool:
    """Whether a file that could also be interactions has a first line of names that are no user's or item's."""
    look = Look(path)
    rest = {cell.strip() for line in look.lines[1:] for cell in re.split(r"[,;\t]", line)}
    named = look.columns and not any(
        role_of(name) or as_number(name) is not None or name in rest for name in look.columns
    )
    return bool(named) and list(known) == ["sequence", "kg_csv"]


def _placed(source: Mapping[str, Any], joined: Mapping[str, str], place: Callable[[str, str], str]) -> dict[str, Any]:
    """The folder of a source's files and their names in it, once each is in its place."""
    places = {name: place(path, "kg_csv") for name, path in joined.items()}
    folder = _folder(list(places.values()))
    named = {name: at if "://" in at else os.path.relpath(at, folder) for name, at in places.items()}
    parts = [kind for kind in ("edges", "nodes") if kind in source]
    return {"path": folder} | {k: [{**entry, "file": named[entry["file"]]} for entry in source[k]] for k in parts}


def _folder(paths: Sequence[str]) -> str:
    """The deepest folder that all local ``paths`` are in."""
    return os.path.commonpath([os.path.dirname(path) for path in paths if "://" not in path] or [""]) or "."


@dataclass
class Guess:
    """How files are read into one graph: the sources, the edges first; graph settings; the system; lines for a person."""

    sources: list[dict[str, Any]]
    graph: dict[str, Any] = field(default_factory=dict)
    recipe: str = "hgt"
    found: list[str] = field(default_factory=list)


def guessed(paths: Sequence[str], format: str = "", settings: Mapping[str, Any] | None = None) -> Guess:
    """What :func:`dataset_of` would write, to be read at once.

    ``settings`` of the edges' format win over what is guessed; with ``format`` beside them nothing is guessed.

    Raises:
        InputError: as :func:`dataset_of`.
    """
    if format and settings and len(paths) == 1:
        return Guess([{"format": format, "path": paths[0], **settings}])
    dataset = dataset_of(paths, lambda path, _: path, format=format)
    attributes, *models = (each["attributes"] for each in yaml.safe_load_all(dataset.defs))
    main, *features = attributes["sources"]
    return Guess(
        [merge(main, settings or {}), *features], attributes.get("graph", {}), models[0]["recipe"], dataset.found
    )


def _node_type(path: str, main: IngestReport, ask: Ask | None) -> str:
    kinds = list(main.node_types)
    if "item" in kinds:
        return "item"
    if len(kinds) == 1:
        return kinds[0]
    if ask is None:
        raise InputError(
            f"{path} has features of nodes, and the graph has several types ({', '.join(kinds)}): which they are of, "
            "only you know. Start without this file and add it to the defs.yaml as a source with its node_type"
        )
    return ask(f"{path}: of which type are the nodes that have these features?", kinds)


def _told(path: str, report: IngestReport) -> str:
    """How a file is read, what it holds, and, a line each, what was guessed of it."""
    counts = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in report.counts.items() if number)
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in list(report.node_types.items())[:6])
    guesses = "".join(f"\n  guessed: {remark}" for remark in report.remarks)
    return f"{path}: read as {report.format}; {counts}" + (f"; nodes: {kinds}" if kinds else "") + guesses


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # the schedule is the same object for every model
