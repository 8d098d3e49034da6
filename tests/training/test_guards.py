"""A number that is not finite is caught before the update, named, kept, and dealt with as the policy says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import StoppedError, TrainingError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import merge
from graphmill.systems import registry
from graphmill.systems.factor.settings import FactorTraining
from graphmill.training import engine
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.contract import ParameterGroup
from graphmill.training.guards import NonFiniteError, first_nonfinite
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.precision import LossScaler, Precision
from graphmill.training.settings import TrainingSettings
from graphmill.training.signals import StopRequest
from tests.training.cases import CASES, STEPPED
from tests.training.runs import Hooks, Outcome, assert_same, busy_clock, outcome, run, settings_of

BAD_STEP = 5  # the second of the second epoch


def poison_loss(system: Any, model: Any, terms: list[Any]) -> list[Any]:
    return [type(t)(t.name, t.sum * math.nan, t.coefficient) for t in terms]


class Injector:
    """Makes one number of step ``BAD_STEP`` not finite: in the loss, a gradient, a parameter, or an input."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: str, *, steps: tuple[int, ...] = (BAD_STEP,)) -> None:
        self.kind, self.steps, self.step, self.before = kind, steps, 0, {}
        self.weights: dict[str, torch.Tensor] = {}
        create, compute = registry.create, engine.compute_gradient

        def creating(*arguments: Any) -> Any:
            system = create(*arguments)
            terms = system.terms

            def bad_terms(model: Any, chunk: Any, encoded: Any) -> Any:
                result = terms(model, chunk, encoded)
                return poison_loss(system, model, result) if kind == "loss" and self.step in self.steps else result

            system.terms = bad_terms  # type: ignore[method-assign]
            return system

        def computing(system: Any, model: Any, parameters: Any, batch: Any, **options: Any) -> Any:
            if self.step in self.steps:
                self._spoil(system, model, batch)
                self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}
            gradient = compute(system, model, parameters, batch, **options)
            self.step += 1
            return gradient

        patch.setattr(registry, "create", creating)
        patch.setattr(engine, "compute_gradient", computing)

    def _spoil(self, system: Any, model: Any, batch: Any) -> None:
        first = next(iter(model.parameters()))
        if self.kind == "gradient":
            handle = first.register_hook(lambda g: g * math.inf)
            system.handles = [*getattr(system, "handles", []), handle]
        elif self.kind == "parameter":
            with torch.no_grad():
                first.view(-1)[0] = math.inf
        elif self.kind == "input":
            batch.share[0] = math.nan


def first_parameter(name: str, graphs: dict[str, TypedGraph]) -> str:
    _, system = CASES[name].build(graphs[name])
    return next(iter(dict(CASES[name].model(system).named_parameters())))


@pytest.mark.parametrize(
    ("kind", "culprit"),
    [
        ("loss", "loss '"),
        ("gradient", "gradient of '"),
        ("parameter", "parameter 'encoder.tables.0'"),
        ("input", "input 'share'"),
    ],
)
def test_it_is_named_the_batch_is_kept_and_the_step_is_not_applied(
    kind: str, culprit: str, graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injected = Injector(monkeypatch, kind)
    updates: list[int] = []
    step = PhaseOptimizer.step
    monkeypatch.setattr(PhaseOptimizer, "step", lambda *args: (updates.append(injected.step), step(*args)))
    values = settings_of(CASES["hgt-full"], graphs["hgt-full"])
    with pytest.raises(NonFiniteError) as caught:
        run(values, tmp_path)
    text = str(caught.value)
    assert text.startswith(culprit)
    assert "phase train, epoch 2, step 2 of 4" in text
    # The advice: a lower rate, clipping, fp32.
    for remedy in ("learning_rate (half of it", "clip_norm: 1.0", "precision: fp32"):
        assert remedy in text
    assert len(updates) == BAD_STEP
    kept = np.load(next(tmp_path.glob("*/nonfinite/*.npz")))
    _, system = CASES["hgt-full"].build(graphs["hgt-full"], **{k: values[k] for k in ("training", "acceleration")})
    expected = system.step(system.phases[0], 1, 1).arrays()
    assert sorted(kept.files) == sorted(expected)
    for name, array in expected.items():
        same = np.array_equal(kept[name], array)
        assert same or (kind, name) == ("input", "share"), name


def test_what_a_system_holds_is_an_input_too(graphs: dict[str, TypedGraph]) -> None:
    _, system = CASES["hgt-full"].build(graphs["hgt-full"])
    model = CASES["hgt-full"].model(system)
    batch = system.step(system.phases[0], 0, 0)
    assert first_nonfinite(system, model, batch, {"link": math.nan}) == "loss 'link'"
    system.features = {2: torch.tensor([[1.0, math.inf]])}  # type: ignore[attr-defined]
    assert first_nonfinite(system, model, batch, {"link": math.nan}) == "input 'features[2]'"


@pytest.mark.parametrize("name", list(STEPPED))
def test_every_systems_bad_loss_is_caught_at_its_step(
    name: str, graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Injector(monkeypatch, "loss", steps=(2,))
    with pytest.raises(NonFiniteError, match=r"^loss '.*epoch 1, step 3 of 4; the step was not applied"):
        run(settings_of(CASES[name], graphs[name]), tmp_path)


def test_a_parameter_that_an_update_overflowed_is_never_saved(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = PhaseOptimizer.step
    calls = []

    def overflow(self: Any, rate: float, *rest: Any) -> None:
        step(self, rate, *rest)
        calls.append(rate)
        if len(calls) == 8:
            with torch.no_grad():
                self.parameters[0].view(-1)[0] = math.inf

    monkeypatch.setattr(PhaseOptimizer, "step", overflow)
    with pytest.raises(TrainingError, match=r"parameter '.*' is not finite after epoch 2, step 8; nothing was saved"):
        run(settings_of(CASES["hgt-full"], graphs["hgt-full"]), tmp_path)
    saved = CheckpointStore(next(tmp_path.iterdir()) / "checkpoints")
    assert saved.list()[-1].epoch == 1
    assert all(torch.isfinite(t).all() for t in saved.load().snapshot.tensors.values())


# -- fp16's loss scale -----------------------------------------------------------------------------------------------


def test_the_scaler_halves_on_overflow_and_doubles_after_a_quiet_stretch() -> None:
    scaler = LossScaler(scale=8.0, growth_interval=3)
    scaler.update(overflow=True)
    assert (scaler.scale, scaler.quiet_steps) == (4.0, 0)
    for _ in range(3):
        scaler.update(overflow=False)
    assert (scaler.scale, scaler.quiet_steps) == (8.0, 0)
    assert not Precision("bf16", torch.device("cpu")).scaler.enabled


def test_fp16_skips_a_step_whose_scale_was_too_high_and_resumes_with_the_scale_it_had(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings_of(CASES["conve-slcwa"], graphs["conve-slcwa"], {"acceleration": {"precision": "fp16"}})
    # A scale at which this model's fp16 gradients overflow at first.
    monkeypatch.setattr(LossScaler, "scale", 2.0**24)
    monkeypatch.setattr(LossScaler.__init__, "__defaults__", (2.0**24, 2000, 0, True))
    whole = outcome(run(values, tmp_path / "whole"))
    assert whole.state["skips"] > 0
    assert whole.state["updates"]["train"] == 12 - whole.state["skips"]
    assert whole.state["scaler"]["scale"] == 2.0**24 / 2 ** whole.state["skips"]
    assert _resumed(values, tmp_path / "parts", monkeypatch, whole)


def _resumed(values: dict[str, Any], root: Path, monkeypatch: pytest.MonkeyPatch, expected: Outcome) -> bool:
    stop = StopRequest()
    with monkeypatch.context() as patch:
        busy_clock(patch)
        hooks = Hooks().install(patch)
        hooks.on_gradient = lambda step: stop.request() if step == BAD_STEP else None
        with pytest.raises(StoppedError):
            run(values, root, stop)
    assert_same(outcome(run(values, root)), expected)
    return True


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        # Each case in one precision, in turn; in the other one in `make test-long`.
        pytest.param(name, each, marks=() if place == number % 2 else (pytest.mark.long,), id=f"{name}-{each}")
        for number, name in enumerate(STEPPED)
        for place, each in enumerate(("bf16", "fp16"))
    ],
)
def test_a_resumed_run_in_half_precision_equals_the_uninterrupted_one(
    name: str, precision: str, graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings_of(CASES[name], graphs[name], merge({}, {"acceleration": {"precision": precision}}))
    assert _resumed(values, tmp_path / "parts", monkeypatch, outcome(run(values, tmp_path / "whole")))


@pytest.mark.parametrize("on", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad"])
def test_a_step_skipped_on_the_device_leaves_every_bit(name: str, on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``on``: the device by which the optimizer chooses its kernels; the tensors are on the CPU."""
    monkeypatch.setattr(TrainingSettings, "OPTIMIZER", name)
    settings = TrainingSettings(weight_decay=0.0 if name == "adagrad" else 0.1)
    parameters = [torch.nn.Parameter(torch.tensor([1.5, -0.0, 0.0, -2.0])), torch.nn.Parameter(torch.ones(2, 3))]
    unused = torch.nn.Parameter(torch.ones(2))
    groups = [ParameterGroup(["a", "b", "unused"], [*parameters, unused])]
    optimizer = PhaseOptimizer(settings, groups, torch.device(on))
    assert optimizer.guards_itself

    def step(bad: float) -> list[torch.Tensor]:
        parameters[0].grad = (
            torch.tensor([math.nan, 1.0, -math.inf, 0.0]) if bad else torch.tensor([0.0, 0.0, 0.0, 2.0])
        )
        parameters[1].grad = torch.full((2, 3), 0.3)
        optimizer.allocate()
        before = kept()
        optimizer.step(0.1, torch.tensor(bad))
        return before

    def kept() -> list[torch.Tensor]:
        moments = [value for key, value in optimizer.tensors("").items() if not key.endswith(".step")]
        return [x.detach().clone().view(torch.int32) for x in [*parameters, unused, *moments]]

    for bad in (1.0, 0.0, 1.0):
        before = step(bad)
        same = [torch.equal(one, other) for one, other in zip(before, kept(), strict=True)]
        assert all(same) == bool(bad), (bad, same)


def test_adagrad_with_weight_decay_cannot_skip_by_itself() -> None:
    settings = FactorTraining(weight_decay=0.1)
    parameter = torch.nn.Parameter(torch.ones(2))
    for decay, guards in ((1.0, False), (0.0, True)):
        groups = [ParameterGroup(["a"], [parameter], decay)]
        assert PhaseOptimizer(settings, groups, torch.device("cuda")).guards_itself is guards
