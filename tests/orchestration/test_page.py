"""An asset's page: a summary first, numbers once, what changed since the run before, and pictures inline."""

import math
from pathlib import Path

import dagster as dg
import pytest

from graphmill.orchestration.checks import PreviousRun
from graphmill.orchestration.metadata import PAGE_BYTES, PICTURE_BYTES, Picture
from graphmill.orchestration.page import (
    INLINE_CHARACTERS,
    asset_page,
    change,
    in_words,
    links,
    sparkline,
)
from graphmill.serving.addresses import SERVICE_VARIABLE
from tests.orchestration.test_metadata import noise

KEY = dg.AssetKey(["toy", "graph"])


def materialized(instance: dg.DagsterInstance, metadata: dict[str, object]) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=metadata))


def page(instance: dg.DagsterInstance, plotted: dict[str, float], others: dict[str, float]) -> dict[str, object]:
    return asset_page("All is well.", plotted=plotted, others=others, previous=PreviousRun(instance, KEY))


def rows(table: object) -> list[dict[str, object]]:
    assert isinstance(table, dg.TableMetadataValue)
    return [dict(record.data) for record in table.records]


def test_the_summary_comes_first_and_every_number_stands_once() -> None:
    with dg.instance_for_test() as instance:
        output = page(instance, {"loss": 0.123456789, "seconds": 12}, {"edges": 1234567, "share": 0.5})
    assert list(output) == ["summary", "loss", "seconds", "figures"]
    assert (output["loss"], output["seconds"]) == (0.1235, 12)
    assert [row["figure"] for row in rows(output["figures"])] == ["edges", "share"]
    assert rows(output["figures"])[0]["now"] == "1,234,567"


def test_the_table_says_what_changed_since_the_run_before() -> None:
    with dg.instance_for_test() as instance:
        materialized(instance, page(instance, {"loss": 2.0}, {"edges": 1000, "share": 0.5}))
        again = rows(page(instance, {"loss": 1.0}, {"edges": 1100, "share": 0.5})["figures"])
        assert PreviousRun(instance, KEY).figure("loss") == 2.0
    assert [(row["previous"], row["change"]) for row in again] == [("1,000", "+10.0 %"), ("0.5", "same")]


def test_plotted_numbers_are_found() -> None:
    with dg.instance_for_test() as instance:
        materialized(instance, {"edges": 50})
        assert rows(page(instance, {}, {"edges": 100})["figures"])[0]["change"] == "+100.0 %"


@pytest.mark.parametrize(("now", "before", "said"), [(1, None, ""), (3, 0.0, "was 0"), (-1.0, -2.0, "+50.0 %")])
def test_a_change(now: float, before: float | None, said: str) -> None:
    assert change(now, before) == said


def test_a_summary_is_in_lines_that_are_not_cut() -> None:
    text = in_words("One two three four five six seven eight.\n\nLoss ▁▂▃ 2.5").md_str
    assert text == "One two three four five six  \nseven eight.\n\nLoss ▁▂▃ 2.5"
    text = in_words(
        "It goes live when somebody says `graphmill promote RUN`. Or `graphmill rollback a_dataset/a_model`."
    )
    assert text.md_str.split("  \n") == [
        "It goes live when somebody says",
        "`graphmill promote RUN`. Or",
        "graphmill rollback",
        "a_dataset/a_model.",
    ]


def test_a_long_summary_is_cut_to_what_is_shown_at_once() -> None:
    with dg.instance_for_test() as instance:
        text = asset_page("x" * 5000, plotted={}, previous=PreviousRun(instance, KEY))["summary"].md_str
    assert len(text) <= INLINE_CHARACTERS


def test_a_sparkline_ends_with_the_last_value() -> None:
    assert sparkline([3.0, 2.0, 1.0]) == "█▅▁"
    assert sparkline([3.0, math.nan, 1.0]) == "█·▁"
    assert len(sparkline(range(1000))) <= 24
    assert sparkline([*range(999), -5.0])[-1] == "▁"
    assert sparkline([1.0]) == ""


def test_links_follow_the_setting_of_the_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = "data/06_models/toy/hgt/run1"
    monkeypatch.delenv(SERVICE_VARIABLE, raising=False)
    assert links(KEY) == "[explorer](http://127.0.0.1:3001/#/toy/graph)"
    monkeypatch.setenv(SERVICE_VARIABLE, "https://kg.example.org")
    (tmp_path / run).mkdir(parents=True)
    assert "report.html" not in links(KEY, tmp_path, run)
    (tmp_path / run / "report.html").touch()
    text = links(KEY, tmp_path, run)
    assert f"(https://kg.example.org/reports/{run}/report.html)" in text
    assert run in text.partition("graphmill open")[2], "a command works where a stored link no longer answers"
    long = in_words("x " * 3000, text).md_str
    assert len(long) <= INLINE_CHARACTERS
    assert long.endswith(run)


def test_all_pictures_of_a_page_are_in_its_metadata_and_within_its_bound(tmp_path: Path) -> None:
    drawn = {str(n): Picture(noise(300), f"run/{n}.png", "PCA") for n in range(5)}
    with dg.instance_for_test() as instance:
        output = asset_page("Well.", previous=PreviousRun(instance, KEY), pictures=drawn, root=tmp_path)
    texts = [output[name].md_str for name in drawn]
    assert all(text.startswith("![PCA](data:image/png;base64,") and len(text) <= PICTURE_BYTES for text in texts)
    assert sum(map(len, texts)) <= PAGE_BYTES
    assert list(output)[1:] == list(drawn), "right below the summary"
    assert (tmp_path / "run" / "4.png").read_bytes() == drawn["4"].png
