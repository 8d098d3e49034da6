"""ConvE's settings: shapes that fit, and what it refuses because it could not honour it."""

import pytest

from graphmill.errors import SettingsError
from graphmill.runs.resolve import parse_settings, resolve
from graphmill.settings import parse
from graphmill.systems.base import SMALL_GRAPH
from graphmill.systems.conve.settings import PRESETS, ConveSettings
from graphmill.systems.registry import choose_preset


def settings(**sections) -> ConveSettings:
    return parse(ConveSettings, {"system": "conve"} | sections, "test")


class TestShapes:
    @pytest.mark.parametrize(
        ("model", "shape"),
        [
            ({}, (10, 20)),
            ({"embedding_dim": 128}, (8, 16)),
            ({"embedding_height": 20}, (20, 10)),
            ({"embedding_dim": 13, "kernel_height": 2}, (1, 13)),
        ],
    )
    def test_what_is_not_written_is_chosen(self, model, shape) -> None:
        assert settings(model=model).model.shape == shape

    @pytest.mark.parametrize(
        ("model", "sentence"),
        [
            ({"embedding_height": 7}, "embedding_dim 200 is not a multiple of embedding_height 7"),
            ({"embedding_dim": 12, "kernel_width": 5}, "larger than the stacked pictures, 6 × 4"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, model, sentence) -> None:
        with pytest.raises(SettingsError, match=sentence):
            settings(model=model)


class TestRefusals:
    @pytest.mark.parametrize(
        "objective",
        [
            {"negatives_per_positive": 4},
            {"loss": "softmax", "negatives_per_positive": 4},
            {"negatives": "sampled", "label_smoothing": 0.2},
        ],
    )
    def test_a_setting_of_the_other_loop(self, objective) -> None:
        with pytest.raises(SettingsError, match=r"objective\.\w+ is not read with objective\.negatives"):
            settings(objective=objective)

    @pytest.mark.parametrize(
        ("acceleration", "sentence"),
        [
            ({"batching": "edge_sampled"}, "should be 'auto' or 'full'"),
            ({"edge_sample_size": 3000}, "unknown setting 'acceleration.edge_sample_size'"),
            ({"num_neighbors": [5]}, "unknown setting 'acceleration.num_neighbors'"),
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
    parse_settings({"system": "conve", "preset": preset}, "test")


class TestSmallGraphs:
    def test_auto_takes_small_batches_and_more_epochs_up_to_a_size(self) -> None:
        assert choose_preset("conve", "cpu", 8 << 30, 8_544)[0] == "small_graph"
        assert choose_preset("conve", "cpu", 8 << 30, SMALL_GRAPH + 1)[0] == "none"
        assert choose_preset("conve", "cpu", 8 << 30)[0] == "none", "the size is not known"
        assert choose_preset("conve", "cpu", 1 << 30, 8_544)[0] == "low_memory", "memory decides first"
        assert choose_preset("mf", "cpu", 8 << 30, 10)[0] == "none"

    def test_the_graph_of_the_settings_decides_and_what_is_written_holds(self, small, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr("graphmill.training.memory.memory_limit", lambda: 8 << 30)
        device = {"acceleration": {"device": "cpu"}}
        job = resolve({"system": "conve", "data": str(small.path), **device, "training": {"epochs": 7}}, "test")
        assert job.preset == "small_graph"
        assert "training links, at most 20,000" in job.preset_reason
        assert job.settings.acceleration.batch_size == PRESETS["small_graph"]["acceleration"]["batch_size"]
        assert job.settings.training.epochs == 7
        assert resolve({"system": "conve", "data": str(tmp_path / "none"), **device}, "test").preset == "none"
