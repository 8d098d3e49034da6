"""The accelerator resource decides the device of a run, and nothing else of it."""

from graphmill.orchestration.resources import AcceleratorResource


def test_it_overrides_the_device_of_the_settings() -> None:
    resource = AcceleratorResource(device="cpu")
    assert resource.overrides() == {"acceleration.device": "cpu"}
