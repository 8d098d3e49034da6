import pytest

from graphmill.errors import SettingsError
from graphmill.graph.settings import GraphSettings
from graphmill.settings import identity_of, parse


def test_every_field_is_part_of_the_fingerprint():
    settings = GraphSettings()
    assert identity_of(settings) == settings.model_dump()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"split": {"valid": 0.5, "test": 0.5}}, "leaves nothing to train on"),
        ({"split": {"valid": -0.1}}, "split.valid"),
        ({"include_node_types": ["drug", "disease", "drug"]}, "names 'drug' twice"),
        ({"add_reverse": "always"}, "add_reverse = 'always'"),
        ({"isolated": "drop"}, "unknown setting 'isolated'"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(values, message):
    with pytest.raises(SettingsError, match=message):
        parse(GraphSettings, values, "settings.yaml")
