"""Threads that prepare batches ahead change nothing: neither a batch nor a training, whatever their order."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.graph.typed_graph import TypedGraph
from graphmill.training import trainee
from graphmill.training.trainee import Batches
from tests.training.cases import CASES
from tests.training.runs import assert_same, outcome, run, settings_of

# One for each way to draw steps.
FAMILIES = ["hgt-edge-sampled", "hgt-softmax-edge-sampled", "conve-kvsall", "sasrec", "mf", "kgat"]
TINY: dict[str, Any] = {
    "conve-kvsall": {"acceleration": {"batch_size": 3}},
    "sasrec": {"acceleration": {"batch_size": 3}},
    "hgt-edge-sampled": {"sampling": {"edge_sample_size": 40}},
}


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can, so that what one does comes between two lines of another."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", FAMILIES)
def test_batches_prepared_by_many_threads_are_those_of_one(
    name: str, graphs: dict[str, TypedGraph], restless: None
) -> None:
    """Far more passes at once than a training has: whatever is kept of an order is dropped and made again all the time."""
    _, system = CASES[name].build(graphs[name], **TINY.get(name, {}))
    phase = system.phases[0]
    places = [(epoch, index) for epoch in range(12) for index in range(0, 60, 5)]
    random.Random(0).shuffle(places)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda place: system.step(phase, *place).arrays(), places))
    for place, arrays in zip(places, together, strict=True):
        alone = system.step(phase, *place).arrays()
        assert alone.keys() == arrays.keys()
        for key in alone:
            np.testing.assert_array_equal(alone[key], arrays[key], err_msg=f"{place}: {key}")


class Forgetful(dict[Any, Any]):
    """Loses at once what it is given, as if another thread had come in between every two lines."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


@pytest.mark.parametrize("name", ["hgt-edge-sampled", "conve-kvsall"])
def test_a_step_needs_nothing_that_another_thread_may_drop(
    name: str, graphs: dict[str, TypedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, system = CASES[name].build(graphs[name])
    expected = system.step(system.phases[0], 1, 2).arrays()
    keeper = getattr(system, "sampler", system)
    assert keeper._orders, "the order of a pass is kept"
    nothing = property(lambda self: Forgetful(), lambda self, value: None)
    monkeypatch.setattr(type(keeper), "_orders", nothing, raising=False)
    result = system.step(system.phases[0], 1, 2).arrays()
    for key in expected:
        np.testing.assert_array_equal(result[key], expected[key], err_msg=key)


@pytest.mark.parametrize("name", ["hgt-edge-sampled", "sasrec"])
def test_the_next_batches_are_made_while_this_one_is_used(name: str, graphs: dict[str, TypedGraph]) -> None:
    _, system = CASES[name].build(graphs[name], training={"steps_per_epoch": 5})
    phase = system.phases[0]
    batches = Batches(system, 2)
    try:
        batches(phase, 0, 0)
        assert list(batches.ahead) == [(phase.name, 0, 1), (phase.name, 0, 2)]
        # Nobody has asked for them.
        made = [future.result(timeout=60) for future in batches.ahead.values()]
        assert batches(phase, 0, 1) is made[0]
        assert list(batches.ahead) == [(phase.name, 0, 2), (phase.name, 0, 3)]
        # What was made for steps that were left out goes; an epoch's last step has none behind it.
        batches(phase, 0, 4)
        assert not batches.ahead
    finally:
        batches.close()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_training_with_three_workers_equals_one_without(
    name: str, graphs: dict[str, TypedGraph], tmp_path: Path, restless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = []
    for workers in (0, 3):
        monkeypatch.setattr(trainee, "Batches", lambda system, _, workers=workers: Batches(system, workers))
        result.append(outcome(run(settings_of(CASES[name], graphs[name]), tmp_path / str(workers))))
    assert_same(*result)
