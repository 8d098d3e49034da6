"""``graphmill init --data``: places files in a project, finds out how to read them, and writes their ``defs.yaml``.

``ingest.public_readers`` guesses how to read a file; this module combines the guesses for several files.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from graphmill.atomic_files import copy_atomically
from graphmill.errors import InputError
from graphmill.graph.settings import SplitSettings
from graphmill.ingest.attributes import AttributeSettings, with_attributes
from graphmill.ingest.files import path_text as on_one_line
from graphmill.ingest.format import Candidate, IngestReport
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.kg_files import guess_of_files, guessed_files
from graphmill.ingest.public_readers import ingest_report, report_on
from graphmill.ingest.public_readers import recognised as known_formats
from graphmill.ingest.sources import parse_sources
from graphmill.ingest.tables import attribute_kind

RAW = "data/01_raw"
SCHEDULE = {"cron": "0 3 * * 1", "timezone": "UTC"}
FRESHNESS = {"warn_hours": 170, "fail_hours": 192}

Ask = Callable[[str, Sequence[str]], str]
"""Asks a person to choose one of several answers; returns the answer."""


@dataclass
class Dataset:
    """A dataset to write: its name, its ``defs.yaml``, the findings as lines for people, and the attributes of its first
    document."""

    name: str
    defs: str
    notes: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


def recognised(
    path: str,
    format: str = "",
    columns: Mapping[str, str] | None = None,
    ask: Ask | None = None,
    *,
    force: bool = False,
) -> IngestReport:
    """The report on ``path`` read as ``format`` (empty: by its content). ``columns``: role → column.

    Raises:
        InputError: the file does not exist, or cannot be read; the message says what is required.
    """
    if "://" not in path and not Path(path).exists():
        raise InputError(f"{on_one_line(path)} does not exist")
    report = ingest_report(path, format or "auto", columns, force=force)
    if report.problem and ask is not None and not format and not columns and (named := ask_columns(path, ask)):
        return recognised(path, "", named, force=force)
    if report.problem:
        raise InputError(
            f"{on_one_line(path)} cannot be read (as {report.format}: {report.problem}). Say how with --format or "
            f"--columns, or look at it with: graphmill ingest-report {shlex.quote(path)}"
        )
    return report


_ROLES = {"users and items": ("user", "item", "timestamp"), "edges between nodes": ("head_id", "tail_id", "relation")}
_NO = "none of them"


def ask_columns(path: str, ask: Ask) -> dict[str, str]:
    """Role → column of a table, by asking a person; empty for a file without columns."""
    probe = Candidate(path).probe
    if probe is None:
        return {}
    examples = [", ".join(list(dict.fromkeys(probe.values(place)))[:3]) for place in range(len(probe.names))]
    left = {f"{name} ({text[:60]})": name for name, text in zip(probe.names, examples, strict=True)}
    columns: dict[str, str] = {}
    for role in _ROLES[ask(f"{on_one_line(path)}: what are its rows?", list(_ROLES))]:
        optional = [_NO] if role in ("timestamp", "relation") else []
        answer = ask(f"{on_one_line(path)}: which column is the {role.removesuffix('_id')}?", [*left, *optional])
        if answer != _NO:
            columns[role] = left.pop(answer)
    return columns


def place_in(root: Path, path: str, format: str, copies: dict[Path, Path], *, in_place: bool) -> str:
    """The path for the YAML: relative to the project's root if it is inside, or is to be copied there.

    A URL is kept; with ``in_place`` so is a file outside the project (as its absolute path). Otherwise ``copies`` gets it,
    and the files that ``format`` reads beside it: source → target.

    Raises:
        InputError: the place already has another file of the same name.
    """
    source = Path(path).resolve()
    if "://" in path:
        return path
    if source.is_relative_to(root.resolve()):
        return source.relative_to(root.resolve()).as_posix()
    if in_place:
        return str(source)
    for each in (source, *_companions(source, format)):
        target = root / RAW / each.name
        if target.exists() or target in copies.values():
            raise InputError(f"{target} exists already; rename {each}, or keep it where it is with --in-place")
        copies[each] = target
    return f"{RAW}/{source.name}"


def copy_files(copies: Mapping[Path, Path]) -> None:
    """Copies each file as a whole or not at all: source → target."""
    for source, target in copies.items():
        try:
            if source.is_dir():
                shutil.copytree(source, target, copy_function=lambda each, to: copy_atomically(Path(each), Path(to)))
            else:
                copy_atomically(source, target)
        except OSError as error:
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
            raise InputError(f"{source} cannot be copied to {target}: {error.strerror or error}") from None


def _companions(source: Path, format: str) -> list[Path]:
    """The other files that are read with the file ``source``."""
    if source.is_dir():
        return []
    if format == "node_features":  # the ids of a matrix's rows
        return [ids for ids in (source.with_suffix(".ids.txt"),) if ids.is_file()]
    find = FORMATS[format].files
    files = find(str(source), FORMATS[format].settings()).values() if find else ()
    return [Path(file) for file in files if Path(file).resolve() != source]


def dataset_of(
    paths: Sequence[str],
    place: Callable[[str, str], str],
    *,
    format: str = "",
    name: str = "",
    columns: Mapping[str, str] | None = None,
    ask: Ask | None = None,
    force: bool = False,
    described: bool = False,
) -> Dataset:
    """Reads the files and makes a dataset for them: edges or interactions, and features of their nodes.

    Several edge files, and node files beside them, become one source of the format ``kg_files``. ``place`` gives the
    path of a file of a format for the YAML. ``columns``: role → column of the first file. ``force``: also read files of
    which many rows are refused. ``described``: tables of nodes of one type, with more than names, become attributes.

    Raises:
        InputError: a file cannot be read, or there are no or several sources of interactions or of other formats.
    """
    about = _descriptions(paths) if described else {}
    paths = [path for path in paths if path not in about]
    folder, joined = ("", {}) if format or columns else _joined(paths)
    reports: list[tuple[str, IngestReport]] = []
    for path in (path for path in paths if path not in joined.values()):
        alone, named = format if len(paths) == 1 else "", columns if path == paths[0] else None
        try:
            reports.append((path, recognised(path, alone, named, ask, force=force)))
        except InputError as error:
            if not (reports and described) or reports[0][1].format in ("node_features", "attributes"):
                raise
            try:
                source = {**reports[0][1].documents[0]["attributes"]["sources"][0], "path": reports[0][0]}
                _described(source, {path: ""}, lambda file, _: file)
            except InputError as why:
                raise InputError(f"{error}. It has no attributes of nodes, either: {why}") from None
            about[path] = ""
    if joined:
        together = report_on(folder, "kg_files", guess_of_files(joined, unsure=True), force=force)
        reports.insert(0, (", ".join(joined), together))
        if problem := reports[0][1].problem:
            raise InputError(f"{reports[0][0]} cannot be read together: {problem}")
    main = [(path, report) for path, report in reports if report.format not in ("node_features", "attributes")]
    if len(main) != 1:
        listed = "; ".join(f"{on_one_line(path)} as {report.format}" for path, report in main) or "none"
        raise InputError(
            f"a dataset has one source of edges or interactions besides node features, but these files have {len(main)} "
            f"({listed}): make a dataset of each with a separate call, or give their folder"
        )
    (main_path, report), features = main[0], [each for each in reports if each[1].format == "node_features"]
    kinds = [_node_type(path, report, ask) for path, _ in features]
    dataset, *models = deepcopy(report.documents)
    attributes = dataset["attributes"]
    attributes["name"] = name or attributes["name"]
    notes = [_reading(path, each) for path, each in reports]
    if about:
        source = {**attributes["sources"][0], "path": folder if joined else main_path}
        attributes["attributes"] = _described(source, about, place)
        notes += [f"{each['file']}: attributes of {kind}" for kind, each in attributes["attributes"].items()]
    if joined:
        attributes["sources"][0] |= _placed(attributes["sources"][0], joined, place)
    else:
        attributes["sources"][0]["path"] = place(main_path, report.format)
    for number, ((path, each), kind) in enumerate(zip(features, kinds, strict=True)):
        source = each.documents[0]["sources"][0]
        label = "features" if len(features) == 1 else f"features_{number + 1}"
        attributes["sources"].append({**source, "name": label, "path": place(path, each.format), "node_type": kind})
    for model in models:
        values = model["attributes"]
        values["dataset"] = attributes["name"]
        values |= {"schedule": SCHEDULE, "freshness": FRESHNESS}
    head = f"# Written by `graphmill init` from {', '.join(Path(path).name for path, _ in reports)}.\n"
    text = yaml.safe_dump_all(
        [dataset, *models], sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
    return Dataset(attributes["name"], head + text, notes, attributes)


def _descriptions(paths: Sequence[str]) -> dict[str, str]:
    """Table → its column of ids: the local tables, of several files, that list nodes of one type with more than names."""
    local = {path: path for path in paths if "://" not in path and not Path(path).is_dir()}
    nodes = guessed_files(local, unsure=True)[0]["nodes"] if len(paths) > 1 else []
    ids = {entry["file"]: entry.get("id_column", "id") for entry in nodes if "type_column" not in entry}
    names = {entry["file"]: {entry.get("name_column"), ids.get(entry["file"])} for entry in nodes}
    return {path: column for path, column in ids.items() if set(Candidate(path).columns) - names[path]}


def _described(
    source: Mapping[str, Any], about: Mapping[str, str], place: Callable[[str, str], str]
) -> dict[str, dict[str, str]]:
    """The section ``attributes`` for tables about the nodes of a ``source``. Raises :class:`InputError` if one has no id of
    them."""
    (main,) = parse_sources([source], Path())
    read, described = FORMATS[main.format].read, dict[str, dict[str, str]]()
    assert read is not None
    result = read(main.location, main.settings)
    for path, column in about.items():
        result = with_attributes(result, path, AttributeSettings(id=column))
        (kind,) = set(result.attributes) - set(described)
        columns = result.attributes[kind].schema
        kinds = {each.name: attribute_kind(each.type) for each in columns if each.name != "node"}
        described[kind] = {"file": place(path, "attributes"), **({"id": column} if column else {}), **kinds}
    return described


def _joined(paths: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The files with edges, or with nodes of these edges: their folder, and name in it → path.

    None if one file is enough, or if no file certainly has edges.
    """
    formats = {path: known_formats(path) for path in paths if not Path(path).is_dir()} if len(paths) > 1 else {}
    tables = [path for path, known in formats.items() if known[:1] in ([], ["kg_csv"])]
    guessed, _ = guessed_files({path: path for path in tables}, unsure=True)
    edges, nodes = ({entry["file"] for entry in guessed[kind]} for kind in ("edges", "nodes"))
    if len(edges | nodes) < 2 or not any("kg_csv" in formats[path][:1] for path in edges):
        return "", {}
    kept = [path for path in paths if path in edges | nodes]
    folder = _folder(kept)
    return folder, {path if "://" in path else os.path.relpath(path, folder): path for path in kept}


def _placed(source: Mapping[str, Any], joined: Mapping[str, str], place: Callable[[str, str], str]) -> dict[str, Any]:
    """Places the files of a source; returns their folder and their names in it."""
    places = {name: place(path, "kg_csv") for name, path in joined.items()}
    folder = _folder(list(places.values()))
    named = {name: at if "://" in at else os.path.relpath(at, folder) for name, at in places.items()}
    parts = [kind for kind in ("edges", "nodes") if kind in source]
    return {"path": folder} | {k: [{**entry, "file": named[entry["file"]]} for entry in source[k]] for k in parts}


def _folder(paths: Sequence[str]) -> str:
    """The deepest common folder of all local ``paths``."""
    return os.path.commonpath([os.path.dirname(path) for path in paths if "://" not in path] or [""]) or "."


def _node_type(path: str, main: IngestReport, ask: Ask | None) -> str:
    kinds = list(main.node_types)
    if "item" in kinds or len(kinds) == 1:
        return "item" if "item" in kinds else kinds[0]
    if ask is not None:
        return ask(f"{on_one_line(path)}: of which type are the nodes that have these features?", kinds)
    raise InputError(
        f"{on_one_line(path)} has features of nodes, and the graph has several types ({', '.join(kinds)}): which they "
        "are of, only you know. Start without this file and add it to the defs.yaml as a source with its node_type"
    )


_GUESSES = 3
SPLIT = "  split: "
"""How the line begins that says how a graph of the files is split by default."""


def _reading(path: str, report: IngestReport) -> str:
    """At most five lines on how a file is read: its content, how it is split, and what was guessed, with the reason."""
    counts = {name: report.counts[name] for name in _COUNTED if report.counts.get(name)}
    figures = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in list(report.node_types.items())[:6])
    lines = [f"{on_one_line(path)}: read as {report.format}; {figures}" + (f"; nodes: {kinds}" if kinds else "")]
    if report.documents and report.format != "node_features":
        lines.append(f"{SPLIT}{_split(report)}")
    guesses = list(report.remarks)
    if len(guesses) > _GUESSES:
        guesses[_GUESSES - 1 :] = ["; ".join(guesses[_GUESSES - 1 :])]
    return "\n".join([*lines, *(f"  guessed: {remark}" for remark in guesses)])


_COUNTED = ("rows", "edges", "interactions", "facts", "rejected_rows", "negated_rows", "below_min_weight", "width")


def _split(report: IngestReport) -> str:
    """How the graph of a report is split by default, in words."""
    graph = report.documents[0]["attributes"].get("graph", {}).get("split", {})
    if graph.get("method") == "random":
        return "held-out interactions are drawn at random, because there are no times to hold out the newest"
    if "interactions" not in report.counts and "valid" not in report.counts:
        default = SplitSettings()
        graph = {"valid": default.valid, "test": default.test, **graph}
    if graph.get("valid"):
        timed = any(part.get("part") == "timestamp" for part in report.columns)
        more = "; there are times: split.method: by_time holds out the newest" if timed else ""
        return f"{graph['valid']:.0%} and {graph['test']:.0%} of the edges, drawn at random, are held out{more}"
    if "valid" in report.counts:
        drawn = graph.get("given") == "add_valid"
        return "test as the files have it, validation drawn from the rest" if drawn else "as the files have it"
    return "each user's last two interactions are held out (by time, or by the order of the file)"
