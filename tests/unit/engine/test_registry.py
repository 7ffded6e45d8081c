"""The registry: names, entries, and metadata that is checked."""

from dataclasses import dataclass

import pytest

from panther.errors import InputError
from panther.registry import Nothing, Registry


@dataclass(frozen=True)
class Info:
    name: str
    dim: int
    options: tuple[str, ...] = ()


@pytest.fixture
def colours():
    registry = Registry("colour", Info)
    registry.register("red", dim=3, options=("depth",))(lambda: "r")
    return registry


def test_a_misspelt_key_of_the_metadata_gets_a_suggestion(colours):
    with pytest.raises(TypeError, match="the colour 'blue' has metadata 'dimm'; did you mean 'dim'"):
        colours.register("blue", dimm=3)
    with pytest.raises(TypeError, match="dim"):
        colours.register("blue")  # a fact is missing
    with pytest.raises(TypeError, match="title"):
        Registry("reader", Nothing).register("npy", title="NumPy")


def test_a_name_is_registered_once(colours):
    with pytest.raises(ValueError, match="registered already"):
        colours.register("red", dim=1)(None)


def test_unknown_names_and_settings_get_suggestions(colours):
    with pytest.raises(InputError, match="There is no colour 'rod'; did you mean 'red'"):
        colours["rod"]
    with pytest.raises(InputError, match="The colour 'red' has no setting 'deph'; did you mean 'depth'"):
        colours.check_options("red", {"deph": 1})
    colours.check_options("red", ["depth"])
