"""The linear probe, on the real data that scikit-learn brings: irises, diabetes, handwritten digits."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.linear_model import RidgeCV
from sklearn.metrics import label_ranking_average_precision_score
from sklearn.model_selection import cross_val_predict

from graphmill.errors import InputError
from graphmill.evaluation.probe import CHANCE, LEAST, VECTORS, Probe, labels_of, probe


def irises() -> tuple[np.ndarray, list[list[str]]]:
    flowers = load_iris()
    return flowers.data, [[str(flowers.target_names[each])] for each in flowers.target]


def test_a_probe_predicts_the_class_of_an_iris() -> None:
    X, texts = irises()
    result = probe(labels_of(texts), {VECTORS: X, "degree": X[:, :1]})
    assert (result.kind, result.metric, result.classes, result.nodes) == ("class", "accuracy", 3, 150)
    score = result.scores[VECTORS]
    assert score.low < score.value < score.high
    assert score.value > 0.8
    assert result.scores[CHANCE].value < 0.4
    assert result.over["degree"].low > 0
    assert result.passed


def test_a_probe_of_shuffled_labels_is_chance() -> None:
    (X, texts), disease = irises(), load_diabetes()
    scores = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        result = probe(labels_of([texts[row] for row in rng.permutation(len(texts))]), {VECTORS: X})
        scores.append(result.scores[VECTORS].value)
        assert not result.passed
        of_number = probe(labels_of([[str(each)] for each in rng.permutation(disease.target)]), {VECTORS: disease.data})
        assert abs(of_number.scores[VECTORS].value) < 0.05
        assert not of_number.passed
    assert np.mean(scores) == pytest.approx(1 / 3, abs=0.06)


def test_a_number_is_judged_by_the_share_of_variance_as_scikit_learn_does() -> None:
    disease = load_diabetes()
    result = probe(labels_of([[str(each)] for each in disease.target]), {VECTORS: disease.data})
    assert result.kind == "number"
    theirs = cross_val_predict(RidgeCV(np.logspace(-1, 5, 7)), disease.data, disease.target, cv=5)
    expected = 1 - ((theirs - disease.target) ** 2).mean() / disease.target.var()
    assert result.scores[VECTORS].value == pytest.approx(expected, abs=0.05)
    assert result.scores[CHANCE].value == 0


def test_several_classes_are_ranked_and_the_rare_ones_left_out() -> None:
    digits = load_digits()
    texts = [[f"digit {each}", "even" if each % 2 == 0 else "odd"] for each in digits.target]
    texts[:3] = [["rare"], ["rare"], ["rare"]]
    labels = labels_of(texts)
    result = probe(labels, {VECTORS: digits.data})
    assert (result.kind, result.classes, result.left_out) == ("classes", 12, 3)
    assert result.scores[VECTORS].value > 0.9 > result.scores[CHANCE].value > 0


def test_average_precision_is_that_of_scikit_learn() -> None:
    from graphmill.evaluation.probe import _gains

    rng = np.random.default_rng(0)
    wanted, scores = (rng.random((40, 7)) < 0.4).astype(float), rng.random((40, 7))
    wanted[:, 0] = 1
    precision = _gains("classes", scores, wanted).mean()
    assert precision == pytest.approx(label_ranking_average_precision_score(wanted, scores))


def test_what_spectral_vectors_know_better_does_not_pass() -> None:
    X, texts = irises()
    result: Probe = probe(labels_of(texts), {VECTORS: X[:, 1:2], "spectral": X})
    assert result.over["spectral"].high < 0
    assert not result.passed
    assert "spectral" in result.sentence


def test_the_same_labels_give_the_same_figures() -> None:
    X, texts = irises()
    assert probe(labels_of(texts), {VECTORS: X}) == probe(labels_of(texts), {VECTORS: X})


def test_wide_vectors_are_reduced_first() -> None:
    X, texts = irises()
    wide = np.concatenate([X, np.random.default_rng(0).normal(scale=0.01, size=(len(X), 600))], axis=1)
    assert probe(labels_of(texts), {VECTORS: wide}).scores[VECTORS].value > 0.5


@pytest.mark.parametrize(
    ("texts", "kind", "message"),
    [
        ([["a"]] * 100, "auto", "two such classes"),
        ([["a"]] * LEAST + [["b"]] * LEAST, "auto", "a probe needs 25"),
        ([["1"]] * 50, "number", "labels that differ"),
        ([["1"], ["x"]], "number", "'x' is not one number"),
        ([["a", "b"]], "class", "say kind: classes"),
    ],
)
def test_labels_that_cannot_be_probed_are_a_sentence(texts: list[list[str]], kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        probe(labels_of(texts, kind), {VECTORS: np.eye(len(texts))})


def test_few_numbers_are_classes_and_many_are_numbers() -> None:
    assert labels_of([[str(n % 3)] for n in range(60)]).kind == "class"
    assert labels_of([[str(n / 7)] for n in range(60)]).kind == "number"
