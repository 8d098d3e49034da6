"""The question that a ranking, a table of links and a promotion answer. Importing it does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from graphmill.errors import InputError
from graphmill.settings import Settings, parse, read_yaml, setting


class LinkSelection(Settings):
    """The links that are meant: relations, heads, and the tails among which one is sought."""

    relations: list[str] = setting(
        [], "Relations by name (or source|name|target if several have that name); empty: all of the graph"
    )
    heads: list[str] = setting([], "Heads by id or name; empty: all nodes at which the relations can begin")
    heads_file: str = setting(
        "",
        "A text file with one head per line, instead of `heads`; empty lines and lines that begin with # are skipped",
    )
    head_type: str = setting("", "Node type of the heads; needed if nodes of several types have the same id or name")
    candidates: list[str] = setting([], "Tails to choose from, by id or name; empty: all nodes of the target type")
    candidates_file: str = setting("", "A text file with one candidate per line, instead of `candidates`")


class Question(LinkSelection):
    """A question in a file of its own, for `graphmill rank`, `graphmill links` and `promote.question`."""

    split: Literal["valid", "test"] = setting("valid", "Held-out links that are ranked; a promotion needs valid")
    metric: str = setting("mrr", "The figure that counts: mrr or hits@k, as a mean over relations")


def read_question(path: str | Path) -> Question:
    """The question of a YAML file. Paths in it are relative to its folder, and become absolute.

    Raises:
        InputError: the file cannot be read, is no mapping, or its metric is not measured. SettingsError: an unknown or
            wrong value.
    """
    from graphmill.evaluation.ranking.per_query import parse_metric

    path = Path(path)
    values = read_yaml(_text(path, f"the question {path}"), f"the question {path}")
    if not isinstance(values, dict) or not values:
        raise InputError(f"the question {path} says nothing: write relations, heads, candidates, split or metric")
    question = parse(Question, values, str(path))
    parse_metric(question.metric)
    files = {name: getattr(question, name) for name in ("heads_file", "candidates_file") if getattr(question, name)}
    return question.model_copy(update={name: str((path.parent / file).resolve()) for name, file in files.items()})


def words_of(settings: LinkSelection, name: Literal["heads", "candidates"]) -> list[str]:
    """The heads or candidates that the settings or their file name; empty for all.

    Raises:
        InputError: both are given, or the file cannot be read or names none.
    """
    given: list[str] = getattr(settings, name)
    file: str = getattr(settings, f"{name}_file")
    if not file:
        return list(given)
    path = Path(file)
    if given:
        raise InputError(f"{name} and {name}_file ({path}) are both given; give one of them")
    lines = _text(path, f"{name}_file {path}").split("\n")
    words = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not words:
        raise InputError(f"{name}_file {path} names no {name[:-1]}; write an id or a name a line")
    return words


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise InputError(f"{what} cannot be read: {why}") from None
