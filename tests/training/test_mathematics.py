"""The training mathematics, for every system: what a step's gradient is, however it is computed."""

from __future__ import annotations

import pytest
import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.registry import SYSTEMS
from graphmill.training.contract import Encoded, StepSizes, System
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks
from graphmill.training.step import clip_, compute_gradient
from tests.training.cases import CASES, CLOSED_FORMS, CLOSED_LINKS, Case

CPU = torch.device("cpu")


def gradient_of(
    system: System,
    model: torch.nn.Module,
    step_sizes: StepSizes | None = None,
    *,
    epoch: int = 1,
    index: int = 2,
    ranks: Ranks | None = None,
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Gradient by name and the losses of one step, for every phase in turn."""
    gradients, losses = {}, {}
    for phase in system.phases:
        for p in model.parameters():
            p.grad = None
        named = dict(model.named_parameters())
        names = [n for g in system.parameter_groups(model, phase) for n in g.names]
        result = compute_gradient(
            system,
            model,
            [named[n] for n in names],
            system.step(phase, epoch, index),
            step_sizes=step_sizes or StepSizes(),
            precision=Precision("fp32", CPU),
            ranks=ranks or Ranks(),
            seed_parts=(0, phase.name, epoch, index),
        )
        gradients |= {f"{phase.name}.{n}": named[n].grad.clone() for n in names if named[n].grad is not None}
        losses |= {f"{phase.name}.{n}": v for n, v in result.losses.items()}
    return gradients, losses


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float) -> None:
    assert set(a) == set(b)
    scale = max(float(v.norm()) for v in a.values())
    for name in a:
        error = float((a[name] - b[name]).norm())
        assert error <= tolerance * max(float(a[name].norm()), 1e-3 * scale), f"{name}: {error}"


def test_every_registered_system_has_a_case() -> None:
    assert set(SYSTEMS) == {case.system for case in (*CASES.values(), *CLOSED_FORMS.values(), *CLOSED_LINKS.values())}


@pytest.mark.parametrize("chunks", [2, 4, 7, 1000])
def test_accumulation_gives_the_gradient_of_the_whole_batch(case: tuple[Case, TypedGraph], chunks: int) -> None:
    system_case, graph = case
    _, system = system_case.build(graph, model=system_case.extra.get("no_chunk_dropout", {}))
    model = system_case.model(system, torch.float64)
    whole, losses = gradient_of(system, model)
    parts, part_losses = gradient_of(system, model, StepSizes(micro_batches=chunks))
    assert_equal(whole, parts, 1e-10)
    for name, value in losses.items():
        assert part_losses[name] == pytest.approx(value, rel=1e-12)


def test_split_graph_backward_equals_one_big_backward(case: tuple[Case, TypedGraph]) -> None:
    system_case, graph = case
    _, system = system_case.build(graph)
    model = system_case.model(system, torch.float64)
    engine, _ = gradient_of(system, model)
    for phase in system.phases:
        for p in model.parameters():
            p.grad = None
        batch = system.step(phase, 1, 2)
        total = torch.zeros((), dtype=torch.float64)
        for number, group in enumerate(batch.groups()):
            from graphmill.training.step import _seed

            _seed((0, phase.name, 1, 2), number, Ranks(), False)
            encoded = system.encode(model, group)
            _seed((0, phase.name, 1, 2, "chunk", 0), number, Ranks(), False)
            for term in system.terms(model, group, encoded):
                total = total + term.coefficient * term.sum / batch.weights[term.name]
        total.backward()
        big = {f"{phase.name}.{n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
        assert_equal(big, {n: g for n, g in engine.items() if n.startswith(f"{phase.name}.")}, 1e-10)


def test_gradient_checkpointing_is_bit_equal_dropout_included(case: tuple[Case, TypedGraph]) -> None:
    system_case, graph = case
    _, plain_system = system_case.build(graph)
    _, recomputing = system_case.build(graph, acceleration={"gradient_checkpointing": True})
    plain, _ = gradient_of(plain_system, system_case.model(plain_system))
    recomputed, _ = gradient_of(recomputing, system_case.model(recomputing, step_sizes=StepSizes(checkpointing=True)))
    for name, gradient in plain.items():
        assert torch.equal(gradient, recomputed[name]), name


def test_a_step_is_a_pure_function_of_its_position(case: tuple[Case, TypedGraph]) -> None:
    system_case, graph = case
    _, system = system_case.build(graph)
    model = system_case.model(system)
    first, _ = gradient_of(system, model, epoch=3, index=1)
    gradient_of(system, model, epoch=0, index=0)
    torch.rand(7)  # whatever else draws numbers in between
    again, _ = gradient_of(system, model, epoch=3, index=1)
    other, _ = gradient_of(system, model, epoch=3, index=2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("world", [2, 3, 64])
def test_shards_add_up_to_the_whole_step_uneven_and_empty_ones_included(
    case: tuple[Case, TypedGraph], world: int
) -> None:
    system_case, graph = case
    _, system = system_case.build(graph)
    for phase in system.phases:
        batch = system.step(phase, 0, 1)
        shards = [batch.shard(rank, world) for rank in range(world)]
        for name, weight in batch.weights.items():
            assert sum(s.weights.get(name, 0.0) for s in shards) == pytest.approx(weight, rel=1e-12)
        if not batch.replicated:
            continue
        # A replicated encoding: the terms of all shards on one encoding are the whole step's terms.
        model = system_case.model(system, torch.float64).eval()
        with torch.no_grad():
            encoded = system.encode(model, batch)
            whole = {t.name: float(t.sum) for t in system.terms(model, batch, encoded)}
            parts: dict[str, float] = dict.fromkeys(whole, 0.0)
            for shard in shards:
                for group in shard.groups():
                    for chunk in group.split(1):
                        for term in system.terms(model, chunk, encoded):
                            parts[term.name] += float(term.sum)
        assert parts == pytest.approx(whole, rel=1e-10)


def test_weights_of_the_chunks_sum_to_those_of_the_batch_for_each_term(case: tuple[Case, TypedGraph]) -> None:
    system_case, graph = case
    _, system = system_case.build(graph)
    model = system_case.model(system)
    for phase in system.phases:
        batch = system.step(phase, 0, 0)
        seen: dict[str, float] = {}
        for group in batch.groups():
            encoded = system.encode(model, group)
            for chunk in group.split(3):
                for term in system.terms(model, chunk, encoded):
                    seen[term.name] = seen.get(term.name, 0.0) + chunk.weights[term.name]
        assert seen == pytest.approx(dict(batch.weights), rel=1e-9)


def test_clipping_bites_after_unscaling(case: tuple[Case, TypedGraph]) -> None:
    system_case, graph = case
    _, system = system_case.build(graph)
    model = system_case.model(system)
    phase = system.phases[0]
    parameters = [p for g in system.parameter_groups(model, phase) for p in g.parameters]
    true, _ = gradient_of(system, model, epoch=0, index=0)
    norm = float(torch.nn.utils.get_total_norm([g for n, g in true.items() if n.startswith(f"{phase.name}.")]))
    for p in model.parameters():
        p.grad = None
    precision = Precision("fp32", CPU)
    precision.scaler.scale = 1024.0  # as under fp16: the norm that clipping sees must be the unscaled one
    result = compute_gradient(
        system,
        model,
        parameters,
        system.step(phase, 0, 0),
        step_sizes=StepSizes(),
        precision=precision,
        ranks=Ranks(),
        seed_parts=(0, phase.name, 0, 0),
    )
    assert result.norm == pytest.approx(norm, rel=1e-4)
    clip_(parameters, result.norm, norm / 2)
    clipped = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    assert float(clipped) == pytest.approx(norm / 2, rel=1e-4)


def test_an_encoding_without_use_costs_no_gradient() -> None:
    from graphmill.training.step import _backward_through

    x = torch.ones(2, requires_grad=True)
    encoded = Encoded({"z": x * 2})
    _backward_through(encoded, {"z": torch.zeros(2, requires_grad=True)}, {})
    assert x.grad is None
