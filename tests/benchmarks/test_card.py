"""Results say whether they hold, and no figure is committed that says otherwise than its numbers do."""

import json
import os
import subprocess
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from benchmarks.parts import card
from benchmarks.parts.report import report


class TestRow:
    def test_has_the_ratio_to_the_rival_and_says_whether_it_holds(self) -> None:
        assert card.row("w", "time", "s", 3.0, rival="r", theirs=2.0, target="ratio <= 1.5").holds is True
        result = card.row("w", "time", "s", 3.1, rival="r", theirs=2.0, target="ratio <= 1.5")
        assert (result.ratio, result.holds) == (1.55, False)

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
            "processor": content["machine"]["processor"], "commit": content["commit"], "created": content["created"],
        }  # fmt: skip
        assert content["machine"]["cores"] >= 1

    def test_the_report_is_a_table_and_what_does_not_hold(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(card, "RESULTS", tmp_path)
        good, bad = (card.row("w", m, "s", 2.0, target=f"ours <= {b}") for m, b in (("good", 3), ("bad", 1)))
        rows = [
            replace(r, processor="P", created=datetime.now(UTC).isoformat())
            for r in (good, bad, card.row("w", "free", "s", 2.0))
        ]
        card.write("some", rows, "cmd")
        today = json.loads((tmp_path / "some.json").read_text())["created"][:10]
        assert report(tmp_path).splitlines() == [
            "benchmark  rows  targets  hold  newest      processor",
            f"some       3     2        1     {today}  P",
            "",
            "some: w, bad: 2 s; target ours <= 1",
            "1 of 2 targets hold",
        ]

    def test_a_file_has_one_line_of_what_it_misses(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(card, "RESULTS", tmp_path)
        names = ("long " * 40, "second")
        card.write("some", [card.row(name, "step", "s", 2.0, target="ours <= 1") for name in names], "cmd")
        line = report(tmp_path).splitlines()[3]
        assert line.startswith("some: long long")
        assert line.endswith("…: 2 s; target ours <= 1; 1 more")

    def test_a_new_row_takes_the_place_of_the_same_processors_old_one_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(card, "RESULTS", tmp_path)
        old = card.row("w", "time", "s", 3.0)
        path = card.write("some", [replace(old, processor="another"), old, card.row("w", "size", "GB", 1.0)], "cmd")
        card.store("some", card.row("w", "time", "s", 2.0), "cmd")
        rows = json.loads(path.read_text())["rows"]
        assert [(r["metric"], r["ours"]) for r in rows] == [("time", 3.0), ("size", 1.0), ("time", 2.0)]

    def test_committed_ones_agree_with_their_numbers(self, repository: Path) -> None:
        output = report(repository / "benchmarks/results")
        assert "targets hold" in output
        assert len(output.splitlines()) <= 40, "one screen"
        assert max(map(len, output.splitlines())) <= 120, "one screen"
        for path in (repository / "benchmarks/results").glob("*.json"):
            content = json.loads(path.read_text())
            if path.stem == "health_calibration":  # thresholds, not rows
                assert all(bound["default_holds"] for bound in content["thresholds"].values())
                continue
            assert content["benchmark"] == path.stem
            for row in content["rows"]:
                assert asdict(card.Row(**row)) == {"commit": "", "created": "", **row}  # older rows have neither
                assert card.holds(row["target"], row["ours"], row["ratio"]) is row["holds"], (path.name, row["metric"])


MAIN = ["link_quality", "links", "recommenders", "sequence_quality", "conve", "hgt", "health"]


def test_make_bench_runs_the_main_benchmarks_and_goes_on_after_one_that_fails(repository: Path, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "ran $@"\ntest "$2" != benchmarks.hgt\n')
    python.chmod(0o755)
    # Nothing is set up: the interpreter is the script above.
    command = ["make", "--old-file=setup", "--old-file=.venv/.installed", "bench", f"BIN={python.parent}"]
    process = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    ran = [line.removeprefix("ran ") for line in process.stdout.splitlines() if line.startswith("ran ")]
    assert ran == [f"-m benchmarks.{name} --json" for name in MAIN]
    assert process.returncode != 0
    assert "failed: hgt" in process.stderr


@pytest.mark.parametrize("name", MAIN)
def test_every_main_benchmark_is_a_program_that_writes_its_results(name: str, repository: Path) -> None:
    text = (repository / "benchmarks" / f"{name}.py").read_text()
    assert '"--json"' in text
    assert 'if __name__ == "__main__":' in text


def test_a_fresh_process_reports_its_own_peak_memory(tmp_path: Path) -> None:
    ballast = bytearray(200 << 20)
    lines = ("import json", "from benchmarks.parts.card import peak_rss", "print(json.dumps({'peak_gib': peak_rss()}))")
    (tmp_path / "asked.py").write_text("\n".join(lines))
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    result = card.fresh("asked", [], {"PYTHONPATH": paths})
    assert result["peak_gib"] < card.peak_rss()
    assert len(ballast) == 200 << 20
