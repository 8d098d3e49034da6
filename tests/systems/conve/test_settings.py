"""ConvE's settings: shapes that fit, and what it refuses because it could not honour it."""

import pytest

from graphmill.errors import SettingsError
from graphmill.runs.resolve import parse_settings
from graphmill.settings import parse
from graphmill.systems.conve.settings import PRESETS, ConveSettings


def settings(**sections) -> ConveSettings:
    return parse(ConveSettings, {"recipe": "conve"} | sections, "test")


class TestShapes:
    @pytest.mark.parametrize(
        ("model", "shape"),
        [
            ({}, (10, 20)),
            ({"embedding_dim": 128}, (8, 16)),
            ({"embedding_height": 20}, (20, 10)),
            ({"embedding_width": 10}, (20, 10)),
            ({"embedding_dim": 13, "kernel_height": 2}, (1, 13)),
        ],
    )
    def test_what_is_not_written_is_chosen(self, model, shape) -> None:
        assert settings(model=model).model.shape == shape

    @pytest.mark.parametrize(
        ("model", "sentence"),
        [
            ({"embedding_height": 7, "embedding_width": 20}, "7 × embedding_width 20 is not embedding_dim 200"),
            ({"embedding_dim": 12, "kernel_width": 5}, "larger than the stacked pictures, 6 × 4"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, model, sentence) -> None:
        with pytest.raises(SettingsError, match=sentence):
            settings(model=model)


class TestRefusals:
    @pytest.mark.parametrize(
        ("acceleration", "sentence"),
        [
            ({"batching": "edge_sampled"}, "ConvE passes none"),
            ({"edge_sample_size": 3000}, "edge_sample_size belongs to graph networks"),
            ({"num_neighbors": [5]}, "num_neighbors belongs to graph networks"),
            ({"batch_size": 8, "batch_size_per_device": 4}, "both set"),
        ],
    )
    def test_acceleration_that_has_no_meaning_here(self, acceleration, sentence) -> None:
        with pytest.raises(SettingsError, match=sentence):
            settings(acceleration=acceleration)

    def test_unknown_metrics(self) -> None:
        with pytest.raises(SettingsError, match=r"unknown ndcg \(known: mrr"):
            settings(evaluation={"metrics": ["ndcg"]})


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_is_valid(preset) -> None:
    parse_settings({"recipe": "conve", "preset": preset}, "test")
