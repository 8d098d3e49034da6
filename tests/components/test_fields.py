"""How the components read what stands in a ``defs.yaml``."""

import dagster as dg
import pytest

from graphmill.components.fields import resolved


def test_a_text_stays_text_and_a_template_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_TEST_FOLDER", "somewhere")
    context = dg.ResolutionContext.default()
    written = {
        "heads": ["0", "17", "1e-3", "[1]", "None", "", "a {b}"],
        "k": 3,
        "path": "{{ env.GRAPHMILL_TEST_FOLDER }}/x",
    }
    assert resolved(context, written) == {**written, "path": "somewhere/x"}
