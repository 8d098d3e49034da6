"""Results say whether they hold, and no figure is committed that says otherwise than its numbers do."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.report import report

from benchmarks import card


class TestRow:
    def test_has_the_ratio_to_the_rival_and_says_whether_it_holds(self) -> None:
        assert card.row("w", "time", "s", 3.0, rival="r", theirs=2.0, target="ratio <= 1.5").holds is True
        found = card.row("w", "time", "s", 3.1, rival="r", theirs=2.0, target="ratio <= 1.5")
        assert (found.ratio, found.holds) == (1.55, False)

    def test_a_target_may_be_about_ours_alone_or_missing(self) -> None:
        assert card.row("w", "AUC", "", 0.9, target="ours >= 0.85").holds is True
        assert card.row("w", "AUC", "", 0.9).holds is None

    @pytest.mark.parametrize("target", ["fast", "ratio <= 3 x", "ratio <= 3"])
    def test_a_target_that_cannot_be_judged_is_refused(self, target: str) -> None:
        with pytest.raises(ValueError, match="target"):
            card.row("w", "time", "s", 1.0, target=target)


class TestResults:
    def test_are_written_with_commit_machine_and_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(card, "RESULTS", tmp_path)
        path = card.write("some", [card.row("w", "time", "s", 2.0, rival="r", theirs=1.0, target="ratio <= 1")], "cmd")
        content = json.loads(path.read_text())
        assert list(content) == ["benchmark", "commit", "created", "machine", "command", "rows"]
        assert content["rows"][0] == {
            "workload": "w", "metric": "time", "unit": "s", "ours": 2.0, "rival": "r", "theirs": 1.0,
            "ratio": 2.0, "target": "ratio <= 1", "holds": False, "note": "",
        }  # fmt: skip
        assert content["machine"]["cores"] >= 1

    def test_the_report_lists_what_does_not_hold(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(card, "RESULTS", tmp_path)
        good, bad = (card.row("w", m, "s", 2.0, target=f"ours <= {b}") for m, b in (("good", 3), ("bad", 1)))
        card.write("some", [good, bad, card.row("w", "free", "s", 2.0)], "cmd")
        assert report(tmp_path).splitlines() == [
            "some.json: w, bad: 2 s; target ours <= 1.",
            "1 of 2 targets hold",
        ]

    def test_committed_ones_agree_with_their_numbers(self, repository: Path) -> None:
        for path in (repository / "benchmarks/results").glob("*.json"):
            content = json.loads(path.read_text())
            assert content["benchmark"] == path.stem
            for row in content["rows"]:
                assert asdict(card.Row(**row)) == row
                assert card.holds(row["target"], row["ours"], row["ratio"]) is row["holds"], (path.name, row["metric"])


def test_a_fresh_process_reports_its_own_peak_memory() -> None:
    ballast = bytearray(200 << 20)
    found = card.fresh("benchmarks.ingest", ["--one", "pyarrow", "--file", "data/01_raw/kg.csv"])
    assert found["rows"] == 12_000
    assert found["peak_gib"] < card.peak_rss()
    assert len(ballast) == 200 << 20
