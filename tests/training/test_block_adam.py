"""Adam in blocks: torch's update where it claims to be, and what lazy rows and bfloat16 moments change."""

from pathlib import Path
from typing import Any

import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.settings import parse
from graphmill.systems import registry
from graphmill.training import block_adam
from graphmill.training.block_adam import BlockAdam, stochastically_rounded
from graphmill.training.contract import ParameterGroup
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.planning import Cost, peak_memory_of
from graphmill.training.settings import TrainingSettings
from tests.training.cases import CASES
from tests.training.runs import run, settings_of

BETAS = (0.9, 0.999)


def parameters(dtype: torch.dtype = torch.float64) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
        for shape in ((37, 5), (4, 3, 2), (11,), ())
    ]


def train(optimizer: torch.optim.Optimizer, chosen: list[torch.nn.Parameter], steps: int) -> None:
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        for parameter in chosen:
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        optimizer.step()


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_without_its_options_it_is_torchs_update(decoupled: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_adam, "_BLOCK", block)
    mine, theirs = parameters(), parameters()
    options: dict[str, Any] = {"lr": 0.01, "betas": BETAS}
    own = BlockAdam([{"params": mine, "weight_decay": 0.1}], decoupled=decoupled, lazy=False, moments=None, **options)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    train(own, mine, 12)
    train(kind([{"params": theirs, "weight_decay": 0.1}], **options), theirs, 12)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


class TestLazyRows:
    def test_it_is_torchs_adam_for_sparse_gradients(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(block_adam, "_BLOCK", 10)
        start = torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        mine, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
        own = BlockAdam([mine], lr=0.01, betas=BETAS, decoupled=True, lazy=True, moments=None)
        other = torch.optim.SparseAdam([theirs], lr=0.01, betas=BETAS)
        for step in range(10):
            rows = torch.randperm(20, generator=torch.Generator().manual_seed(step))[:6]
            values = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(100 + step))
            mine.grad = torch.zeros_like(mine).index_copy(0, rows, values)
            theirs.grad = torch.sparse_coo_tensor(rows[None], values, (20, 4), check_invariants=True)
            own.step()
            other.step()
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)  # its ε acts before the bias correction

    def test_rows_without_a_gradient_keep_weights_and_moments_to_the_bit(self) -> None:
        table = torch.nn.Parameter(torch.randn(6, 3))
        own = BlockAdam(
            [{"params": [table], "weight_decay": 0.5}], lr=0.1, betas=BETAS, decoupled=True, lazy=True, moments=None
        )
        table.grad = torch.randn(6, 3)
        own.step()
        before, first = table.detach().clone(), own.state[table]["exp_avg"].clone()
        table.grad = torch.zeros(6, 3)
        table.grad[2] = 1.0
        own.step()
        others = [0, 1, 3, 4, 5]
        torch.testing.assert_close(table.detach()[others], before[others], rtol=0, atol=0)
        torch.testing.assert_close(own.state[table]["exp_avg"][others], first[others], rtol=0, atol=0)
        assert not torch.equal(table.detach()[2], before[2])


class TestLowMoments:
    def test_rounding_is_right_on_average_and_never_off_by_more_than_a_step(self) -> None:
        x = torch.full((200_000,), 1.0 + 2**-10)
        rounded = stochastically_rounded(x, 5).double()
        assert set(rounded.unique().tolist()) == {1.0, 1.0 + 2**-7}
        assert float(rounded.mean()) == pytest.approx(1.0 + 2**-10, abs=4 * 2**-7 * (0.125 * 0.875 / 200_000) ** 0.5)
        again = stochastically_rounded(x, 5).double()
        torch.testing.assert_close(again, rounded, rtol=0, atol=0)
        exact = torch.tensor([0.0, 1.5, -2.0])
        torch.testing.assert_close(stochastically_rounded(exact, 1).float(), exact, rtol=0, atol=0)

    def test_the_second_moment_gets_where_it_belongs_though_its_steps_are_below_bfloat16(self) -> None:
        table = torch.nn.Parameter(torch.zeros(64, 64))
        own = BlockAdam([table], lr=1e-4, betas=BETAS, decoupled=True, lazy=False, moments=torch.bfloat16)
        for _ in range(3000):
            table.grad = torch.ones(64, 64)
            own.step()
        second = own.state[table]["exp_avg_sq"]
        assert second.dtype == torch.bfloat16
        assert float(second.float().mean()) == pytest.approx(1 - 0.999**3000, rel=0.01)

    def test_a_restored_state_goes_on_to_the_bit(self) -> None:
        settings = TrainingSettings(optimizer="lazy_adamw", moments="bf16")

        def fresh(values: list[torch.Tensor]) -> tuple[PhaseOptimizer, list[torch.nn.Parameter]]:
            chosen = [torch.nn.Parameter(v.clone()) for v in values]
            names = [str(i) for i in range(len(chosen))]
            return PhaseOptimizer(settings, [ParameterGroup(names, chosen, True)], torch.device("cpu")), chosen

        start = [p.detach() for p in parameters(torch.float32)]
        whole, one = fresh(start)
        train(whole.optimizer, one, 6)
        half, two = fresh(start)
        train(half.optimizer, two, 3)
        again, three = fresh([p.detach() for p in two])
        again.load("o", {k: v.clone() for k, v in half.tensors("o").items()})
        for step in range(3, 6):
            generator = torch.Generator().manual_seed(step)
            for parameter in three:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            again.step(settings.learning_rate)
        for a, b in zip(one, three, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)

    def test_estimates_count_half_of_the_state(self) -> None:
        cost = Cost(weights=1000, held=0, step=0, gradients=0, evaluation=0, flop=0, moved=0, calls=0)
        whole, _ = peak_memory_of(cost, "adamw", heap="stock", device="cuda")
        low, _ = peak_memory_of(cost, "adamw", heap="stock", device="cuda", low_moments=True)
        assert (whole, low) == (3000, 2000)


class TestAsSettings:
    @pytest.mark.parametrize("name", ["hgt-edge-sampled", "conve-kvsall", "mmgcn"])
    @pytest.mark.parametrize(
        "training", [{"optimizer": "lazy_adamw"}, {"moments": "bf16"}, {"optimizer": "adam", "moments": "bf16"}]
    )
    def test_a_run_with_them_learns_and_resumes(
        self, name: str, training: dict[str, Any], graphs: dict[str, TypedGraph], tmp_path: Path
    ) -> None:
        sections = {"training": {**training, "epochs": 2}}
        result = run(settings_of(CASES[name], graphs[name], sections), tmp_path)
        assert result["epochs_done"] == 2
        longer = run(settings_of(CASES[name], graphs[name], {"training": {**training, "epochs": 3}}), tmp_path)
        assert longer["epochs_done"] == 3
        assert longer["run_dir"] == result["run_dir"]

    def test_moments_of_sgd_are_refused(self) -> None:
        for recipe in ("hgt", "conve", "sasrec", "mmgcn"):
            values = {"recipe": recipe, "training": {"optimizer": "sgd", "moments": "bf16"}}
            with pytest.raises(SettingsError, match=r"moments: bf16 is about Adam's state; sgd has none"):
                parse(registry.settings_model(recipe), values, "settings.yaml")
