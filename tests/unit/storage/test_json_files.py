"""One way to write JSON."""

import json

import pytest

from panther.storage.files import write_json


def test_any_text_comes_back_and_the_bytes_are_the_same_again(tmp_path):
    value = {"π": [1, 0.1, None], "slide": "Präparat \udc80"}  # the last is how Python holds a name that is no Unicode
    for name in ("a.json", "b.json"):
        write_json(tmp_path / name, value)
    content = (tmp_path / "a.json").read_bytes()
    assert content == (tmp_path / "b.json").read_bytes()
    assert json.loads(content.decode("utf-8")) == value
    assert "π" in content.decode("utf-8")
    assert content.endswith(b"}\n")


def test_what_json_cannot_say_is_refused_and_no_file_appears(tmp_path):
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(tmp_path / "a.json", [value])
    assert not list(tmp_path.iterdir())
