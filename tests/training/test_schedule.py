"""Learning rates equal their formulas; early stopping counts epochs, on unrounded metrics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems import registry
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import TrainState, out_of_patience, record_metric
from graphmill.training.schedule import DECAY_RATE, DECAY_STEPS, LOWEST, batch_scale, learning_rate
from graphmill.training.settings import TrainingSettings
from tests.training.cases import CASES
from tests.training.runs import Hooks, run, settings_of


def rates(total: int, **settings: Any) -> list[float]:
    return [learning_rate(TrainingSettings(learning_rate=0.1, **settings), u, total) for u in range(total + 3)]


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    assert rates(20, warmup_steps=4, lr_decay="none")[:6] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


@pytest.mark.parametrize("decay", ["cosine", "linear", "exponential"])
def test_after_the_warm_up_it_falls_as_torchs_own_schedule_does(decay: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    torchs = {
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, 20, eta_min=0.1 * LOWEST),
        "linear": lambda: lr_scheduler.LinearLR(optimizer, 1.0, LOWEST, 20),
        "exponential": lambda: lr_scheduler.ExponentialLR(optimizer, DECAY_RATE ** (1 / DECAY_STEPS)),
    }[decay]()
    expected = []
    for _ in range(21):
        expected.append(torchs.get_last_lr()[0])
        optimizer.step()
        torchs.step()
    result = rates(24, warmup_steps=4, lr_decay=decay)
    assert result[4:25] == pytest.approx(expected)
    assert decay == "exponential" or result[24:] == pytest.approx([0.1 * LOWEST] * 3), "it stays at its lowest"


def test_scaling_rules() -> None:
    # The usual example: 0.001 at batch 2048 becomes 0.0014 at 4096.
    assert 0.001 * batch_scale("sqrt", 4096, 2048) == pytest.approx(0.001414, abs=1e-6)
    assert batch_scale("linear", 4096, 2048) == 2.0
    assert batch_scale("none", 4096, 2048) == 1.0


def test_a_run_uses_the_scaled_rate_of_its_batch(graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    base = {"training": {"epochs": 1, "warmup_steps": 0, "lr_decay": "none", "learning_rate": 0.001}}
    answer = {}
    for rule in ("none", "sqrt", "linear"):
        job = {"acceleration": {"lr_scaling": rule}}
        values = settings_of(CASES["sasrec"], graphs["sasrec"], base, job)
        result = run(values, tmp_path / rule)
        answer[rule] = RunDirectory(result["run_dir"]).metrics.read("step")[0]["learning_rate"]
        _, system = CASES["sasrec"].build(graphs["sasrec"])
    k = system.phases[0].batch_size / system.phases[0].base_batch_size
    assert k != 1.0
    assert answer == pytest.approx({"none": 0.001, "sqrt": 0.001 * math.sqrt(k), "linear": 0.001 * k})


# -- early stopping --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "stops"), [(1, 13), (2, 14), (5, 15), (8, 24)])
def test_patience_is_counted_in_epochs_however_rarely_one_looks(every: int, stops: int) -> None:
    """Best at the first evaluation from epoch 8 on... then never better: patience 5."""
    state = TrainState()
    best = next(e for e in range(1, 100) if e % every == 0 and e >= 8)
    for epoch in range(1, 100):
        state.epoch = epoch
        if epoch % every == 0:
            state.evaluated_epoch = epoch
            record_metric(state, 1.0 if epoch == best else epoch / 1000)
        if out_of_patience(state, 5):
            break
    assert state.best_epoch == best
    assert epoch == -(-(best + 5) // every) * every
    assert (every != 1) or epoch == stops


def test_tiny_gains_count() -> None:
    state = TrainState(epoch=1)
    assert record_metric(state, 0.012701)
    state.epoch = 2
    # Rounded to four digits, as some do, this is no gain.
    assert record_metric(state, 0.012702)
    state.epoch = 3
    assert not record_metric(state, 0.012702)
    assert state.best_epoch == 2


def test_a_run_that_does_not_improve_stops_and_says_so(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, epochs = registry.create, iter([0.5, 0.4, 0.45, 0.3, 0.2, 0.1])

    def creating(*arguments: Any) -> Any:
        system = create(*arguments)
        real = system.evaluate
        system.evaluate = lambda *a, final, **k: (  # type: ignore[method-assign]
            real(*a, final=final, **k) if final else real(*a, final=final, **k) | {"mrr": next(epochs)}
        )
        return system

    monkeypatch.setattr(registry, "create", creating)
    hooks = Hooks().install(monkeypatch)
    patient = {"training": {"epochs": 50, "patience_epochs": 5}, "evaluation": {"eval_every": 2}}
    result = run(settings_of(CASES["hgt-full"], graphs["hgt-full"], patient), tmp_path)
    assert result["reason"] == "no better mrr for 5 epochs"
    assert (result["epochs_done"], result["best_epoch"]) == (8, 2)
    assert hooks.step == 8 * 4
    assert run(settings_of(CASES["hgt-full"], graphs["hgt-full"], patient), tmp_path)["reused"]


def test_the_final_metrics_have_what_training_left_out(graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    few = {"training": {"epochs": 1}, "evaluation": {"metrics": ["mrr"]}}
    values = settings_of(CASES["hgt-full"], graphs["hgt-full"], few)
    result = run(values, tmp_path)
    epoch = RunDirectory(result["run_dir"]).metrics.read("epoch")[0]
    assert set(epoch["valid"]) == {"mrr"}
    assert {"test_mrr", "test_mr", "test_amri", "test_hits@1", "test_hits@10"} <= set(result["metrics"])
