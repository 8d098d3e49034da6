"""The verdict on a model: one word for the whole, and a sentence with the reasons, from a run's or version's reports.

Asset pages, the model's check, card, report, explorer and promotions all show this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from graphmill.errors import InputError
from graphmill.evaluation.health.checks import COMPONENTS_90, EFFECTIVE_RANK, TYPE_RANK
from graphmill.evaluation.markdown import number
from graphmill.evaluation.ranking.comparison import SIMPLER, title
from graphmill.export.manifests import export_folder
from graphmill.reports.card_files import CardFiles, read_card_files
from graphmill.systems.base import ClosedFormSettings
from graphmill.systems.registry import SYSTEMS, settings_model
from graphmill.verified_files import MANIFEST, read_json_file

Word = Literal["better", "level", "worse", "broken", "unranked"]
LEVEL_WITHOUT_INTERVAL = 0.02
"""Largest relative difference that counts as level where no interval was measured."""
_NEXT = {
    "better": "Promote it if its links or items look right to you.",
    "level": "Use the simpler one{command}, or train longer.",
    "worse": "Use the simpler one{command}, or search the settings.",
    "unranked": "Rank it: `graphmill rank RUN`.",
}
_NEXT_UNTRAINED = _NEXT | {"level": "Use either.", "worse": "Use the better one{command}."}
"""Of a system that one step computes, so that it cannot train longer."""


@dataclass(frozen=True)
class ModelVerdict:
    """``word``: better, level or worse than the best simple way; broken: its vectors are not sound, and not
    :func:`harmless`; unranked: not compared yet. ``short``: the comparison in a few words. ``sentence``: all reasons, with
    what to do."""

    word: Word
    short: str
    sentence: str

    @property
    def passed(self) -> bool:
        """Whether nobody has to look: the model is better, or has not been compared yet."""
        return self.word in ("better", "unranked")

    @property
    def text(self) -> str:
        """Word and sentence, as Markdown."""
        return f"**{self.word.capitalize()}.** {self.sentence}"

    def to_dict(self) -> dict[str, str]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class _Compared:
    word: Word
    short: str
    detail: str
    rival: str = ""


def model_verdict(
    ranking: Mapping[str, Any],
    health: Mapping[str, Any],
    drift: Mapping[str, Any],
    *,
    vectors: bool = True,
    system: str = "",
) -> ModelVerdict:
    """The verdict from the contents of ``ranking.json``, ``health.json`` and ``drift.json`` ({}: not there).

    ``vectors``: the system has some, so that their health belongs to the verdict. ``system``: its name, since a closed form
    cannot train longer. A model with an interval is better if the whole interval of its ratio to the best baseline is above
    1, and worse if it is below 1.
    """
    compared = _compared(ranking)
    bad = [each for each in health.get("verdicts", ()) if each["status"] == "fail"]
    bad = [] if harmless([each["name"] for each in bad], compared.word) else bad
    word: Word = "broken" if bad else compared.word
    parts = [compared.detail, _health(health) if vectors else ""]
    if drift.get("against"):
        parts.append(f"Against {drift['against']}: {drift['findings'][0]['meaning']}" if drift.get("findings") else "")
    remedies = [each["remedy"] for each in bad if each.get("remedy")]
    command = f" (`graphmill train {compared.rival}`)" if compared.rival in SYSTEMS else ""
    untrained = system in SYSTEMS and issubclass(settings_model(system), ClosedFormSettings)
    following = (_NEXT_UNTRAINED if untrained else _NEXT).get(word, "").format(command=command)
    parts.append((remedies[0] if remedies else "Do not use it; validate it again.") if bad else following)
    short = f"broken ({bad[0]['name']})" if bad else compared.short
    return ModelVerdict(word, short, " ".join(part for part in parts if part))


def harmless(failed: Sequence[str], word: Word) -> bool:
    """Whether the health checks that ``failed`` only say that vectors use few of their dimensions, though the model is
    better than the best simple way: data with few clusters need no more."""
    return word == "better" and set(failed) <= {COMPONENTS_90.name, EFFECTIVE_RANK.name, TYPE_RANK.name}


def run_verdict(folder: str | Path) -> ModelVerdict:
    """:func:`model_verdict` of a run directory or a version's folder. Reports of another epoch or export do not count.

    Raises:
        InputError: a file is damaged.
    """
    root = Path(folder)
    if not (export_folder(root) / MANIFEST).is_file():  # nothing exported
        ranking = root / "ranking.json"
        return model_verdict(read_json_file(ranking, "") if ranking.is_file() else {}, {}, {})
    return card_verdict(read_card_files(root))


def card_verdict(files: CardFiles) -> ModelVerdict:
    """:func:`model_verdict` of a card's files."""
    ranking = files.ranking if files.ranking.get("epoch") == files.export.get("epoch") else {}
    health = files.health if files.health_is_of_export else {}
    system = str(files.settings.get("system", ""))
    try:
        return model_verdict(ranking, health, files.drift, vectors=files.vectors, system=system)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(
            f"{files.folder}: ranking.json, health.json or drift.json has other fields than it should; rank and validate "
            "the run again"
        ) from None


def comparison_sentence(against: Mapping[str, Any]) -> str:
    """The figures of a link ranking and of its best baseline, with the interval: ``against`` of a ``ranking.json``."""
    return _of_links(against).detail


def _compared(ranking: Mapping[str, Any]) -> _Compared:
    against = ranking.get("comparison", ranking).get("against")
    if not against:
        return _Compared("unranked", "not compared with simple ways", "It has not been compared with simple ways yet.")
    if "metric" not in against:
        return _of_links(against)
    best, figures = against["best"], against["figures"]
    return _comparison(best, SIMPLER[best], against["metric"], figures, against)


def _of_links(against: Mapping[str, Any]) -> _Compared:
    best = against["best"]
    interval = {**against["ratios"][best], "queries": against["queries"]}
    return _comparison(best, title(best), f"{against['average']} MRR", against["mrr"], interval)


def _comparison(
    rival: str, called: str, metric: str, figures: Mapping[str, float], interval: Mapping[str, Any]
) -> _Compared:
    """``figures``: of the model and the rival. ``interval``: of their ratio, from ``low`` to ``high`` (None: not measured),
    and the number of ``queries``."""
    ours, theirs, low, high = figures["model"], figures[rival], interval["low"], interval["high"]
    ratio = ours / theirs if theirs > 0 else math.inf if ours > 0 else 1.0
    rest = f"{interval['queries']:,} queries"
    if low is None or high is None or math.isnan(low):
        level = abs(ratio - 1) <= LEVEL_WITHOUT_INTERVAL
        word: Word = "level" if level else "better" if ratio > 1 else "worse"
        rest += ", no interval was measured" if theirs > 0 else ""
    else:
        word = "better" if low > 1 else "worse" if high < 1 else "level"
        rest = f"95 % interval {_share(low)} to {_share(high)}, {rest}"
    by = f" ({_share(ratio)})" if math.isfinite(ratio) else ""
    preposition = "with" if word == "level" else "than"
    detail = f"Its {metric} is {number(float(ours))}, against {number(float(theirs))} of {called}, the best simple way"
    detail += f": {_share(ratio)}" if by else ""
    return _Compared(word, f"{word} {preposition} {called} by {metric}{by}", f"{detail} ({rest}).", rival)


def _share(ratio: float) -> str:
    return f"{round(100 * (ratio - 1)) + 0:+d} %"


def _health(health: Mapping[str, Any]) -> str:
    if not health:
        return ""
    judged = health.get("verdicts", ())
    outside = [each for each in judged if each["status"] != "pass"]
    if not outside:
        return "Its vectors are healthy."
    outside.sort(key=lambda each: each["status"] != "fail")
    names = ", ".join(str(each["name"]).replace("_", " ") for each in outside[:3])
    count = f"{len(outside)} of {len(judged)} health figures {'is' if len(outside) == 1 else 'are'} out of bounds ({names})."
    return f"{count} {outside[0].get('meaning') or ''}".strip()
