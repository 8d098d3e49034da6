"""Promotion and rollback of one model's versions, by policy or by a user. It does not depend on Dagster."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphmill.errors import CheckFailedError, GraphmillError, InputError
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.evaluation.health.report import HealthReport
from graphmill.export.manifests import export_folder, read_manifest
from graphmill.graph.graph_location import snapshot_of
from graphmill.ingest.snapshots import order
from graphmill.predictions.question import Question, read_question
from graphmill.promotion.compare import check_question, compare
from graphmill.promotion.contents import fill_from
from graphmill.promotion.policy import Decision, Facts, PromotionSettings, decide, gain_sentence
from graphmill.promotion.versions import Version, VersionChangedError, Versions
from graphmill.reports.validation import graph_of, validate
from graphmill.reports.verdict import harmless, run_verdict
from graphmill.runs.champion import PROMOTED, is_of_a_search, model_of, promoted_folder
from graphmill.runs.export import Restored, export_run, restore
from graphmill.verified_files import MANIFEST as EXPORT

_ATTEMPTS = 3


def promote_run(
    run_dir: str | Path,
    store: Versions,
    settings: PromotionSettings | None = None,
    *,
    by: str,
    why: str = "",
    person: bool = False,
    force: bool = False,
    failed_checks: Sequence[str] = (),
    drift: float | None = None,
    snapshot: str = "",
    poll: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Decide on a run and, if the policy says so, make it the live version.

    ``snapshot``: the name of the snapshot of the run's graph, default: that in the graph's path.
    ``person``: a user asked for it, so it goes live whatever the comparison says, unless its health fails and ``force``
    is not given. Returns ``outcome`` (promoted, kept, waits), ``reason``, ``version`` (live afterwards, "" for none),
    ``path``, ``champion`` (live before), ``comparison`` ({} if there is none, with the reason in ``problem``), ``test``
    (test metrics of both, which do not affect the decision), and ``removed`` (older versions).

    Raises:
        InputError: not a finished run, or its graph or export has changed.
        CheckFailedError: ``person``, and the embeddings fail their health checks.
    """
    settings = settings or PromotionSettings()
    restored = export_trial(run_dir)
    exported = read_manifest(restored.export_folder)
    question = read_question(settings.question) if settings.question else None
    if question:
        check_question(restored.system, question)
    snapshot = snapshot or snapshot_of(restored.graph.path)
    health = _require_health(restored) if person and not force and restored.entry.vectors else None
    for _ in range(_ATTEMPTS):
        champion = store.current()
        facts = _facts(restored, exported, champion, store, question, failed_checks, drift, person, snapshot, poll)
        decision = _by_hand(facts, why) if person else decide(settings, facts)
        outcome = _outcome_of(decision, facts, champion, restored, why)
        if decision.outcome != "promoted":
            return outcome
        with store.lock():
            if store.current_name() != (champion.name if champion else ""):
                continue  # another process was faster: compare with the version that is live now
            version = store.add(fill_from(restored, settings, health, live=champion, snapshot=snapshot))
            store.switch(version, kind="promoted", by=by, why=outcome["reason"])
            removed = store.prune(settings.keep)
        return {
            **outcome,
            "version": version.name,
            "path": str(version.path),
            "removed": removed,
        }
    raise VersionChangedError(f"{store.label} was switched by others {_ATTEMPTS} times meanwhile; promote again")


def export_trial(run_dir: str | Path) -> Restored:
    """Return the run, with every file of its graph hashed again. A trial of a search is exported first, because a search
    only trains it."""
    restored = restore(run_dir, verify="always")
    if is_of_a_search(restored.run.path.resolve().parent) and not (restored.export_folder / EXPORT).exists():
        export_run(restored)
    return restored


def roll_back(store: Versions, wanted: str = "", *, by: str, why: str = "") -> dict[str, Any]:
    """Make an older version live: ``wanted``, or the one before.

    Returns ``version``, ``path``, ``before`` and ``reason``.

    Raises:
        InputError: there is no such version, it is damaged, it is already live, or there is no earlier one.
    """
    if not store.path.is_dir():
        raise InputError(f"{store.label} has no versions: no run was promoted to {store.path}")
    with store.lock():
        target = store.find(wanted) if wanted else store.before()
        before = store.current_name()
        if target.name == before:
            raise InputError(f"{target.name} is the live version of {store.label} already")
        target.verify()
        reason = why or "rolled back by hand"
        store.switch(target, kind="rolled back", by=by, why=reason)
    return {
        "version": target.name,
        "path": str(target.path),
        "before": before,
        "reason": reason,
    }


def versions_folder(run_dir: str | Path, to: str | Path = "") -> Versions:
    """The folder of a run's versions: under ``to``; else in ``07_promoted`` beside the run's ``06_models``; else in the
    working folder's ``data/07_promoted``, which the other commands read.

    Runs are ``06_models/D/M/<run>``, versions ``07_promoted/D/M/<version>``.
    """
    runs = Path(run_dir).resolve().parent
    folder = None if to else promoted_folder(runs)
    return Versions(folder or Path(to or Path("data", PROMOTED)).joinpath(*model_of(runs)))


def dagster_home(versions: Path) -> Path | None:
    """The folder of Dagster's history: ``$DAGSTER_HOME``, or ``.dagster_home`` in the versions' project. None if
    neither exists.
    """
    if home := os.environ.get("DAGSTER_HOME"):
        return Path(home) if Path(home).is_dir() else None
    for folder in versions.resolve().parents:
        if (folder / "workspace.yaml").is_file():
            return folder / ".dagster_home" if (folder / ".dagster_home").is_dir() else None
    return None


def health_failures(run_dir: str | Path) -> list[str]:
    """Return the names of the health checks that fail on a run's embeddings; none for an export of weights."""
    folder = export_folder(Path(run_dir))
    if not read_manifest(folder)["dim"]:
        return []
    report = validate(read_embeddings(folder), settings=(), trained_on=graph_of(folder))
    failed = _failed(report)
    return [] if harmless(failed, run_verdict(run_dir).word) else failed


def _failed(report: HealthReport) -> list[str]:
    return [verdict.name for verdict in report.verdicts if verdict.status == "fail"]


def somebody() -> str:
    """The current user as ``name@machine``."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user id without a name, such as in containers
        return f"somebody@{socket.gethostname()}"


def _require_health(restored: Restored) -> HealthReport:
    report = validate(read_embeddings(restored.run.embeddings), settings=(), trained_on=restored.graph)
    if report.status == "fail" and not harmless(_failed(report), run_verdict(restored.run.path).word):
        named = " ".join(verdict.meaning for verdict in report.verdicts if verdict.status == "fail")
        raise CheckFailedError(
            f"{restored.run.path} was not promoted, because its embeddings are not sound: {named} "
            "`graphmill validate RUN` shows the figures; --force promotes it anyway"
        )
    return report


def _facts(
    restored: Restored,
    exported: Mapping[str, Any],
    champion: Version | None,
    store: Versions,
    question: Question | None,
    failed_checks: Sequence[str],
    drift: float | None,
    person: bool,
    snapshot: str,
    poll: Callable[[], None],
) -> Facts:
    live = champion.about["snapshot"] if champion else ""
    again = [version for version in store.all() if _same(version, restored, exported if person else {})]
    common: dict[str, Any] = {
        "run": str(restored.run.path),
        "champion": champion.name if champion else "",
        "is_champion": champion is not None and any(v.name == champion.name for v in again),
        "rolled_back": _rolled_back(store, again),
        "failed_checks": failed_checks,
        "drift": drift,
        "snapshot": snapshot,
        "newer": live if snapshot and live and order(snapshot) < order(live) else "",
    }
    if champion is None or common["is_champion"] or common["newer"]:
        return Facts(**common)
    try:
        return Facts(**common, comparison=compare(restored, champion, question, poll=poll))
    except GraphmillError as error:
        return Facts(**common, problem=str(error))


def _same(version: Version, restored: Restored, exported: Mapping[str, Any]) -> bool:
    """Whether both have the same weights. For a user's promotion, the files must be the same, too, as the formats may
    differ."""
    about, files = version.about, version.about["files"]
    return (about["fingerprint"], about["epoch"]) == (restored.fingerprint, restored.epoch) and all(
        files.get(name) == expected for name, expected in exported.get("files", {}).items()
    )


def _rolled_back(store: Versions, again: Sequence[Version]) -> str:
    """When and by whom one of these versions was rolled back, if that was its last change."""
    names = {version.name for version in again}
    for entry in reversed(store.history()):
        if entry.after in names:
            return ""
        if entry.before in names:
            return f"{entry.when} by {entry.by}" if entry.kind == "rolled back" else ""
    return ""


def _by_hand(facts: Facts, why: str) -> Decision:
    if facts.is_champion:
        return Decision("kept", f"{facts.champion} is this run already")
    return Decision("promoted", why or (gain_sentence(facts.comparison) if facts.comparison else "by hand"))


def _with_verdict(reason: str, restored: Restored) -> str:
    verdict = run_verdict(restored.run.path)
    return reason if verdict.word == "unranked" else f"{reason}; the model is {verdict.short}"


def _outcome_of(
    decision: Decision, facts: Facts, champion: Version | None, restored: Restored, why: str
) -> dict[str, Any]:
    report = restored.run.read_json("report.json")
    metrics = {"candidate": report["metrics"], "champion": champion.about["metrics"] if champion else {}}
    return {
        "outcome": decision.outcome,
        "reason": decision.reason if why else _with_verdict(decision.reason, restored),
        "version": champion.name if champion else "",
        "path": str(champion.path) if champion else "",
        "champion": champion.name if champion else "",
        "comparison": facts.comparison or {},
        "problem": facts.problem,
        "test": {
            who: {n.removeprefix("test_"): v for n, v in values.items() if n.startswith("test_")}
            for who, values in metrics.items()
        },
        "removed": [],
    }
