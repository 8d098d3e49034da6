"""Tables and texts of cards: a name is text, whatever it holds."""

import pytest

from graphmill.evaluation.markdown import escaped, table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("[here](javascript:x)", "\\[here](javascript:x)"),
        ("`a<b>` & c", "`a<b>` &amp; c"),
        ("`a` <b> ` <i>", "`a` &lt;b&gt; ` &lt;i&gt;"),
        ("gene_a *", "gene_a *"),
    ],
)
def test_names_are_text_and_code_stays(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_a_cell_is_one_line_whatever_ends_lines() -> None:
    lines = table(["name"], [["a|b\nc\u2028<d>"]]).split("\n")
    assert lines == ["| name |", "| --- |", "| a\\|b c &lt;d&gt; |"]
