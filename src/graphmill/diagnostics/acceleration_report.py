"""Measures what each acceleration setting gains on the user's data: none, all together, and one at a time.

Each configuration trains for a few epochs in a fresh process, one after the other, so that memory and time can be
assigned to it. A configuration that fails (not finite, out of memory, refused) gives a row with the reason, not an
error. ``measured_run.py`` runs one configuration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError, SettingsError
from graphmill.evaluation import markdown
from graphmill.evaluation.json_values import readable
from graphmill.evaluation.pictures.comparisons import configuration_bars
from graphmill.runs.measured_run import run_trial
from graphmill.runs.messages import Outlet
from graphmill.runs.resolve import merge, parse_settings
from graphmill.settings import Settings, read_yaml, setting
from graphmill.training.signals import StopRequest

#: All accelerations off. The settings that define the training (batching, sizes, model) stay the user's.
BASELINE: dict[str, Any] = {
    "acceleration": {
        "precision": "fp32",
        "compile": "none",
        "gradient_checkpointing": False,
        "processes": 1,
    },
    "evaluation": {"eval_every": 1},
}
#: Changes to the baseline that are tried one at a time, if the caller names none.
SINGLES = (
    "acceleration.precision=bf16",
    "acceleration.compile=default",
    "acceleration.gradient_checkpointing=true",
    "evaluation.eval_every=5",
)
FILE = "acceleration_report.json"
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


class AccelerationReportSettings(Settings):
    """The configurations to compare, and the number of epochs."""

    epochs: int = setting(3, "Number of epochs that each configuration trains; the first is slower than the rest", ge=1)
    baseline: list[str] = setting(
        [],
        "Changes to the model's own settings in every row, if the report is to study other settings than the "
        "model's, such as acceleration.batch_size=2048",
    )
    accelerated: list[str] = setting(
        [], "Further changes in the row 'accelerated', such as acceleration.precision=bf16"
    )
    singles: list[str] = setting(
        list(SINGLES),
        "Changes to the baseline, tried one at a time, each in its own row: section.name=value, or several joined by "
        "' + '; [] = none",
    )


@dataclass(frozen=True)
class Row:
    """One configuration. ``status``: "ok", or an error message; ``changes``: the differences from the baseline.

    ``finite``: false if a number was not finite. Figures that are not known are nan. ``peak_memory_bytes``: of the
    accelerator, or of the process if there is none. ``planned_memory_bytes``: the planner's estimate, nan if the system
    has no formulas.
    """

    name: str
    changes: dict[str, Any]
    status: str
    finite: bool = True
    seconds_per_epoch: float = math.nan
    peak_memory_bytes: float = math.nan
    planned_memory_bytes: float = math.nan
    metrics: dict[str, float] = field(default_factory=dict)
    compile: dict[str, Any] = field(default_factory=dict)
    precision: str = ""


_ROWS = TypeAdapter(list[Row])


@dataclass(frozen=True)
class AccelerationReport:
    """All rows, the baseline first."""

    epochs: int
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Column names and rows of text, for a terminal or Markdown."""
        measured = [n for row in self.rows for n in row.metrics if n.startswith("test_")]
        # The metrics that most rows have come first: configurations may differ in their cut-offs.
        names = sorted(dict.fromkeys(measured), key=lambda name: -measured.count(name))[:4]
        memory = ("peak memory (MiB)", "planned (MiB)")
        columns = ["configuration", "seconds per epoch", "speed-up", *memory, *names, "finite", "status"]
        base, out = self.rows[0].seconds_per_epoch, []
        for row in self.rows:
            speed = base / row.seconds_per_epoch if row.seconds_per_epoch else math.nan
            sizes = (row.peak_memory_bytes / 2**20, row.planned_memory_bytes / 2**20)
            figures = (row.seconds_per_epoch, speed, *sizes, *(row.metrics.get(name, math.nan) for name in names))
            cells = ["" if math.isnan(figure) else f"{figure:.4g}" for figure in figures]
            out.append([row.name, *cells, "yes" if row.finite else "NO", row.status])
        return columns, out

    def markdown(self) -> str:
        """The table as Markdown."""
        return markdown.table(*self.table())

    def picture(self) -> bytes:
        """Bars of time per epoch and peak memory, relative to the baseline, as PNG."""
        figures = {
            "seconds per epoch": [row.seconds_per_epoch for row in self.rows],
            "peak memory (GiB)": [row.peak_memory_bytes / 2**30 for row in self.rows],
        }
        return configuration_bars([row.name for row in self.rows], figures)


def acceleration_report(
    values: Mapping[str, Any],
    where: str,
    options: AccelerationReportSettings | None = None,
    *,
    out: str | Path = "",
    outlets: Sequence[Outlet] = (),
    stop: StopRequest | None = None,
) -> AccelerationReport:
    """Train the baseline, the accelerated configuration and each single setting for a few epochs.

    A first epoch of the baseline is not counted, because it may compile kernels.

    ``values``: a settings mapping as for ``train``; ``options.baseline`` is merged over it. The baseline also gets
    :data:`BASELINE` for all settings that ``options.baseline`` does not name. The accelerated configuration gets
    ``options.accelerated`` instead. No configuration changes the number of epochs. ``out``: a directory for :data:`FILE`,
    which is written after each row. If the same report was interrupted, it resumes after the rows in the file.
    ``outlets`` receive each epoch of each configuration.

    Raises:
        SettingsError: the settings are wrong, or a single setting is not written as section.name=value.
        StoppedError: ``stop`` was requested; the rows so far are in ``out``.
    """
    options = options or AccelerationReportSettings()
    studied = _joined(options.baseline)
    values = merge(values, studied)
    parse_settings(values, where)
    limits: dict[str, Any] = {
        "training": {"epochs": options.epochs, "patience_epochs": 0, "init_from": ""},
        "acceleration": {"resume": "never"},
    }
    short = merge(values, limits)
    accelerated = merge(_own(short), _joined(options.accelerated))
    configurations: dict[str, dict[str, Any]] = {"baseline": {}, "accelerated": accelerated}
    configurations |= {text: _parsed(text) for text in options.singles}
    base = merge(merge(merge(values, BASELINE), studied), limits)
    book = _Book(Path(out) / FILE if out else None, {"base": base, "configurations": configurations})
    if not book.rows:
        _warm_up(base, where, outlets, stop)
    for number, (name, changes) in enumerate(configurations.items()):
        if name in book.rows:
            continue
        tell = _teller(outlets, name, number, len(configurations), options.epochs)
        book.add(
            _measure(name, merge(merge(base, changes), limits), changes, where, tell, stop),
            done=number + 1 == len(configurations),
        )
    return AccelerationReport(options.epochs, list(book.rows.values()))


def read_report(path: Path) -> AccelerationReport:
    """The report that :func:`acceleration_report` wrote to ``path``."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = _ROWS.validate_python(content["rows"])
        return AccelerationReport(int(content["key"]["base"]["training"]["epochs"]), rows)
    except (OSError, *_DAMAGE) as error:
        raise InputError(f"{path} cannot be read ({type(error).__name__}); make the report again") from None


class _Book:
    """The rows so far. Each is written to disk at once, so that a stopped or killed report can resume."""

    def __init__(self, path: Path | None, key: Mapping[str, Any]) -> None:
        self.path, self.key = path, readable(key)
        self.rows: dict[str, Row] = {}
        if path is not None and path.is_file():
            with suppress(*_DAMAGE):  # if it is unreadable, measure again
                content = json.loads(path.read_text(encoding="utf-8"))
                # A complete report is measured again when it is requested again.
                if content["key"] == self.key and not content["complete"]:
                    self.rows = {row.name: row for row in _ROWS.validate_python(content["rows"])}

    def add(self, row: Row, *, done: bool) -> None:
        self.rows[row.name] = row
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            rows = [asdict(each) for each in self.rows.values()]
            content = readable({"key": self.key, "complete": done, "rows": rows})
            write_atomically(self.path, (json.dumps(content, indent=1) + "\n").encode())


def _teller(
    outlets: Sequence[Outlet], name: str, number: int, count: int, epochs: int
) -> Callable[[Mapping[str, Any] | None], None]:
    """A function that sends an epoch's record to the outlets (None: the configuration begins). Epochs are counted over
    all configurations."""

    def tell(record: Mapping[str, Any] | None) -> None:
        message: dict[str, Any] = {"kind": "note", "text": f"configuration {number + 1} of {count}: {name}"}
        if record is not None:
            progress = {name: record[name] for name in ("losses", "per_second", "valid", "split") if name in record}
            at = {"epoch": number * epochs + int(record["epoch"]), "epochs": count * epochs, "step": record["step"]}
            message = {"kind": "progress", "losses": {}, **progress, **at}
        for outlet in outlets:
            outlet.send(message)

    return tell


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that turn the baseline into the user's configuration: the user's value of each setting in
    :data:`BASELINE`."""
    settings: Any = parse_settings(values, "acceleration report")
    return {
        section: {name: getattr(getattr(settings, section), name) for name in fields}
        for section, fields in BASELINE.items()
    }


def _joined(texts: Sequence[str]) -> dict[str, Any]:
    return reduce(merge, map(_parsed, texts), {})


def _parsed(text: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for part in text.split(" + "):
        path, equals, value = part.partition("=")
        section, dot, name = path.strip().partition(".")
        if not (equals and dot):
            raise SettingsError(
                f"'{part}' is not one setting: write section.name=value, as acceleration.precision=bf16"
            )
        out = merge(out, {section: {name: read_yaml(value, part.strip())}})
    return out


def _warm_up(base: Mapping[str, Any], where: str, outlets: Sequence[Outlet], stop: StopRequest | None) -> None:
    """Compile the baseline's kernels before the first row. Otherwise the first row includes the compilation, and all
    others look fast."""
    values = merge(base, {"training": {"epochs": 1}, "evaluation": {"baselines": []}})
    try:
        parse_settings(values, where)
    except SettingsError:  # the baseline's row reports it
        return
    for outlet in outlets:
        outlet.send({"kind": "note", "text": "an epoch to warm up, which is not counted"})
    run_trial(values, where, lambda _: None, stop)


def _measure(
    name: str,
    values: Mapping[str, Any],
    changes: Mapping[str, Any],
    where: str,
    tell: Callable[[Mapping[str, Any] | None], None],
    stop: StopRequest | None,
) -> Row:
    try:
        parse_settings(values, where)
    except SettingsError as error:
        return Row(name, dict(changes), str(error))
    tell(None)
    result, why = run_trial(values, where, tell, stop)
    if why:
        return Row(name, dict(changes), why, finite="is not finite" not in why)
    return Row(
        name,
        dict(changes),
        "ok",
        finite=not result["skips"] or result["precision"] == "fp16",
        seconds_per_epoch=float(result["seconds"]) / max(int(result["epochs_done"]), 1),
        peak_memory_bytes=float(result.get("peak_device_memory_bytes") or result["peak_memory_bytes"]),
        planned_memory_bytes=float(result.get("planned_memory_bytes") or math.nan),
        metrics={name: float(value) for name, value in result["metrics"].items()},
        compile=result["compile"],
        precision=result["precision"],
    )
