"""The systems' batches, settings, evaluation and export."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.interactions_csv import read_sequence
from graphmill.runs.resolve import parse_settings
from graphmill.settings import parse
from graphmill.systems import registry
from graphmill.systems.sequences.settings import PRESETS
from graphmill.training.contract import StepSizes

from .conftest import system_on


def build(tmp_path, text):
    (tmp_path / "views.txt").write_text(text)
    tables = read_sequence(tmp_path / "views.txt")
    return build_graph(tables.nodes, tables.edges, GraphSettings(), tmp_path / "graph")


def settings(system="sasrec", **sections):
    return parse(registry.settings_model(system), {"system": system, **sections}, "test")


# ---- batches


def test_every_training_interaction_but_the_first_is_a_target_once_an_epoch(watched):
    system = system_on(watched, "sasrec", model={"max_length": 5})
    s = system.data.sequences
    seen = []
    for index in range(system.sampler.steps_per_epoch):
        batch = system.step(system.phases[0], 3, index)
        assert batch.lengths.max() <= 5
        seen.append(batch.targets)
    train = s.split == 0
    first = np.zeros(len(s.items), bool)
    first[s.indptr[:-1]] = True
    assert np.array_equal(np.sort(np.concatenate(seen)), np.sort(s.items[train & ~first]))


def test_the_newest_window_alone_can_be_asked_for(watched):
    system = system_on(watched, "sasrec", model={"max_length": 5}, objective={"windows": "last"})
    assert len(system.data.user) == system.data.sequences.num_users
    assert np.array_equal(system.data.stop, system.data.sequences.train_ends())


def test_held_out_interactions_are_never_in_a_batch(tmp_path):
    # Each user's valid and test items occur nowhere else.
    graph = build(tmp_path, "".join(f"u{u} i{i}\n" for u in range(9) for i in (0, 1, 2, f"v{u}", f"t{u}")))
    system = system_on(graph, "sasrec", objective={"loss": "bce"})
    s = system.data.sequences
    held = set(s.items[s.split > 0])
    for index in range(system.sampler.steps_per_epoch):
        batch = system.step(system.phases[0], 0, index)
        assert not held & set(batch.items)
        assert not held & set(batch.targets)


def test_negatives_of_bce_are_items_that_the_user_has_not_met(watched, tmp_path):
    graph = build(tmp_path, "".join(f"u{u} i{(u + i) % 15} {i}\n" for u in range(20) for i in range(8)))
    system = system_on(graph, "sasrec", objective={"loss": "bce", "negatives": 3})
    batch = system.step(system.phases[0], 0, 0)
    met = {u: set(system.data.sequences.items[a:b]) for u, (a, b) in enumerate(
        zip(system.data.sequences.indptr[:-1], system.data.sequences.train_ends(), strict=True)
    )}  # fmt: skip
    order = system.sampler._epoch_order(0)[: len(batch.lengths)]
    users = np.repeat(system.data.user[order], batch.lengths)
    assert all(not met[u] & set(row) for u, row in zip(users, batch.negatives, strict=True))


# ---- evaluation


def test_histories_end_before_the_target_and_test_histories_hold_the_validation_item(watched):
    evaluator = system_on(watched, "sasrec").evaluator
    s = evaluator.sequences
    valid, test = evaluator.split("valid"), evaluator.split("test")
    assert np.array_equal(s.items[valid.stop], valid.targets)
    assert np.array_equal(test.stop, valid.stop + 1)
    assert np.array_equal(s.items[test.stop - 1], valid.targets)


def test_final_figures_have_ties_of_time_apart_and_the_baselines(watched):
    system = system_on(watched, "tisasrec", model={"time_span": 8})
    model = system.build(StepSizes()).eval()
    polls = []
    figures = system.evaluate(model, "valid", final=True, poll=lambda: polls.append(1))
    for prefix in ("", "untied_", "popularity_", "markov_", "session_knn_"):
        assert f"{prefix}ndcg@10" in figures, prefix
    assert polls
    assert set(system.evaluate(model, "valid", final=False, poll=lambda: None)) == set(
        system.settings.evaluation.measured()
    )


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """40 listeners who replay eight favourites of their own at random, of 60 items."""
    rng = np.random.default_rng(0)
    lines = []
    for user in range(40):
        favourites = rng.choice(60, 8, replace=False)
        lines += [f"u{user} i{item} {at}\n" for at, item in enumerate(rng.choice(favourites, 24))]
    return build(tmp_path_factory.mktemp("replayed"), "".join(lines))


def test_where_people_repeat_no_model_or_baseline_gains_by_the_mask(replayed):
    system = system_on(replayed, "sasrec")
    assert system.data.sequences.repeats
    figures = system.evaluate(system.build(StepSizes()).eval(), "test", final=True, poll=lambda: None)
    assert figures["repeat_share"] > 0.8
    for who in ("popularity", "markov", "session_knn", "repeats"):
        result = figures[f"{who}_ndcg@5"]
        assert result < 0.6, who  # eight favourites at random: about .37 for whoever knows them
        assert f"repeated_{who}_ndcg@5" in figures
    assert figures["repeats_ndcg@5"] > figures["popularity_ndcg@5"]
    assert {"repeated_ndcg@5", "new_ndcg@5"} <= set(figures)


def test_recommendations_may_repeat_where_people_do(replayed, watched):
    system = system_on(replayed, "sasrec")
    model, s = system.build(StepSizes()).eval(), system.data.sequences
    met = [set(s.items[a:b]) for a, b in zip(s.indptr[:-1], s.indptr[1:], strict=True)]

    def repeats(exclude_seen):
        lists = system.recommend(model, 60, exclude_seen)[1] - s.item_offset
        return [len(met[u] & set(row)) for u, row in enumerate(lists)]

    assert repeats("auto") == repeats("never") == [len(items) for items in met]
    assert not any(repeats("always"))


def test_scores_are_the_product_of_state_and_item_table_and_do_not_depend_on_the_batch(watched):
    system = system_on(watched, "tisasrec", model={"time_span": 8})
    model = system.build(StepSizes()).eval()
    scorer = system.scorer(model)
    together = scorer.score_targets(0, np.arange(20))
    alone = torch.cat([scorer.score_targets(0, np.array([u])) for u in range(20)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_embeddings_are_states_of_users_and_vectors_of_items_in_node_order(watched):
    system = system_on(watched, "sasrec")
    model = system.build(StepSizes())
    vectors = np.concatenate([block.vectors for block in system.embeddings(model)])
    assert vectors.shape == (watched.num_nodes, 16)
    s = system.data.sequences
    items = vectors[s.item_offset : s.item_offset + s.num_items]
    assert np.array_equal(items, model.network.items.weight.detach().numpy())
    users = torch.from_numpy(vectors[s.user_offset : s.user_offset + s.num_users])
    expected = system.scorer(model.eval()).score_targets(0, np.arange(s.num_users))
    torch.testing.assert_close(users @ torch.from_numpy(items).T, expected, rtol=1e-4, atol=1e-5)


def test_recommendations_can_be_new_to_their_user(watched):
    system = system_on(watched, "sasrec")
    users, items, scores = system.recommend(system.build(StepSizes()).eval(), 4, "always")
    s = system.data.sequences
    for u, row in zip(users - s.user_offset, items, strict=True):
        listed = row[row >= 0] - s.item_offset
        assert not set(listed) & set(s.items[s.indptr[u] : s.indptr[u + 1]])
    assert (scores[:, 1:] <= scores[:, :-1]).all()


# ---- refusals


def test_tisasrec_refuses_data_without_times(tmp_path):
    graph = build(tmp_path, "u a\nu b\nu c\nu d\n")
    system_on(graph, "sasrec")
    with pytest.raises(InputError, match="no timestamps, which tisasrec needs"):
        system_on(graph, "tisasrec")


def test_nothing_to_learn_from_is_said(tmp_path):
    with pytest.raises(InputError, match="two training interactions"):
        system_on(build(tmp_path, "u a\nu b\nu c\nv a\n"), "sasrec")


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"model": {"embedding_dim": 10, "num_heads": 3}}, "use 12"),
        ({"model": {"mhc": "lite", "norm": "post"}}, r"needs model\.norm: pre"),
        ({"objective": {"negatives": 4}}, "objective.negatives is not read with objective.loss: softmax"),
        ({"acceleration": {"batching": "edge_sampled"}}, "should be 'auto' or 'full'"),
        ({"evaluation": {"metrics": ["auc"]}}, "unknown auc"),
        ({"evaluation": {"top_k": [5]}}, "selection_metric: ndcg@10 is not measured"),
        ({"model": {"time_span": 5}}, "unknown setting"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused_with_the_remedy(sections, sentence):
    with pytest.raises(SettingsError, match=sentence):
        settings(**sections)


def test_presets_are_settings_and_small_machines_get_the_small_one():
    for name in PRESETS:
        parse_settings({"system": "tisasrec", "preset": name}, "test")
    assert registry.choose_preset("sasrec", "cuda", 1 << 30)[0] == "low_memory"
    assert registry.choose_preset("sasrec", "cpu", 8 << 30)[0] == "none"


# ---- whole runs


@pytest.mark.parametrize("preset", ["none", "low_memory"])
def test_the_example_trains_exports_and_recommends(watched, tmp_path, repository, preset):
    from graphmill.runs.export import evaluate_run, export_run, restore
    from graphmill.runs.train import train
    from graphmill.usage.recommendations import recommend_run

    values = yaml.safe_load((repository / "examples" / "sequences" / "tisasrec.yaml").read_text())
    values |= {"data": str(watched.path), "preset": preset}
    values["training"] |= {"epochs": 1}
    values["model"] |= {"embedding_dim": 8}
    batch = values.pop("acceleration")["batch_size"]
    values["acceleration"] = {**({"batch_size": batch} if preset == "none" else {})}
    result = train(values, "tisasrec.yaml", root=str(tmp_path))
    restored = restore(result["run_dir"])
    assert restored.job.settings.acceleration.batch_size == (64 if preset == "low_memory" else batch)
    assert export_run(restored)["rows"] == watched.num_nodes
    assert evaluate_run(restored)["test"]["ndcg@10"] == pytest.approx(result["metrics"]["test_ndcg@10"])
    written = recommend_run(restored, 3)
    assert Path(written["file"]).is_file()
    assert written["users"] == 150
