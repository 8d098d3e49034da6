"""The report judges each figure, says what is wrong, and what to do."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError
from graphmill.evaluation.health.check import bounds_sentence
from graphmill.evaluation.health.checks import HealthThresholds, components_90_needed
from graphmill.evaluation.health.report import HealthReport, health_report
from tests.evaluation.health import synthetic as cases
from tests.evaluation.health.synthetic import Size

SIZE = Size(rows=600, dimensions=64, types=3)
NAMES = ("drug", "disease", "gene")


def report_of(case: cases.Case, **changes: object) -> HealthReport:
    return health_report(case.X, case.types, NAMES, **changes)  # type: ignore[arg-type]


def failing(report: HealthReport) -> set[str]:
    return {verdict.name for verdict in report.verdicts if verdict.status == "fail"}


def healthy() -> cases.Case:
    return cases.decaying_clustered(np.random.default_rng(0), SIZE)


@given(st.integers(0, 10**6), st.sampled_from(sorted({**cases.FAILING, **cases.HEALTHY})))
@settings(max_examples=40, deadline=None)
def test_a_report_says_what_to_do_exactly_when_a_verdict_does_not_pass(seed: int, name: str) -> None:
    draw = {**cases.FAILING, **cases.HEALTHY}[name]
    report = report_of(draw(np.random.default_rng(seed), SIZE))
    assert bool(failing(report)) == (report.status == "fail") == (name in cases.FAILING and name != "shuffled_ids")
    for verdict in report.verdicts:
        assert bool(verdict.remedy) == (verdict.status != "pass"), verdict
    json.dumps(report.to_dict(), allow_nan=False)


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_odd_embeddings_are_judged_without_an_error(seed: int) -> None:
    """Tiny, constant, one-dimensional, nearly all broken: there is always a report."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 12)), int(rng.integers(1, 6))
    X = rng.choice([0.0, 1.0, -1.0, np.nan, 1e30, 1e-30], size=(n, d), p=[0.3, 0.3, 0.2, 0.1, 0.05, 0.05])
    report = health_report(X.astype(np.float32), rng.integers(0, 3, n), NAMES)
    json.dumps(report.to_dict(), allow_nan=False)


def test_the_table_of_failures_that_the_usual_two_figures_miss() -> None:
    """A 20-dimensional subspace passes mean cosine and 15 components; a near-constant embedding passes components."""
    rng = np.random.default_rng(0)
    n, d = 2000, 512
    types = rng.integers(0, 3, n)
    q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    subspace = (rng.standard_normal((n, 20)) @ q[:20]).astype(np.float32)
    report = health_report(subspace, types, NAMES)
    assert report.figures.mean_cosine == pytest.approx(0, abs=0.01)
    assert report.figures.components_90 == 18
    assert report.figures.effective_rank == pytest.approx(20, abs=0.2)
    assert failing(report) >= {"effective_rank_share"}
    offset = (rng.standard_normal((n, 96)) + 6).astype(np.float32)
    report = health_report(offset, types, NAMES)
    assert report.figures.mean_cosine > 0.95, "a full cloud, but for its mean"
    assert failing(report) == {"mean_cosine", "type_cosine"}
    constant = (rng.standard_normal(d) + 0.008 * rng.standard_normal((n, d))).astype(np.float32)
    report = health_report(constant, types, NAMES)
    assert report.figures.mean_cosine == pytest.approx(1, abs=0.001)
    assert report.figures.components_90 > 350
    assert failing(report) == {"mean_cosine", "type_cosine"}


def test_the_meaning_says_which_type_collapsed() -> None:
    case = healthy()
    case.X[case.types == 2] = np.float32(1) + 0.01 * case.X[case.types == 2]
    report = report_of(case)
    assert "'gene'" in report.verdict("type_cosine").meaning
    assert "drug" not in report.verdict("type_cosine").meaning


def test_dead_and_broken_rows_are_told_by_type() -> None:
    case = healthy()
    rows = np.flatnonzero(case.types == 1)
    case.X[rows[:4]] = 0
    report = report_of(case)
    assert (failing(report), report.verdict("dead_rows").value) == ({"dead_rows"}, 4)
    case.X[rows[4:6], 0] = np.inf
    report = report_of(case)
    assert failing(report) == {"non_finite_rows", "dead_rows"}
    assert report.verdict("non_finite_rows").value == 2
    assert [each["rows"] - each["live"] for each in report.to_dict()["types"]] == [0, 6, 0]


def test_allowed_dead_rows_leave_the_rest_to_be_judged() -> None:
    case = healthy()
    case.X[:4] = 0
    report = report_of(case, thresholds=HealthThresholds(dead_rows_max=4))
    assert (failing(report), report.figures.live) == (set(), 596)


def test_a_few_duplicated_rows_are_a_warning() -> None:
    case = healthy()
    case.X[1] = case.X[0]
    report = report_of(case)
    assert not failing(report)
    assert report.verdict("duplicated_share").status == "warn"


def test_types_with_few_rows_are_shown_but_not_judged() -> None:
    case = healthy()
    small = np.flatnonzero(case.types == 2)[:10]
    types = np.zeros_like(case.types)
    types[small] = 2
    case.X[small] = 1
    report = health_report(case.X, types, NAMES, thresholds=HealthThresholds(duplicated_share_max=0.1))
    assert not failing(report)
    assert [kind.judged for kind in report.figures.types] == [True, False, False]


def test_minima_give_way_where_an_embedding_cannot_have_them() -> None:
    thresholds = HealthThresholds()
    assert components_90_needed(thresholds, 512) == 21  # 4 % of the width: a 20-dimensional subspace fails
    assert components_90_needed(thresholds, 128) == 15
    assert components_90_needed(thresholds, 16) == 5
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 8)).astype(np.float32)
    assert not failing(health_report(X, np.zeros(400, dtype=int), ("a",)))


def test_thresholds_are_settings() -> None:
    case = healthy()
    cosine = report_of(case).figures.mean_cosine
    report = report_of(case, thresholds=HealthThresholds(mean_cosine_max=cosine / 2))
    assert failing(report) == {"mean_cosine"}
    assert report.verdict("mean_cosine").threshold == cosine / 2


def test_the_same_seed_gives_the_same_report_and_blocks_do_not_matter() -> None:
    case = healthy()
    first = report_of(case).to_dict()
    assert report_of(case).to_dict() == first
    first["figures"].pop("link_signal")  # null: there is no ranking
    again = report_of(case, block_rows=7).to_dict()
    assert [v["status"] for v in again["verdicts"]] == [v["status"] for v in first["verdicts"]]
    for name, value in first["figures"].items():
        assert again["figures"][name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_a_memory_mapped_embedding_is_read_in_place(tmp_path) -> None:  # type: ignore[no-untyped-def]
    case = healthy()
    np.save(tmp_path / "x.npy", case.X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert health_report(mapped, case.types, NAMES).to_dict() == report_of(case).to_dict()


@pytest.mark.parametrize(
    ("X", "types", "words"),
    [
        (np.zeros((3, 0), dtype=np.float32), np.zeros(3, dtype=int), "rows × dimensions"),
        (np.zeros((3, 2), dtype=np.int64), np.zeros(3, dtype=int), "int64"),
        (np.ones((1, 2), dtype=np.float32), np.zeros(1, dtype=int), "at least 2"),
        (np.ones((3, 2), dtype=np.float32), np.zeros(2, dtype=int), "one per row"),
        (np.ones((3, 2), dtype=np.float32), np.array([0, 1, 3]), "from 0 to 2"),
        (np.ones((3, 2), dtype=np.float32), np.array([0.0, 1.0, 1.0]), "integers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_one_sentence(X: np.ndarray, types: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        health_report(X, types, NAMES)


def test_a_summary_names_the_figures_out_of_bounds_the_worst_first() -> None:
    def verdict(name: str, status: str) -> dict[str, object]:
        about = {"meaning": f"It is {status}.", "remedy": "Train longer." if status != "pass" else ""}
        return {"name": name, "value": 0.5, "threshold": 0.1, "status": status, **about}

    assert bounds_sentence([verdict("rank", "pass")] * 3) == "3 of 3 figures are within their bounds."
    text = bounds_sentence([verdict("mean_cosine", "warn"), verdict("norm_spread", "pass"), verdict("rank", "fail")])
    assert text.startswith("1 of 3 figures are within their bounds.")
    assert text.index("rank") < text.index("mean cosine")
    assert text.count("0.5; bound 0.1") == text.count("Train longer.") == 2
    assert "And 1 more" in bounds_sentence([verdict(name, "warn") for name in "abcd"])
