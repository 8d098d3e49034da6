"""A checkpoint comes back exactly; the store keeps what has a role and loads what was asked for."""

import itertools
import math
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from graphmill.errors import ResourceError
from graphmill.training.checkpoint import CheckpointInfo, CheckpointMissingError, CheckpointStore, Snapshot


def save(store: CheckpointStore, epoch: int, *, step: int = 0, **details: object) -> Path:
    snapshot = Snapshot({"w": torch.full((4,), float(epoch))}, {"epoch": epoch})
    values = {"learning_rate": 0.1, "loss": 1.0} | details
    return store.save(snapshot, epoch=epoch, step=step or 10 * epoch, **values)  # type: ignore[arg-type]


def epochs(store: CheckpointStore) -> list[int]:
    return [info.epoch for info in store.list()]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


class TestWhatComesBack:
    def test_every_dtype_shape_and_bit_pattern(self, tmp_path: Path) -> None:
        base = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4) / 7
        tensors = {str(dtype): base.to(dtype) for dtype in (torch.float64, torch.float32, torch.float16)}
        tensors |= {
            "bf16": torch.tensor([1.0, -0.0, math.inf, -math.inf, math.nan, 3.3895e38, 9.2e-41], dtype=torch.bfloat16),
            "nan with a payload": torch.tensor([0x7FC01234, -0x3FEDCC], dtype=torch.int32).view(torch.float32),
            "bool": torch.tensor([True, False]),
            "int64": torch.tensor([-(2**63), 2**63 - 1]),
            "uint8": torch.get_rng_state(),
            "0-d": torch.tensor(0.1),
            "empty": torch.empty(0, 5, dtype=torch.int32),
            "transposed": torch.arange(6.0).reshape(2, 3).T,
            "strided": torch.arange(20)[::3],
            "expanded": torch.tensor([1.5]).expand(4),
            "name with ü, \" and \n": torch.ones(1),
        }  # fmt: skip
        store = CheckpointStore(tmp_path)
        store.save(Snapshot(tensors), epoch=1, step=1, learning_rate=0.1, loss=1.0)
        loaded = store.load().snapshot.tensors
        assert loaded.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert same_bits(loaded[name], tensor), name

    def test_views_that_start_alike_are_not_tied(self, tmp_path: Path) -> None:
        square = torch.arange(9.0).reshape(3, 3)
        store = CheckpointStore(tmp_path)
        tensors = {"a": square, "transposed": square.T, "bits": square.view(torch.int32)}
        store.save(Snapshot(tensors), epoch=1, step=1, learning_rate=0.1, loss=1.0)
        loaded = store.load().snapshot.tensors
        assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)

    def test_state_is_exact(self, tmp_path: Path) -> None:
        state = {
            "floats": [0.1, 1e-320, -0.0, math.inf, -math.inf, 1 / 3],
            "nested": {"rng": [3, [1, 2, None], "MT"], "big": 2**100, "yes": True, "text": "Ü\ud800"},
        }
        store = CheckpointStore(tmp_path)
        store.save(Snapshot({}, state | {"nan": math.nan}), epoch=1, step=1, learning_rate=0.1, loss=math.nan)
        loaded = store.load().snapshot.state
        assert math.isnan(loaded.pop("nan"))
        assert repr(loaded) == repr(state)  # repr tells -0.0 from 0.0

    @pytest.mark.parametrize("value", [{"x": object()}, {"x": {1, 2}}, {"x": b"bytes"}])
    def test_what_would_not_come_back_is_refused_at_once(self, tmp_path: Path, value: dict) -> None:
        with pytest.raises(TypeError, match="JSON serializable"):
            CheckpointStore(tmp_path).save(Snapshot({}, value), epoch=1, step=1, learning_rate=0.1, loss=1.0)
        assert list(tmp_path.iterdir()) == []

    def test_the_library_reads_our_file(self, tmp_path: Path) -> None:
        tensors = {"a": torch.randn(3, 5), "b": torch.arange(7), "c": torch.tensor(True), "d": torch.ones(3).half()}
        store = CheckpointStore(tmp_path)
        path = store.save(Snapshot(tensors), epoch=1, step=1, learning_rate=0.1, loss=1.0)
        theirs = load_file(path)
        assert theirs.keys() == tensors.keys()
        assert all(same_bits(theirs[name], tensors[name]) for name in tensors)

    def test_equal_content_gives_an_equal_file(self, tmp_path: Path) -> None:
        first, second = save(CheckpointStore(tmp_path / "a"), 1), save(CheckpointStore(tmp_path / "b"), 1)
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes()

    def test_a_generator_goes_on_where_it_was(self, tmp_path: Path) -> None:
        store, generator = CheckpointStore(tmp_path), torch.Generator().manual_seed(3)
        torch.rand(5, generator=generator)
        store.save(Snapshot({"rng": generator.get_state()}), epoch=1, step=1, learning_rate=0.1, loss=1.0)
        expected = torch.rand(5, generator=generator)
        again = torch.Generator()
        again.set_state(store.load().snapshot.tensors["rng"])
        assert torch.equal(torch.rand(5, generator=again), expected)


class TestWhatIsKept:
    def test_last_best_and_final(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_last=2, keep_best=1)
        for epoch, metric in enumerate([0.1, 0.7, 0.3, 0.7, 0.2, math.nan, None], start=1):
            save(store, epoch, metric=metric)
        save(store, 8, final=True)
        roles = {info.epoch: info.roles for info in store.list()}
        assert roles == {2: ("best",), 7: ("last",), 8: ("last", "final")}
        assert store.load("best").epoch == 2  # the earlier one of two equals
        assert store.load("final").epoch == 8
        assert store.load("last").snapshot.state == {"epoch": 8}

    def test_raising_epochs_moves_on_from_the_final_one(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_last=1, keep_best=0)
        save(store, 1, final=True)
        save(store, 2)
        assert store.load("final").epoch == 1  # there is no later result yet
        save(store, 3, final=True)
        assert epochs(store) == [3]

    def test_the_newest_stays_whatever_is_asked(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_last=0, keep_best=0)
        for epoch in (1, 2):
            save(store, epoch)
        assert epochs(store) == [2]

    def test_a_second_save_of_a_step_replaces_the_first_and_inherits(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_last=2)
        save(store, 1)
        save(store, 2, metric=0.5)
        save(store, 2, final=True)
        save(store, 2, loss=0.3)
        (_, info) = store.list()
        assert (info.epoch, info.metric, info.final, info.loss) == (2, 0.5, True, 0.3)
        assert epochs(store) == [1, 2]

    def test_that_does_not_hang_on_the_clock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graphmill.training.checkpoint._modified", lambda _: 0)  # two saves within one tick
        store = CheckpointStore(tmp_path)
        for loss in (0.9, 0.1, 0.5, 0.7):
            save(store, 1, loss=loss)
            assert [info.loss for info in store.list()] == [loss]

    def test_pruning_survives_a_failed_delete(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = CheckpointStore(tmp_path, keep_last=1, keep_best=0)
        save(store, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError(1, "no")))
            save(store, 2)
        assert epochs(store) == [1, 2]
        save(store, 3)
        assert epochs(store) == [3]

    def test_pruning_comes_after_the_new_one_is_durable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = CheckpointStore(tmp_path, keep_last=1, keep_best=0)
        save(store, 1)

        def fail(_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("os.fsync", fail)
        with pytest.raises(ResourceError, match="Input/output error"):
            save(store, 2)
        assert epochs(store) == [1]
        assert len(list(tmp_path.iterdir())) == 1

    def test_discard_after_forgets_an_abandoned_continuation(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_last=5)
        for epoch in (1, 2, 3):
            save(store, epoch)
        store.discard_after(20)
        assert epochs(store) == [1, 2]
        store.discard_after(-1)
        assert epochs(store) == []

    def test_what_a_killed_writer_left_is_cleaned(self, tmp_path: Path) -> None:
        (tmp_path / ".checkpoint.0123abcd.part").write_bytes(b"half")
        save(CheckpointStore(tmp_path), 1)
        assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


class TestInfluence:
    def losses(self, store: CheckpointStore) -> list[float]:
        return [info.loss for info in store.influence()]

    def test_spread_evenly_over_the_falling_loss_with_bounded_disk(self, tmp_path: Path) -> None:
        store, wanted = CheckpointStore(tmp_path, keep_last=1, keep_best=0, keep_influence=5), 5
        for epoch in range(1, 121):
            loss = 4.0 * math.exp(-epoch / 8) + 1.0 + 0.02 * math.sin(7 * epoch)  # falls, then a noisy plateau
            save(store, epoch, loss=loss, learning_rate=1.0 / epoch)
            assert len(epochs(store)) <= 2 * wanted + 1
        chosen = store.influence()
        losses = [info.loss for info in chosen]
        assert len(chosen) == wanted
        assert losses == sorted(losses, reverse=True)
        gaps = [a - b for a, b in itertools.pairwise(losses)]
        assert max(gaps) < 2.5 * (losses[0] - losses[-1]) / (wanted - 1)
        assert min(gaps) > 0.3 * (losses[0] - losses[-1]) / (wanted - 1)
        assert all(info.learning_rate == 1.0 / info.epoch for info in chosen)  # TracIn needs the rate of each
        assert losses[0] > 4.0
        assert losses[-1] < 1.05
        assert store.load(chosen[0]).epoch == chosen[0].epoch

    def test_rising_and_non_finite_losses_do_not_count(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_influence=3)
        for epoch, loss in enumerate([3.0, 3.5, 2.0, math.nan, 2.5, 1.0, math.inf], start=1):
            save(store, epoch, loss=loss)
        assert self.losses(store) == [3.0, 2.0, 1.0]

    def test_the_end_of_the_run_leaves_the_number_asked_for(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_last=1, keep_best=0, keep_influence=2)
        for epoch in range(1, 8):
            save(store, epoch, loss=8.0 - epoch, final=epoch == 7)
        assert [info.loss for info in store.list()] == self.losses(store) == [7.0, 1.0]

    def test_off_by_default(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path)
        save(store, 1)
        assert store.influence() == []


class TestAsking:
    def test_for_an_epoch_its_latest_step_is_taken(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path, keep_last=5)
        for step in (21, 25):
            save(store, 2, step=step)
        save(store, 3, step=31)
        assert store.load(2).step == 25

    @pytest.mark.parametrize("which", [7, "final", "best"])
    def test_for_what_is_not_there_lists_what_is(self, tmp_path: Path, which: str | int) -> None:
        store = CheckpointStore(tmp_path, keep_last=2)
        save(store, 1)
        save(store, 2)
        with pytest.raises(CheckpointMissingError, match=r"epoch 1 step 10 \(last\); epoch 2 step 20 \(last\)"):
            store.load(which)

    def test_in_an_empty_or_absent_directory(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path / "absent")
        assert store.list() == []
        with pytest.raises(CheckpointMissingError, match="there is: none at all"):
            store.load()
        assert not (tmp_path / "absent").exists()  # reading writes nothing

    def test_a_foreign_file_of_a_valid_name_is_not_believed(self, tmp_path: Path) -> None:
        text = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        content = struct.pack("<Q", len(text)) + text + b"\0\0\0\0"
        (tmp_path / "e00001-s00000001-0123456789abcdef.safetensors").write_bytes(content)
        with pytest.raises(CheckpointMissingError, match="checksum differs; set aside as"):
            CheckpointStore(tmp_path).load()

    def test_info_has_what_a_table_of_checkpoints_shows(self, tmp_path: Path) -> None:
        store = CheckpointStore(tmp_path)
        path = save(store, 3, metric=0.25, loss=0.5)
        size = path.stat().st_size
        assert store.list() == [CheckpointInfo(path, 3, 30, ("last", "best"), 0.25, 0.1, 0.5, size, False)]
