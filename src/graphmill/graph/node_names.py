"""Finds nodes by id or name as people type them: exactly; else in another Unicode form or with other blanks; else in
another case; else without accents."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import cached_property

_MOST_COMPARED = 20_000


def composed(text: str) -> str:
    """The text in composed Unicode, with single blanks for any white space, and none around it."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def folded(text: str) -> str:
    """:func:`composed`, without case."""
    return composed(unicodedata.normalize("NFKC", text).casefold())


def unaccented(text: str) -> str:
    """:func:`folded`, without accents."""
    parts = unicodedata.normalize("NFKD", folded(text))
    return composed("".join(c for c in parts if not unicodedata.combining(c)))


_FORMS: tuple[Callable[[str], str], ...] = (str, composed, folded, unaccented)
"""From the exact text to the least exact one."""


def matching(text: str, words: Sequence[str]) -> list[str]:
    """The ``words`` that are ``text``, in the first form of text in which there are any."""
    for form in _FORMS:
        if matches := [word for word in words if form(word) == form(text)]:
            return matches
    return []


def close_words(text: str, words: Sequence[str], count: int = 3) -> list[str]:
    """The words that look most like ``text``, at most ``count``."""
    wanted = unaccented(text)
    near = {key: word for word in words if (key := unaccented(word))[:1] == wanted[:1]}
    alike = [key for key in near if abs(len(key) - len(wanted)) <= 2 + len(wanted) // 3][:_MOST_COMPARED]
    return [near[key] for key in get_close_matches(wanted, alike, count, 0.6)]


def did_you_mean(text: str, words: Sequence[str]) -> str:
    """A sentence part with the words that look most like ``text``; empty if none does."""
    near = close_words(text, words)
    return f"; did you mean {', '.join(map(repr, near))}?" if near else ""


class NodeNames:
    """An index of nodes. ``ids`` and ``names``: text [N], in the order of the rows; a node without a name has its id."""

    def __init__(self, ids: Sequence[str], names: Sequence[str]) -> None:
        self.ids, self.names = [str(each) for each in ids], [str(each) for each in names]
        self._places: dict[tuple[int, bool], dict[str, list[int]]] = {}

    def find(self, text: str, wanted: Callable[[int], bool] = lambda row: True) -> list[int]:
        """The rows with this id, else with this name, else with either in another form, of those that are ``wanted``."""
        for form in range(len(_FORMS)):
            for named in (False, True):
                places = self._by(form, named)
                if rows := [row for row in places.get(_FORMS[form](text), []) if wanted(row)]:
                    return rows
        return []

    def did_you_mean(self, text: str) -> str:
        """A sentence part with the names and ids that look most like ``text``; empty if none does."""
        return did_you_mean(text, self._words)

    @cached_property
    def _words(self) -> list[str]:
        return list(dict.fromkeys([*self.names, *self.ids]))

    def _by(self, form: int, named: bool) -> dict[str, list[int]]:
        if (form, named) not in self._places:
            places: dict[str, list[int]] = {}
            for row, word in enumerate(self.names if named else self.ids):
                places.setdefault(_FORMS[form](word), []).append(row)
            self._places[form, named] = places
        return self._places[form, named]
