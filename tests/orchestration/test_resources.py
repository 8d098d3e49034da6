"""The accelerator resource decides the device of a run, and nothing else of it."""

import pytest

from graphmill.errors import SettingsError
from graphmill.orchestration.resources import AcceleratorResource


def test_it_overrides_the_device_of_the_settings() -> None:
    resource = AcceleratorResource(device="cpu")
    assert resource.overrides() == {"acceleration.device": "cpu"}


@pytest.mark.parametrize(("index", "already", "visible"), [(0, "", ""), (2, "", "2"), (1, "4,7", "7"), (0, "4,7", "")])
def test_the_index_counts_among_the_visible_devices(
    index: int, already: str, visible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", already)
    assert AcceleratorResource(index=index).environment().get("CUDA_VISIBLE_DEVICES", "") == visible


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_that_does_not_exist_is_refused(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with pytest.raises(SettingsError, match=r"resources\.accelerator\.index"):
        AcceleratorResource(index=index).environment()
