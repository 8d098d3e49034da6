"""The ladder of out-of-memory: which rungs, in which order, what is said at its end, and what it does not touch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphmill.errors import OutOfMemoryError, ResourceError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.training.contract import Execution
from graphmill.training.ladder import shrink, with_ladder
from graphmill.training.run_directory import RunDirectory
from tests.training.cases import CASES
from tests.training.runs import Hooks, assert_same, outcome, run, settings_of

REFUSAL = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes\nand a second line"


class Steps:
    """An attempt that runs out of memory until ``fits`` says that the execution is small enough."""

    def __init__(self, fits: Callable[[Execution], bool], error: Exception | None = None) -> None:
        self.fits, self.error = fits, error or RuntimeError(REFUSAL)
        self.execution = Execution()
        self.attempts: list[dict[str, int | bool]] = []
        self.cleared = 0
        self.notes: list[str] = []

    def attempt(self) -> str:
        self.attempts.append(self.execution.sizes())
        if not self.fits(self.execution):
            raise self.error
        return "a gradient"

    def clear(self) -> None:
        self.cleared += 1

    def climb(self, policy: str = "shrink", *, repeatable: bool = True, chunks: int = 4) -> str:
        return with_ladder(
            self.attempt,
            execution=self.execution,
            policy=policy,
            max_loss_chunks=chunks,
            clear=self.clear,
            note=self.notes.append,
            remedy="Reduce something",
            repeatable=lambda: repeatable,
        )


def test_what_fits_takes_no_rung() -> None:
    steps = Steps(lambda execution: True)
    assert steps.climb() == "a gradient"
    assert (steps.cleared, steps.notes, steps.execution.history) == (0, [], [])


def test_chunks_are_halved_first_and_checkpointing_is_the_last_rung() -> None:
    steps = Steps(lambda execution: execution.checkpointing)
    assert steps.climb(chunks=6) == "a gradient"
    assert [tuple(sizes.values()) for sizes in steps.attempts] == [
        (1, False),
        (2, False),
        (4, False),
        (6, False),
        (6, True),
    ]
    assert steps.cleared == 4, "what was half done is cleared before every repetition"
    assert steps.execution.history == [
        "loss in 2 chunks",
        "loss in 4 chunks",
        "loss in 6 chunks",
        "gradient checkpointing on",
    ]
    assert steps.notes[-1] == (
        f"out of memory ({REFUSAL.splitlines()[0]}): going on with gradient checkpointing on; the gradient stays the same"
    )


def test_a_rung_that_the_settings_took_is_not_taken_again() -> None:
    execution = Execution(loss_chunks=4, checkpointing=True)
    assert shrink(execution, max_loss_chunks=4) is None
    assert execution.history == []


def test_the_end_says_what_was_tried_and_may_be_attempted_again() -> None:
    steps = Steps(lambda execution: False)
    with pytest.raises(OutOfMemoryError) as caught:
        steps.climb()
    assert isinstance(caught.value, ResourceError)
    assert caught.value.exit_code == 2
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(
        "out of memory (DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes); in use "
    )
    assert "tried: loss in 2 chunks; loss in 4 chunks; gradient checkpointing on. Reduce " in said
    assert steps.cleared == len(steps.attempts) == 4


@pytest.mark.parametrize(
    ("policy", "repeatable", "why"),
    [("stop", True, "acceleration.on_oom: stop"), ("shrink", False, "the processes had begun to add up")],
)
def test_where_it_must_not_shrink_the_first_failure_is_the_end(policy: str, repeatable: bool, why: str) -> None:
    steps = Steps(lambda execution: False)
    with pytest.raises(OutOfMemoryError) as caught:
        steps.climb(policy, repeatable=repeatable)
    assert f"tried: nothing ({why}). Reduce " in str(caught.value)
    assert len(steps.attempts) == 1
    assert steps.execution.sizes() == Execution().sizes()


def test_an_interpreter_without_memory_says_nothing_and_is_understood() -> None:
    steps = Steps(lambda execution: execution.loss_chunks == 2, MemoryError())
    assert steps.climb() == "a gradient"
    assert steps.notes == ["out of memory (MemoryError): going on with loss in 2 chunks; the gradient stays the same"]


def test_other_errors_pass() -> None:
    steps = Steps(lambda execution: False, RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        steps.climb()
    assert (len(steps.attempts), steps.cleared) == (1, 0)


# -- in a training ---------------------------------------------------------------------------------------------------


def refuse(patch: pytest.MonkeyPatch, until: Callable[[int], bool]) -> None:
    """Recipes whose second step runs out of memory, in its first chunk, until ``until(number of failures)``."""
    failures = [0]

    def fail(step: int, chunk: int) -> None:
        if (step, chunk) == (1, 0) and not until(failures[0]):
            failures[0] += 1
            raise RuntimeError(REFUSAL)

    hooks = Hooks()
    hooks.on_chunk = fail
    hooks.install(patch)


def test_checkpointing_as_a_rung_gives_the_same_training_bit_for_bit(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recomputing changes no bit; the chunks are already as many as there may be, so that it is the only rung left."""
    monkeypatch.setattr("graphmill.training.engine._MAX_LOSS_CHUNKS", 3)
    values = settings_of(CASES["hgt-full"], graphs["hgt-full"])
    plain = outcome(run(values, tmp_path / "plain"))
    refuse(monkeypatch, until=lambda failures: failures == 1)
    result = run(values, tmp_path / "shrunk")
    assert result["shrunk"] == ["gradient checkpointing on"]
    assert any("going on with gradient checkpointing on" in note for note in result["notes"])
    found = outcome(result)
    reached = [each.state.pop("execution")["reached"] for each in (plain, found)]
    assert [each["checkpointing"] for each in reached] == [False, True]
    assert_same(found, plain)


def test_on_oom_stop_ends_with_the_sentence_and_the_run_goes_on_later(
    graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "hgt-no-messages"
    values = settings_of(CASES[name], graphs[name], {"acceleration": {"on_oom": "stop"}})
    with monkeypatch.context() as patch:
        refuse(patch, until=lambda failures: False)
        with pytest.raises(OutOfMemoryError, match=r"tried: nothing \(acceleration\.on_oom: stop\)\. Reduce "):
            run(values, tmp_path / "twice")
    result = run(values, tmp_path / "twice")
    assert not RunDirectory(result["run_dir"]).read_json("report.json")["shrunk"]
    assert_same(outcome(result), outcome(run(values, tmp_path / "once")))
