"""Writes ``report.html``: the card with pictures in one self-contained file, for a screen, a phone or paper."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.atomic_files import os_error_in_a_sentence, write_atomically
from graphmill.evaluation.pictures.canvas import small_png
from graphmill.reports.card import Section, card_sections, write_card
from graphmill.reports.card_files import CardFiles, read_card_files
from graphmill.reports.ranking_tables import Table
from graphmill.reports.verdict import card_verdict
from graphmill.training.metrics_log import MetricsLog
from graphmill.verified_files import verified_file

REPORT = "report.html"
_WIDEST = 900
"""Largest width of a picture in pixels: sharp on a phone, at a few tens of kilobytes."""


@dataclass(frozen=True)
class Picture:
    """A PNG of a section. ``title`` is also its alternative text."""

    section: str
    title: str
    png: bytes


#: Pictures that assets write into a run directory: the section that shows them, the title, the file.
_SAVED = (
    ("figures", "Ranking beside baselines", "ranking.png"),
    ("curves", "Loss", "losses.png"),
    ("curves", "Figures on validation", "metrics.png"),
    ("health", "Vectors by node type", "validation/pca.png"),
    ("health", "Cosines of pairs of rows", "validation/cosines.png"),
    ("health", "Variance by component", "validation/spectrum.png"),
)


def describe_run(folder: str | Path) -> Path:
    """Write the run's card and report again from its files; returns the report's path.

    Raises:
        InputError: nothing was exported. ResourceError: a file cannot be written.
    """
    write_card(folder)
    return write_report(folder)


def write_report(folder: str | Path, out: str | Path = "") -> Path:
    """Write the report of a run to ``out``, or as ``report.html`` into its folder; returns the path.

    A version keeps the report that its promotion wrote: it is copied to ``out``.

    Raises:
        InputError: nothing was exported, or a version's report is damaged. ResourceError: it cannot be written.
    """
    files = read_card_files(folder)
    if not files.version:
        page = report_html(with_health(files)).encode()
    elif out:
        page = verified_file(files.folder, REPORT).read_bytes()
    else:
        return verified_file(files.folder, REPORT)
    target = Path(out) if out else files.folder / REPORT
    with os_error_in_a_sentence(f"{target} cannot be written", "choose another file with --out FILE"):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page)
    return target


def with_health(files: CardFiles, computed: Mapping[str, Any] | None = None) -> CardFiles:
    """The same files with the health report of the vectors, if there are any. If no file has it, it is ``computed``, or
    computed now."""
    if not files.vectors or (files.health and files.health_is_of_export):
        return files
    if computed:
        return replace(files, health=computed)
    from graphmill.reports.validation import graph_of, validate_file

    report = validate_file(files.export_folder, graph_of(files.export_folder))
    return replace(files, health=report.to_dict())


def report_html(files: CardFiles) -> str:
    """The report as one HTML page."""
    first, *rest = card_sections(files)
    curves = Section(
        "curves", "Training", [] if files.report else ["How the training went is not known: no report is here."]
    )
    pictures = list(_pictures(files))
    trained = curves.text or any(picture.section == curves.name for picture in pictures)
    sections = [rest[0], *([curves] if trained else []), *rest[1:]]
    anchors = "".join(f'<a href="#{s.name}">{html.escape(s.title.partition(":")[0])}</a>' for s in sections)
    body = "".join(_section(section, pictures) for section in sections)
    title = html.escape(first.title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body><header><h1>{title}</h1>"
        f'<p class="lead {card_verdict(files).word}">{_inline(first.text[0])}</p><p>{_inline(first.text[1])}</p>'
        f'<nav aria-label="Parts">{anchors}</nav></header>\n'
        f"<main>{body}</main></body></html>\n"
    )


def _section(section: Section, pictures: Sequence[Picture]) -> str:
    parts = [f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2>']
    parts += [f"<p>{_inline(text)}</p>" for text in section.text]
    drawn = "".join(_figure(p) for p in pictures if p.section == section.name)
    displayed = [f'<div class="pictures">{drawn}</div>'] if drawn else []
    tables = [_table(table) for table in section.tables if table.rows]
    # The ranking's picture shows more detail than the table, so it comes after it.
    parts += [*tables, *displayed] if section.name == "figures" else [*displayed, *tables]
    return "".join([*parts, "</section>\n"])


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.head)
    rows = "".join("<tr>" + "".join(_cell(str(cell)) for cell in row) + "</tr>" for row in table.rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(text: str) -> str:
    kind = (
        "number" if re.fullmatch(r"-?[\d.,]+(e[+-]?\d+)?", text) else text if text in ("pass", "warn", "fail") else ""
    )
    return f'<td class="{kind}">{_inline(text)}</td>' if kind else f"<td>{_inline(text)}</td>"


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    title = html.escape(picture.title)
    return f'<figure><img alt="{title}" src="data:image/png;base64,{data}"><figcaption>{title}</figcaption></figure>'


def _inline(text: str) -> str:
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)


# -- pictures ------------------------------------------------------------------------------------------------------------


def _pictures(files: CardFiles) -> Iterator[Picture]:
    """The pictures that assets have drawn. Those of the training and of the vectors are drawn here if they are missing."""
    current = files.health_is_of_export and bool(files.health)
    for section, title, name in _SAVED:
        path = files.folder / name
        if path.is_file() and (section != "health" or current):
            yield Picture(section, title, small_png(path.read_bytes(), _WIDEST))
    if not (files.folder / "losses.png").is_file():
        yield from _curves(files)
    if files.vectors and not ((files.folder / "validation" / "pca.png").is_file() and current):
        yield from _of_vectors(files)


def _curves(files: CardFiles) -> Iterator[Picture]:
    from graphmill.reports.training_curves import FEWEST_DRAWN, loss_curve, metric_curve

    log = files.folder / "metrics.jsonl"
    epochs = MetricsLog(log).read("epoch") if log.is_file() else []
    if len(epochs) >= FEWEST_DRAWN:
        yield Picture("curves", "Loss", loss_curve(epochs))
    if sum(bool(record.get("valid")) for record in epochs) >= FEWEST_DRAWN:
        chosen = str(files.settings.get("evaluation", {}).get("selection_metric", ""))
        yield Picture("curves", "Figures on validation", metric_curve(epochs, selection=chosen))


def _of_vectors(files: CardFiles) -> Iterator[Picture]:
    from graphmill.evaluation.embedding_files import read_embeddings
    from graphmill.evaluation.pictures.embedding import cosine_histograms, pca_scatter

    embeddings = read_embeddings(files.export_folder)
    vectors, types = np.asarray(embeddings.vectors), np.asarray(embeddings.types)
    yield Picture("health", "Vectors by node type", pca_scatter(vectors, types, list(embeddings.type_names)))
    yield Picture("health", "Cosines of pairs of rows", cosine_histograms(vectors, types))


STYLE = """
:root{color-scheme:light dark;--ink:#1b2326;--soft:#5c6a70;--paper:#fff;--line:#dde3e6;--own:#0072b2;
--good:#0a7a55;--odd:#9a6700;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e6ecef;--soft:#9fb0b8;--paper:#14191c;--line:#313b40;
--own:#56b4e9;--good:#5fd3a8;--odd:#e0b050;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:1.25rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.2rem;margin:0 0 .5rem;padding-top:1rem;border-top:1px solid var(--line)}
section{margin:1.5rem 0}
p{margin:.5rem 0;max-width:48rem;overflow-wrap:anywhere}
.lead{font-size:1.1rem;border-left:.3rem solid var(--odd);padding-left:.75rem}
.lead strong{color:var(--odd)}
.better{border-color:var(--good)}.better strong{color:var(--good)}
.worse,.broken{border-color:var(--bad)}.worse strong,.broken strong{color:var(--bad)}
nav{display:flex;flex-wrap:wrap;gap:.25rem 1rem;margin:1rem 0}
a{color:var(--own)}
code{font:.88em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.table{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600}
td{overflow-wrap:break-word}
td.number{font-variant-numeric:tabular-nums;white-space:nowrap}
td.pass{color:var(--good)}td.warn{color:var(--odd);font-weight:600}td.fail{color:var(--bad);font-weight:600}
.pictures{display:grid;grid-template-columns:minmax(0,58rem);gap:1rem;margin:1rem 0}
figure{margin:0;overflow-x:auto;background:#fff;border:1px solid var(--line);border-radius:.4rem;padding:.5rem}
figure img{width:100%;min-width:36rem;height:auto;display:block}
figcaption{color:#5c6a70;font-size:.85rem;padding-top:.25rem}
@media print{:root{--ink:#000;--paper:#fff;--line:#ccc;--soft:#444;--own:#0072b2}
body{max-width:none;padding:0;font-size:10pt}nav{display:none}figure,tr{break-inside:avoid}h2{break-after:avoid}
.table{overflow:visible}.pictures{grid-template-columns:1fr 1fr}
figure img{min-width:0}}
"""
