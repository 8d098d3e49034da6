"""What the models learn: times where times matter, and depth with hyper-connections."""

import torch

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.interactions_csv import read_sequence


def hits(system, model):
    """Share of test targets that are the best of all items, nothing masked."""
    queries = system.evaluator.split("test")
    with torch.no_grad():
        scores = system.all_states(model, queries.users, queries.stop) @ model.network.items.weight.T
    return float((scores.argmax(1).numpy() == queries.targets).mean())


def test_where_the_gap_decides_what_follows_tisasrec_knows_and_sasrec_cannot(watched, trained):
    timed = hits(*trained(watched, "tisasrec", 20, model={"time_span": 8})[:2])
    untimed = hits(*trained(watched, "sasrec", 20)[:2])
    assert untimed < 0.6  # two equally likely followers, and ten per cent of chance
    assert timed > untimed + 0.15


def test_a_deep_stack_trains_with_hyper_connections_at_least_as_well_as_without(watched, trained):
    deep = {"num_blocks": 12, "embedding_dim": 8, "max_length": 12}
    plain = trained(watched, "sasrec", 4, model=deep)[2]
    mixed = trained(watched, "sasrec", 4, model={**deep, "mhc": "lite"})[2]
    assert mixed < 2.3  # from log 12 = 2.48
    assert mixed < plain + 0.02


def test_every_loss_learns_a_fixed_order(tmp_path, trained):
    (tmp_path / "views.txt").write_text("".join(f"u{u} i{(7 * u + i) % 20}\n" for u in range(60) for i in range(9)))
    tables = read_sequence(tmp_path / "views.txt")
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(), tmp_path / "graph")
    objectives = [
        {"loss": "softmax"},
        {"loss": "sampled_softmax", "negatives": 8},
        {"loss": "bce", "negatives": 2},
    ]
    for objective in objectives:
        system, model, _ = trained(graph, "sasrec", 25, rate=0.02, objective=objective, evaluation={"top_k": [1, 10]})
        # What a user has met is masked: BCE never sees it as a negative, and may like it.
        figures = system.evaluate(model, "test", final=False, poll=lambda: None)
        assert figures["hr@1"] > 0.7, objective  # chance: 0.08
