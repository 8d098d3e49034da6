"""ConvE against the paper's formula written out with loops, against PyKEEN where it is installed, and its norms."""

import numpy as np
import pytest
import torch

from graphmill.systems.conve.model import ConvE, ConvEConfig
from graphmill.systems.conve.synced_norm import SyncedBatchNorm

SMALL = ConvEConfig(
    num_entities=7,
    num_relations=4,
    embedding_dim=12,
    embedding_height=3,
    embedding_width=4,
    output_channels=2,
    kernel_height=2,
    kernel_width=3,
)


def lively(model: ConvE, seed: int = 0) -> ConvE:
    """Every parameter and statistic away from its neutral value, so that leaving one out would show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensor.normal_(0.0, 0.5, generator=generator)
            if name.endswith("running_var"):
                tensor.abs_().add_(0.5)
    return model


def by_hand(model: ConvE, head: int, relation: int) -> np.ndarray:
    """Scores of all tails, from the formulas of the paper."""
    c, w = model.config, {name: t.detach().numpy() for name, t in model.state_dict().items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        shape = (-1, *(1 for _ in x.shape[1:]))
        mean, variance = w[f"{name}.running_mean"].reshape(shape), w[f"{name}.running_var"].reshape(shape)
        scale = w[f"{name}.weight"].reshape(shape) / np.sqrt(variance + 1e-5)
        return (x - mean) * scale + w[f"{name}.bias"].reshape(shape)

    shape = (c.embedding_height, c.embedding_width)
    picture = np.vstack([w["entities"][head].reshape(shape), w["relations"][relation].reshape(shape)])
    picture = norm(picture[None], "input_norm")[0]
    height, width = c.positions
    maps = np.empty((c.output_channels, height, width))
    for channel in range(c.output_channels):
        for i in range(height):
            for j in range(width):
                window = picture[i : i + c.kernel_height, j : j + c.kernel_width]
                kernel = w["convolution.weight"][channel, 0]
                maps[channel, i, j] = (window * kernel).sum() + w["convolution.bias"][channel]
    features = np.maximum(norm(maps, "feature_norm"), 0).reshape(-1)
    hidden = w["projection.weight"] @ features + w["projection.bias"]
    x = np.maximum(norm(hidden, "output_norm"), 0)
    return w["entities"] @ x + w["entity_bias"]


class TestTheFormula:
    def test_scores_are_those_of_the_paper(self) -> None:
        model = lively(ConvE(SMALL)).double().eval()
        heads, relations = torch.tensor([0, 6, 3]), torch.tensor([1, 3, 0])
        scores = model.scores(model(heads, relations))
        for row, (h, r) in enumerate(zip(heads.tolist(), relations.tolist(), strict=True)):
            np.testing.assert_allclose(scores[row].detach().numpy(), by_hand(model, h, r), rtol=1e-10)

    def test_pair_scores_are_entries_of_all_scores(self) -> None:
        model = lively(ConvE(SMALL)).double().eval()
        x = model(torch.tensor([0, 5]), torch.tensor([1, 2]))
        tails = torch.tensor([[3, 0, 6], [2, 2, 1]])
        torch.testing.assert_close(model.pair_scores(x, tails), model.scores(x).gather(1, tails))

    @pytest.mark.parametrize(("height", "width", "features"), [(10, 20, 10_368), (20, 10, 9_728)])
    def test_both_shapes_of_width_200(self, height, width, features) -> None:
        config = ConvEConfig(5, 2, embedding_height=height, embedding_width=width)
        assert config.features == features
        model = ConvE(config).eval()
        assert model(torch.tensor([0]), torch.tensor([1])).shape == (1, 200)


class TestPyKeen:
    def test_scores_equal_pykeens_with_copied_weights(self) -> None:
        pytest.importorskip("pykeen", reason="PyKEEN is not installed (an extra of the benchmarks)")
        from pykeen.models import ConvE as Theirs
        from pykeen.triples import TriplesFactory

        triples = torch.tensor([[0, 0, 1], [1, 1, 2], [2, 0, 3], [3, 1, 4]])
        factory = TriplesFactory(triples, {str(i): i for i in range(5)}, {"a": 0, "b": 1}, create_inverse_triples=True)
        theirs = Theirs(triples_factory=factory, embedding_dim=200, embedding_height=10, embedding_width=20).eval()
        model = lively(ConvE(ConvEConfig(num_entities=5, num_relations=4)), 1).eval()
        # PyKEEN numbers a relation 2r and its inverse 2r + 1; here the inverse is r + M.
        order = [0, 2, 1, 3]
        pairs = {
            "interaction.hr2d.0": "input_norm",
            "interaction.hr2d.2": "convolution",
            "interaction.hr2d.3": "feature_norm",
            "interaction.hr1d.0": "projection",
            "interaction.hr1d.2": "output_norm",
        }
        mine, state = model.state_dict(), theirs.state_dict()
        for name in state:
            for their_name, my_name in pairs.items():
                if name.startswith(their_name + ".") and not name.endswith("num_batches_tracked"):
                    state[name].copy_(mine[my_name + name.removeprefix(their_name)])
        state["entity_representations.0._embeddings.weight"].copy_(mine["entities"])
        state["entity_representations.1._embeddings.weight"].copy_(mine["entity_bias"][:, None])
        state["relation_representations.0._embeddings.weight"].copy_(mine["relations"][order])
        with torch.no_grad():
            wanted = theirs.score_t(torch.stack([triples[:, 0], 2 * triples[:, 1]], dim=1))
            got = model.scores(model(triples[:, 0], triples[:, 1]))
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


class TestNorms:
    def test_in_training_it_is_torchs_batch_norm_running_statistics_included(self) -> None:
        x = torch.randn(6, 3, 4, 5)
        mine, theirs = SyncedBatchNorm(3), torch.nn.BatchNorm2d(3)
        torch.testing.assert_close(mine(x), theirs(x))
        torch.testing.assert_close(mine.running_mean, theirs.running_mean)
        torch.testing.assert_close(mine.running_var, theirs.running_var)
        torch.testing.assert_close(mine.eval()(x), theirs.eval()(x))

    def test_the_form_for_several_processes_is_the_same_function(self) -> None:
        x = torch.randn(6, 3, 4, dtype=torch.float64, requires_grad=True)
        one, several = SyncedBatchNorm(3).double(), SyncedBatchNorm(3).double()
        weights = torch.randn(6, 3, 4, dtype=torch.float64)
        torch.testing.assert_close(several._over_processes(x), one(x))
        (mine,) = torch.autograd.grad((several._over_processes(x) * weights).sum(), x)
        (theirs,) = torch.autograd.grad((one(x) * weights).sum(), x)
        torch.testing.assert_close(mine, theirs)

    def test_a_single_row_gives_the_shift(self) -> None:
        norm = SyncedBatchNorm(3)
        with torch.no_grad():
            norm.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
        torch.testing.assert_close(norm(torch.randn(1, 3)), torch.tensor([[1.0, 2.0, 3.0]]))


class TestCheckpointing:
    def test_gradients_and_running_statistics_are_those_without_it(self) -> None:
        results = []
        for checkpointing in (False, True):
            torch.manual_seed(3)
            model = ConvE(SMALL, checkpointing=checkpointing).double()
            torch.manual_seed(4)
            model.scores(model(torch.tensor([0, 1, 2, 5]), torch.tensor([0, 1, 2, 3]))).square().sum().backward()
            results.append(
                [p.grad for p in model.parameters() if p.grad is not None] + [b.clone() for b in model.buffers()]
            )
        for plain, recomputed in zip(*results, strict=True):
            torch.testing.assert_close(recomputed, plain, rtol=1e-12, atol=1e-12)

    def test_the_maps_are_recomputed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []
        original = ConvE.hidden
        monkeypatch.setattr(ConvE, "hidden", lambda self, x: calls.append(1) or original(self, x))
        model = ConvE(SMALL, checkpointing=True)
        model(torch.tensor([0, 1]), torch.tensor([0, 1])).sum().backward()
        assert len(calls) == 2
