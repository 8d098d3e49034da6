"""The start that MMGCN's parity is measured from."""

import torch
from benchmarks.mmgcn_parity import draw_public_start

from graphmill.systems.mmgcn.model import MMGCN, MMGCNConfig


def make() -> MMGCN:
    features = [torch.randn(7, 5), torch.randn(7, 6)]
    return MMGCN(MMGCNConfig(4, 7, (8, 0), embedding_dim=3, trainable_embeddings=False), features)


def test_every_number_is_drawn_anew_from_the_seed_alone() -> None:
    first, second, other = make(), make(), make()
    before = {name: value.clone() for name, value in first.state_dict().items()}
    for model, seed in ((first, 999), (second, 999), (other, 1)):
        draw_public_start(model, seed)
    for name, value in first.state_dict().items():
        assert not torch.equal(value, before[name]), name
        assert torch.equal(value, second.state_dict()[name]), name
        assert not torch.equal(value, other.state_dict()[name]), name


def test_numbers_come_in_the_order_of_the_public_constructor() -> None:
    model = make()
    draw_public_start(model, 999)
    torch.manual_seed(999)
    preference = torch.nn.init.xavier_normal_(torch.rand(4, 8))
    projection = torch.nn.Linear(5, 8)
    tower = model.towers[0]
    assert torch.equal(tower.preference, preference)  # type: ignore[arg-type]
    assert torch.equal(tower.projection.weight, projection.weight)  # type: ignore[arg-type, union-attr]
    assert torch.equal(tower.projection.bias, projection.bias)  # type: ignore[arg-type, union-attr]
