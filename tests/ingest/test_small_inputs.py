"""Small inputs that other tools read wrongly without a word: each is read as what it says, refused, or said to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from graphmill import read_edges, read_interactions
from graphmill.cli import app
from graphmill.errors import GraphmillError

EDGES = "".join(f"a{n},r,b{n % 4}\n" for n in range(12))
PAIRS = [(f"u{user}", f"i{item}", (user + item) % 2 == 0) for user in range(6) for item in range(6)]


def written(folder: Path, text: str, name: str = "x.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


# -- likes -----------------------------------------------------------------------------------------------------------

SAID: dict[str, tuple[str, Any, Any]] = {
    "words": ("feedback", "like", "dislike"), "numbers": ("feedback", 1, -1), "zero": ("label", 1, 0),
    "signs": ("reaction", "+", "-"), "good and bad": ("opinion", "good", "bad"), "typographic minus": ("rating", "4", "−1"),
    "an event": ("event", "view", "dislike"), "thumbs": ("action", "thumbs up", "Thumbs down"),
    "a name for dislikes": ("disliked", 0, 1), "clicks": ("clicked", True, False), "votes": ("vote", "up", "down"),
}  # fmt: skip
FORMS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "frame": lambda frame, folder: frame,
    "csv": lambda frame, folder: (frame.to_csv(folder / "x.csv", index=False), folder / "x.csv")[1],
    "parquet": lambda frame, folder: (frame.to_parquet(folder / "x.parquet"), folder / "x.parquet")[1],
    "jsonl": lambda frame, folder: (
        frame.to_json(folder / "x.jsonl", orient="records", lines=True),
        folder / "x.jsonl",
    )[1],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAID)
def test_dislikes_are_no_likes_however_they_are_said(tmp_path: Path, name: str, form: str) -> None:
    column, like, dislike = SAID[name]
    frame = pd.DataFrame(
        [(user, item, like if likes else dislike) for user, item, likes in PAIRS], columns=["user", "item", column]
    )
    result = read_interactions(FORMS[form](frame, tmp_path))
    relations = result.edges["relation"].cast("string").to_pylist()
    assert (relations.count("interacted"), relations.count("disliked"), result.counts["below_min_weight"]) == (
        18,
        18,
        18,
    )
    assert any("18 of 36 interactions were left out" in note and column in note for note in result.notes)


def test_words_that_are_no_judgement_are_no_weights(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        [(user, item, "buy" if yes else "view") for user, item, yes in PAIRS], columns=["user", "item", "event"]
    )
    assert read_interactions(frame).edges.num_rows == 36
    frame = frame.assign(event="dislike")
    assert read_interactions(frame, columns={"weight": "none"}).edges.num_rows == 36


# -- ids -------------------------------------------------------------------------------------------------------------


def test_float32_ids_from_two_to_the_24_on_are_refused(tmp_path: Path) -> None:
    """16,777,217 has been rounded to 16,777,216 before it came here: users would merge."""
    frame = pd.DataFrame({"user": np.array([16_777_217, 16_777_216, 5], np.float32), "item": list("abc")})
    frame.to_parquet(tmp_path / "x.parquet")
    for source in (frame, tmp_path / "x.parquet"):
        result = read_interactions(source)
        assert "2^24" in result.rejects["reason"].to_pylist()[0]
        assert (result.edges.num_rows, result.rejects.num_rows) == (1, 2)


def test_a_point_alone_makes_no_other_id(tmp_path: Path) -> None:
    path = written(tmp_path, "user,item\n" + "".join(f"{n}.,i{n % 3}\n" for n in range(6)))
    assert read_interactions(path).nodes["id"].to_pylist()[:6] == [str(n) for n in range(6)]


def test_ids_that_look_alike_or_like_nothing_are_said(tmp_path: Path) -> None:
    result = read_edges(written(tmp_path, "head,relation,tail\na,r,7\nb,r,007\nc,r,NaN\nd,r,None\n"))
    assert (result.counts["lookalike_ids"], result.counts["ids_of_no_value"]) == (1, 2)
    assert any("NaN, None, null" in note for note in result.notes)


DATES = ("2024-01-{:02d}", "2024/01/{:02d}", "{:02d}.01.2024", "01/{:02d}/2024", "202401{:02d}", "Jan {:d}, 2024",
         "{:d} January 2024", "2024-W{:02d}", "2024-01-{:02d}T10:00:00Z", "1/{:d}/24 3:05 PM", "10:{:02d}")  # fmt: skip


@pytest.mark.parametrize("date", DATES)
def test_dates_become_ids_only_with_a_word(tmp_path: Path, date: str) -> None:
    frame = pd.DataFrame([(f"a{n}", "on", date.format(n + 1)) for n in range(9)], columns=["head", "relation", "tail"])
    for form in FORMS.values():
        notes = " ".join(read_edges(form(frame, tmp_path)).notes)
        assert f"column tail holds dates or times ({date.format(1)})" in notes


def test_numbers_that_cannot_be_dates_are_ids_without_a_word(tmp_path: Path) -> None:
    path = written(tmp_path, "head,relation,tail\n" + "".join(f"a{n},on,{20249900 + n}\n" for n in range(9)))
    assert "dates" not in " ".join(read_edges(path).notes)


# -- comments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["#", "!", "%", "//", "--", "##", " #", "#!"])
def test_comments_as_wide_as_the_table_are_no_rows_and_no_header(tmp_path: Path, mark: str) -> None:
    path = written(tmp_path, f"{mark} made by x, v1, 2024\nhead,relation,tail\n{EDGES}")
    result = read_edges(path)
    assert result.edges.num_rows == 12
    assert not {"head", "tail", "made by x"} & set(result.nodes["id"].to_pylist())
    assert "1 comment lines were skipped" in result.notes


def test_a_header_of_unknown_names_after_a_comment_is_a_header(tmp_path: Path) -> None:
    rows = "".join(f"P{n:03d},P{(7 * n + 1) % 40:03d},{150 + n}\n" for n in range(40))
    result = read_edges(written(tmp_path, f"# STRING, v12, 2024\nprotein1,protein2,combined_score\n{rows}"))
    assert (result.edges.num_rows, result.nodes.num_rows) == (40, 40)


def test_a_comment_that_is_the_header_still_is(tmp_path: Path) -> None:
    result = read_edges(written(tmp_path, f"# head,relation,tail\n{EDGES}"))
    assert result.edges.num_rows == 12


def test_a_comment_in_the_middle_is_no_row_and_a_hashtag_is(tmp_path: Path) -> None:
    path = written(tmp_path, f"head,relation,tail\n{EDGES}# end, of, part\n#tag,r,b1\n")
    result = read_edges(path)
    assert result.edges.num_rows == 13
    assert "#tag" in result.nodes["id"].to_pylist()


def test_comments_of_triples_and_of_konect(tmp_path: Path) -> None:
    result = read_edges(written(tmp_path, "% made by\na\tr\tb\nc\tr\tb\n", "train.txt"), "triples")
    assert (result.edges.num_rows, result.rejects.num_rows) == (2, 0)
    result = read_edges(written(tmp_path, "% bip unweighted\n% 4 3 3\n1 2\n2 3\n3 1\n1 3\n", "out.konect"))
    assert (result.edges.num_rows, result.nodes.num_rows) == (4, 3)


# -- spellings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [("side effect", "side_effect"), ("side-effect", "side_effect"), ("café", "cafe\u0301"), ("treats", "treats\u00a0"),
     ("treats", "treats\u200b"), ("Treats", "treats")],
)  # fmt: skip
@pytest.mark.parametrize("format", ["kg_csv", "triples"])
def test_two_writings_of_a_relation_are_said(tmp_path: Path, format: str, one: str, other: str) -> None:
    mark, head = ("\t", "") if format == "triples" else (",", "head,relation,tail\n")
    text = head + "".join(mark.join(row) + "\n" for row in (("a", one, "b"), ("c", other, "d")))
    notes = read_edges(written(tmp_path, text, "train.txt"), format).notes
    said = any(
        f"{min(one, other)!r} and {max(one, other)!r} differ only by case, blanks or marks" in note for note in notes
    )
    # The format triples takes white space off, and says so.
    assert said or any("white space around them" in note for note in notes)


def test_numbers_with_a_mark_between_them_are_two_names(tmp_path: Path) -> None:
    notes = read_edges(written(tmp_path, "head,relation,tail\na,r1-1,b\nc,r11,d\n")).notes
    assert "differ only" not in " ".join(notes)


def test_a_relation_that_negates_another_one_is_said(tmp_path: Path) -> None:
    notes = read_edges(written(tmp_path, "head,relation,tail\na,treats,b\nc,does_not_treats,d\ne,not treats,f\n")).notes
    assert any("'does_not_treats' is 'treats' negated" in note for note in notes)
    assert any("'not treats' is 'treats' negated" in note for note in notes)


def test_a_line_break_in_a_file_name_breaks_no_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, "head,relation,tail\na,r,b\nc\n", "a\nb.csv")
    for name in (path, tmp_path / "none\n.csv"):
        process = CliRunner().invoke(app, ["build", str(name), "-o", str(tmp_path / "graph")])
        assert isinstance(process.exception, GraphmillError)
        sentence = str(process.exception).partition(" look at it with: ")[0]  # a command is pasted as it is
        assert "\\n" in sentence
        assert "\n" not in sentence


# -- values in messages ----------------------------------------------------------------------------------------------

HUGE = "x" * 5_000
WHOLE: dict[str, Callable[[Path], Any]] = {
    "a weight": lambda folder: read_interactions(
        written(folder, "user,item,rating\n" + "".join(f"u{n},i,{HUGE}\n" for n in range(3))),
        "interactions_csv",
    ),
    "a time": lambda folder: read_interactions(written(folder, f"u\ti\t5\t{HUGE}\n", "x.tsv"), "sequence"),
    "a column": lambda folder: read_edges(written(folder, EDGES), "kg_csv", columns={"head_id": HUGE}),
    "a setting": lambda folder: read_edges(written(folder, EDGES), "triples", keep_negated=HUGE),
    "a format": lambda folder: read_edges(written(folder, EDGES), HUGE),
    "a name in a frame": lambda folder: read_interactions(pd.DataFrame({HUGE: ["a"], "b": ["c"]})),
}


@pytest.mark.parametrize("what", WHOLE)
def test_a_value_that_is_refused_is_never_said_whole(tmp_path: Path, what: str) -> None:
    with pytest.raises(GraphmillError) as refused:
        WHOLE[what](tmp_path)
    assert HUGE[:200] not in str(refused.value)
    assert len(str(refused.value)) < 1_500
