"""The ladder of out-of-memory: which rungs, in which order, what is said at its end, and what it does not touch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmill.errors import OutOfMemoryError, ResourceError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.planning import shrink
from graphmill.training.contract import ENCODING, GRADIENTS, LOSS, ParameterGroup, StepSizes
from graphmill.training.ladder import in_smaller_blocks, with_ladder
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.settings import TrainingSettings
from tests.training.cases import CASES
from tests.training.runs import Hooks, assert_same, outcome, run, settings_of

REFUSAL = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes\nand a second line"


class Steps:
    """An attempt that runs out of memory at ``where`` until ``fits`` says that the execution is small enough."""

    def __init__(
        self,
        fits: Callable[[StepSizes], bool],
        error: Exception | None = None,
        where: Callable[[StepSizes], str] = lambda e: LOSS,
    ) -> None:
        self.fits, self.error, self.where = fits, error or RuntimeError(REFUSAL), where
        self.step_sizes = StepSizes()
        self.attempts: list[tuple[int | bool, ...]] = []
        self.cleared = 0
        self.notes: list[str] = []

    def attempt(self) -> str:
        self.attempts.append(tuple(self.step_sizes.sizes().values()))
        self.step_sizes.at = self.where(self.step_sizes)
        if not self.fits(self.step_sizes):
            raise self.error
        return "a gradient"

    def clear(self) -> None:
        self.cleared += 1

    def climb(self, *, repeatable: bool = True) -> str:
        return with_ladder(
            self.attempt,
            step_sizes=self.step_sizes,
            clear=self.clear,
            note=self.notes.append,
            remedy="Reduce something",
            repeatable=lambda: repeatable,
        )


def test_what_fits_takes_no_rung() -> None:
    steps = Steps(lambda step_sizes: True)
    assert steps.climb() == "a gradient"
    assert (steps.cleared, steps.notes, steps.step_sizes.history) == (0, [], [])


def test_the_loss_is_cut_first_and_then_layers_are_recomputed_in_as_few_chunks_as_there_were() -> None:
    steps = Steps(lambda step_sizes: step_sizes.checkpointing)
    assert steps.climb() == "a gradient"
    assert steps.attempts == [(1, False), (8, False), (64, False), (1, True)]
    assert steps.cleared == 3, "what was half done is cleared before every repetition"
    (rung,), (note,) = steps.step_sizes.history, steps.notes
    assert "gradient checkpointing" in rung
    assert note.startswith("out of memory in the loss")
    assert REFUSAL.splitlines()[0] in note
    assert rung in note


def test_chunks_are_not_tried_where_the_encoding_takes_the_memory() -> None:
    steps = Steps(lambda step_sizes: step_sizes.checkpointing, where=lambda e: ENCODING)
    assert steps.climb() == "a gradient"
    assert steps.attempts == [(1, False), (1, True)]


def test_the_loss_may_come_after_the_encoding() -> None:
    steps = Steps(
        lambda step_sizes: step_sizes.checkpointing and step_sizes.micro_batches > 1,
        where=lambda e: LOSS if e.checkpointing else ENCODING,
    )
    assert steps.climb() == "a gradient"
    assert steps.attempts == [(1, False), (1, True), (8, True)]


def test_a_model_without_layers_has_chunks_alone_to_try() -> None:
    steps = Steps(lambda step_sizes: False)
    steps.step_sizes.can_checkpoint = False
    with pytest.raises(OutOfMemoryError):
        steps.climb()
    assert steps.attempts == [(1, False), (8, False), (64, False)]
    steps.step_sizes.micro_batches = 4
    assert shrink(steps.step_sizes, most_micro_batches=4) is None


@pytest.mark.parametrize("where", [LOSS, ENCODING, GRADIENTS])
def test_what_did_not_help_is_taken_back_after_a_handful_of_attempts(where: str) -> None:
    steps = Steps(lambda step_sizes: False, where=lambda e: where)
    with pytest.raises(OutOfMemoryError, match=f"out of memory \\(in {where}: "):
        steps.climb()
    assert len(steps.attempts) == {LOSS: 6, ENCODING: 2, GRADIENTS: 1}[where]
    assert (steps.step_sizes.sizes(), steps.step_sizes.history) == (StepSizes().sizes(), [])


def test_a_rung_that_the_settings_took_is_not_taken_again() -> None:
    step_sizes = StepSizes(micro_batches=4, checkpointing=True)
    assert shrink(step_sizes, most_micro_batches=4) is None
    assert step_sizes.history == []


def test_the_end_says_what_was_tried_and_may_be_attempted_again() -> None:
    steps = Steps(lambda step_sizes: False)
    with pytest.raises(OutOfMemoryError) as caught:
        steps.climb()
    assert isinstance(caught.value, ResourceError)
    assert caught.value.exit_code == 2
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(f"out of memory (in the loss: {REFUSAL.splitlines()[0]}); in use ")
    assert re.search("tried: .* 8 chunks; .* 64 chunks; .*gradient checkpointing", said)
    assert said.endswith("Reduce something")
    assert steps.cleared == len(steps.attempts) == 6


def test_where_it_must_not_shrink_the_first_failure_is_the_end() -> None:
    steps = Steps(lambda step_sizes: False)
    with pytest.raises(OutOfMemoryError) as caught:
        steps.climb(repeatable=False)
    assert "tried: nothing" in str(caught.value)
    assert len(steps.attempts) == 1
    assert steps.step_sizes.sizes() == StepSizes().sizes()


class TestWithoutASmallerForm:
    def test_an_evaluation_goes_on_in_smaller_blocks(self) -> None:
        request: list[int] = []
        notes: list[str] = []

        def evaluate(parts: int) -> str:
            request.append(parts)
            if parts < 64:
                raise RuntimeError(REFUSAL)
            return "figures"

        options: dict[str, Any] = {"clear": lambda: None, "note": notes.append, "remedy": "Reduce", "repeatable": True}
        assert in_smaller_blocks(evaluate, parts=1, **options) == ("figures", 64)
        assert request == [1, 8, 64]
        (note,) = notes
        assert note.startswith("out of memory in the evaluation")
        assert "1/64" in note
        with pytest.raises(OutOfMemoryError, match="in the evaluation"):
            in_smaller_blocks(evaluate, parts=1, **options | {"repeatable": False})


def test_an_interpreter_without_memory_says_nothing_and_is_understood() -> None:
    steps = Steps(lambda step_sizes: step_sizes.micro_batches == 8, MemoryError())
    assert steps.climb() == "a gradient"
    assert re.match(r"out of memory in the loss \(MemoryError\): .* 8 chunks", steps.notes[0])


def test_other_errors_pass() -> None:
    steps = Steps(lambda step_sizes: False, RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        steps.climb()
    assert (len(steps.attempts), steps.cleared) == (1, 0)


# -- in a training ---------------------------------------------------------------------------------------------------


def refuse(patch: pytest.MonkeyPatch, until: Callable[[int], bool]) -> None:
    """Systems whose second step runs out of memory, in its first chunk, until ``until(number of failures)``."""
    failures = [0]

    def fail(step: int, chunk: int) -> None:
        if (step, chunk) == (1, 0) and not until(failures[0]):
            failures[0] += 1
            raise RuntimeError(REFUSAL)

    hooks = Hooks()
    hooks.on_chunk = fail
    hooks.install(patch)


def test_recomputing_layers_gives_the_same_training_bit_for_bit(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss fails twice more, in more chunks; recomputing changes no bit, and the chunks are as they were."""
    values = settings_of(CASES["hgt-full"], graphs["hgt-full"])
    plain = outcome(run(values, tmp_path / "plain"))
    refuse(monkeypatch, until=lambda failures: failures == 3)
    result = run(values, tmp_path / "shrunk")
    (shrunk,) = result["shrunk"]
    assert "3 chunks, gradient checkpointing" in shrunk
    assert any("gradient checkpointing on" in note for note in result["notes"])
    answer = outcome(result)
    reached = [each.state.pop("step_sizes")["reached"] for each in (plain, answer)]
    assert [each["checkpointing"] for each in reached] == [False, True]
    assert_same(answer, plain)


def test_evaluations_are_inside_the_ladder_and_store_no_rung(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings_of(CASES["mf"], graphs["mf"])
    plain = outcome(run(values, tmp_path / "plain"))
    failed = []

    def once(*_: Any) -> None:
        if not failed:
            failed.append(True)
            raise RuntimeError(REFUSAL)

    hooks = Hooks()
    hooks.on_evaluation = once
    hooks.install(monkeypatch)
    result = run(values, tmp_path / "failed")
    assert failed
    assert result["shrunk"] == []
    assert_same(outcome(result), plain)


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad"])
def test_moments_made_before_the_first_step_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingSettings, "OPTIMIZER", name)
    settings = TrainingSettings(weight_decay=0.1)
    result = []
    for before in (False, True):
        parameters = [torch.nn.Parameter(torch.linspace(-1, 1, 6)), torch.nn.Parameter(torch.ones(2))]
        optimizer = PhaseOptimizer(settings, [ParameterGroup(["a", "b"], parameters)], torch.device("cpu"))
        parameters[0].grad, parameters[1].grad = torch.linspace(2, -3, 6), torch.tensor([-0.0, 1.0])
        if before:
            optimizer.allocate()
            made = {key for key in optimizer.tensors("") if not key.endswith(".step")}
            assert len(made) == (2 if name == "adagrad" else 4)
        for _ in range(3):
            optimizer.step(0.1)
        result.append([p.detach() for p in parameters] + list(optimizer.tensors("").values()))
    assert all(torch.equal(one, other) for one, other in zip(*result, strict=True))
