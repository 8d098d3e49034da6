"""``card.md``: describes a run from its files: data, changed settings, metrics beside baselines, health, limits, origin.

The parts are the same for the card (Markdown) and for the one-page report (HTML, with pictures).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphmill.atomic_files import write_atomically
from graphmill.errors import ResourceError
from graphmill.evaluation.health.check import bounds_sentence
from graphmill.evaluation.markdown import escaped, number, table
from graphmill.evaluation.ranking.comparison import SIMPLER, grouped
from graphmill.reports.card_files import CardFiles, read_card_files
from graphmill.reports.ranking_tables import Table, answer_sentence, ranking_tables
from graphmill.reports.verdict import card_verdict
from graphmill.systems.registry import SYSTEMS
from graphmill.training.memory import device_memory_row

CARD = "card.md"
NOT_KNOWN = "not known"
_SHOWN_RELATIONS = 60
_GIB = 2**30


@dataclass(frozen=True)
class Section:
    """One part: sentences, then tables. ``name`` is stable; ``title`` is for people.

    In text, `` `code` `` and ``**bold**`` have their meaning in Markdown. No other mark-up is used.
    """

    name: str
    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()


def card_sections(files: CardFiles) -> list[Section]:
    """Return all sections in order; the first has the verdict and what was exported. Weights have no section on health."""
    return [
        _about(files),
        _figures(files),
        *_parts(files),
        *([_health(files)] if files.vectors else []),
        *_labels(files),
        _drift(files),
        _data(files),
        _settings(files),
        _limits(files),
        _made(files),
        _where(files),
    ]


def card_text(files: CardFiles) -> str:
    """The card as Markdown."""
    return markdown(card_sections(files))


def card_of(folder: str | Path, change: Callable[[CardFiles], CardFiles] = lambda files: files) -> Markdown:
    """The card of a run or version, of its files after a ``change``."""
    return Markdown(card_text(change(read_card_files(folder))))


def write_card(folder: str | Path, into: str | Path = "", health: Mapping[str, Any] | None = None) -> Path:
    """Write ``card.md`` of a run into its directory (or ``into``); returns its path.

    ``health``: a health report of the exported vectors, for a run that has none.

    Raises:
        InputError: nothing was exported. ResourceError: it cannot be written.
    """
    files = read_card_files(folder)
    if health and not (files.health and files.health_is_of_export):
        files = replace(files, health=health)
    target = Path(into) if into else files.folder
    try:
        write_atomically(target / CARD, card_text(files).encode())
    except OSError as error:
        raise ResourceError(f"{target / CARD} cannot be written: {error.strerror}") from None
    return target / CARD


def markdown(sections: Iterable[Section]) -> str:
    """The sections as Markdown. The first section's title is the title of the page."""
    parts = []
    for at, section in enumerate(sections):
        parts.append(f"{'##' if at else '#'} {escaped(section.title)}")
        parts += [escaped(text) for text in section.text]
        parts += [table(each.head, each.rows) for each in section.tables if each.rows]
    return "\n\n".join(parts) + "\n"


# -- the parts -----------------------------------------------------------------------------------------------------------


def _about(files: CardFiles) -> Section:
    rows, dim = files.export["rows"], files.export["dim"]
    epoch = files.export.get("epoch")
    system = SYSTEMS[files.system].about if files.system in SYSTEMS else NOT_KNOWN
    exported = f"{rows:,} vectors of {dim} numbers, one for each node of `{files.dataset}`"
    if not files.vectors:
        exported = f"Weights for the {rows:,} nodes of `{files.dataset}` (there are no vectors)"
    sentence = f"{exported}{f', from epoch {epoch}' if epoch is not None else ''}. System: {system}."
    title = f"{files.system or 'Embeddings'} on {files.dataset}"
    return Section("about", title, [card_verdict(files).text, sentence])


def beside_baselines(files: CardFiles) -> dict[str, Mapping[str, Any]]:
    """Return the ranking's metrics by scorer, the model first; {} if it was not ranked, or at another epoch."""
    if not files.ranking or files.ranking["epoch"] != files.export.get("epoch"):
        return {}
    if files.ranking["kind"] == "items":
        figures = files.ranking["figures"]
        return {who: figures[who] for who in ("model", *SIMPLER) if who in figures}
    comparison = files.ranking["comparison"]
    return dict(comparison[comparison["against"]["average"]])


def _figures(files: CardFiles) -> Section:
    text, tables = [], []
    by_scorer = beside_baselines(files)
    if by_scorer:
        split = files.ranking.get("split") or "test"
        text.append(f"Ranking of the {split} split at epoch {files.ranking['epoch']}; each column is a scorer.")
        rows = [[m, *(number(by_split.get(m)) for by_split in by_scorer.values())] for m in by_scorer["model"]]
        tables.append(Table(["metric", *by_scorer], rows))
    elif files.ranking:
        text.append("It was ranked at another epoch; `graphmill rank RUN` ranks it again.")
    else:
        text.append("Not compared with baselines yet; `graphmill rank RUN` does it.")
    by_split = _by_split(files)
    tables.append(Table(["metric", "validation", "test"], by_split))
    if not by_split:
        text.append("Held-out figures are not known: the report of the training is missing.")
    elif files.report.get("selected_on") == "test":
        text.append("**The epoch was chosen on the test split, so its figures are optimistic.**")
    return Section("figures", "Figures beside baselines", text, tables)


def _parts(files: CardFiles) -> list[Section]:
    """The ranking by part, and the last question that was ranked; none of another epoch."""
    sections, epoch = [], files.export.get("epoch")
    if files.ranking and files.ranking["epoch"] == epoch:
        sections = [Section(t.name, t.title, (), [t]) for t in ranking_tables(files.ranking)]
    if files.question and files.question["epoch"] == epoch:
        answer = [answer_sentence(files.question)]
        sections.append(Section("question", "A question", answer, ranking_tables(files.question)))
    return sections


def _by_split(files: CardFiles) -> list[list[str]]:
    by_split = {}
    for split in ("valid", "test"):
        figures = {n.removeprefix(f"{split}_"): v for n, v in files.metrics.items() if n.startswith(f"{split}_")}
        # A recommender's metrics include those of simpler models.
        by_split[split] = grouped(figures)["model"] if _ranks(files) == "items" else figures
    names = dict.fromkeys([*by_split["valid"], *by_split["test"]])
    return [[n, *(number(_float(by_split[s].get(n))) for s in ("valid", "test"))] for n in names]


def _ranks(files: CardFiles) -> str:
    return SYSTEMS[files.system].ranks if files.system in SYSTEMS else "links"


def _health(files: CardFiles) -> Section:
    if not files.health:
        return Section("health", "Health", ["Not validated yet; `graphmill validate RUN` does it."])
    if not files.health_is_of_export:
        return Section("health", "Health", ["The health report is of an earlier export; validate the run again."])
    verdicts = files.health["verdicts"]
    rows = [
        [v["name"], number(v["value"]), number(v["threshold"]), v["status"], f"{v['meaning']} {v['remedy']}".strip()]
        for v in verdicts
    ]
    return Section(
        "health",
        f"Health: {files.health['status']}",
        [bounds_sentence(verdicts)],
        [Table(["figure", "value", "bound", "verdict", "meaning"], rows)],
    )


def _labels(files: CardFiles) -> list[Section]:
    """What a probe for labels found; none without a probe of these vectors."""
    probe = files.probe
    if not probe or not files.is_of_export(probe):
        return []
    between = lambda each: f"{each['low']:.3f} to {each['high']:.3f}"  # noqa: E731
    rows = [
        [who, number(each["value"]), between(each), between(probe["over"][who]) if who in probe["over"] else ""]
        for who, each in probe["scores"].items()
    ]
    where = f"`{probe['label']}` of `{probe['file']}`, nodes of type `{probe['node_type']}`."
    return [
        Section(
            "labels",
            "What the vectors know",
            [f"{probe['sentence']}.", where, *(f"{note}." for note in probe["notes"])],
            [Table([f"{probe['metric']} from", "value", f"{probe['level']:.0%} interval", "vectors minus it"], rows)],
        )
    ]


def _drift(files: CardFiles) -> Section:
    if not files.drift:
        return Section("drift", "Drift", ["Not compared with an earlier live version."])
    rows = [[f["name"], f["status"], f"{f['meaning']} {f['remedy']}".strip()] for f in files.drift["findings"]]
    overall = files.drift["overall"]
    kept = (
        f"{overall['overlap_10']:.0%} of {'the 10 nearest neighbours' if files.vectors else 'the ten best'} stayed"
        if overall.get("overlap_10") is not None
        else ""
    )
    return Section(
        "drift",
        f"Drift: {files.drift['name'] or files.drift['status']}",
        [f"Compared with {files.drift['against']}. {kept}".strip() + ("." if kept else "")],
        [Table(["finding", "verdict", "meaning"], rows)],
    )


def _data(files: CardFiles) -> Section:
    where = files.data.get("path", NOT_KNOWN)
    text = [f"The graph `{where}`, content hash `{files.data.get('content_hash', NOT_KNOWN)}`."]
    graph = files.graph
    if not graph:
        return Section("data", "Data", [*text, "Its counts are not known."])
    split = ", ".join(f"{count:,} {name}" for name, count in graph["split"].items())
    text.append(f"{graph['nodes']:,} nodes; {graph['edges']:,} edges ({split}).")
    relations = sorted(graph["relations"].items(), key=lambda item: -item[1])
    if len(relations) > _SHOWN_RELATIONS:
        text.append(f"The {_SHOWN_RELATIONS} largest of {len(relations)} relations are listed.")
    return Section(
        "data",
        "Data",
        [*text, "The licence and the origin of the data are not recorded; the terms of its source apply."],
        [
            Table(["node type", "nodes"], [[name, number(count)] for name, count in graph["node_types"].items()]),
            Table(["relation", "edges"], [[name, number(count)] for name, count in relations[:_SHOWN_RELATIONS]]),
        ],
    )


def _settings(files: CardFiles) -> Section:
    resolved = files.run.get("resolved", {})
    text = []
    if resolved.get("preset"):
        text.append(f"Preset `{resolved['preset']}` ({resolved.get('preset_reason') or 'no reason recorded'}).")
    if not files.settings:
        text.append("The settings are not known.")
    elif not files.differences:
        text.append("All settings are the defaults.")
    rows = [[f"`{name}`", _value(value), _value(default)] for name, (value, default) in files.differences.items()]
    title = "Settings that differ from the defaults"
    return Section("settings", title, text, [Table(["setting", "this run", "default"], rows)])


_USES = {
    "links": (
        "For ranking candidate links between the node types that the graph has{similar}. A predicted link is a hypothesis "
        "from the graph's patterns and not evidence: have a person who knows the field check it before anybody acts on it. "
        "Scores of two relations cannot be compared, and a score is no probability."
    ),
    "items": (
        "For ranking items for the users that were trained on{similar}. It repeats what people did, including popularity, "
        "and does not know why."
    ),
}


def _limits(files: CardFiles) -> Section:
    similar = ", for finding similar nodes, and as features of other models" if files.vectors else ""
    text, graph = [_USES["items" if _ranks(files) == "items" else "links"].format(similar=similar)], files.graph
    if graph.get("without_training_edges"):
        count = graph["without_training_edges"]
        text.append(
            f"{count:,} of {graph['nodes']:,} nodes have no training edge: "
            f"{'their vectors say' if files.vectors else 'what is predicted for them says'} little or nothing."
        )
    if files.vectors:
        text.append("Nodes that are not in the graph have no vector, and two trainings' vectors cannot be mixed.")
    if files.health and files.health_is_of_export:
        bad = [f"{v['name']} ({v['status']})" for v in files.health["verdicts"] if v["status"] != "pass"]
        if bad:
            text.append(f"Health figures out of bounds: {', '.join(bad)}.")
    notes = [str(note) for note in files.export.get("notes") or ()]
    return Section("limits", "Intended use and limits", [*text, *notes])


def _made(files: CardFiles) -> Section:
    report, resolved = files.report, files.run.get("resolved", {})
    software = ", ".join(f"{name} {version}" for name, version in files.software.items()) or NOT_KNOWN
    device = resolved.get("device") or report.get("device") or NOT_KNOWN
    reason = f" ({resolved['device_reason']})" if resolved.get("device_reason") else ""
    rows = [
        ["software", software],
        ["device", f"{device}{reason}"],
        ["precision, batching", f"{resolved.get('precision', NOT_KNOWN)}, {resolved.get('batching', NOT_KNOWN)}"],
        ["threads, processes", f"{resolved.get('threads', NOT_KNOWN)}, {resolved.get('processes', NOT_KNOWN)}"],
        ["seed", number(files.settings.get("training", {}).get("seed")) or NOT_KNOWN],
        ["fingerprint", str(files.export.get("fingerprint", NOT_KNOWN))],
    ]
    if report:
        rows[3:3] = [
            ["length", f"{report['epochs_done']} epochs, {report['steps_done']:,} steps ({report['reason']})"],
            ["time", f"{report['seconds']:.1f} s"],
            ["peak memory", f"{report['peak_memory_bytes'] / _GIB:.2f} GiB"],
            *([memory] if (memory := device_memory_row(report)) else []),
        ]
    else:
        rows.insert(3, ["length, time, memory", f"{NOT_KNOWN}: no report of the training is here"])
    table = Table(["what", "value"], rows)
    again = (
        "To train it again: `graphmill train PATH/settings.json` in the project's folder, with the file of this folder."
    )
    known = (files.folder / "settings.json").is_file()
    return Section("made", "How it was made", [again if known else "It is not known how to reproduce it."], [table])


def _where(files: CardFiles) -> Section:
    rows = [[f"`{name}`", number(entry["bytes"]), entry["sha256"]] for name, entry in files.export["files"].items()]
    return Section("files", "Files", (), [Table(["file", "bytes", "SHA-256"], rows)])


def _value(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`" if not isinstance(value, str) else f"`{value or chr(34) * 2}`"


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Markdown(str):
    """Markdown that a notebook renders and a terminal prints as it is."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return str(self)
