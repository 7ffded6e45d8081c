"""Advice names parameters that the function has which gives it."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import panther

BAGS = {f"s{i}": np.random.default_rng(i).normal(i % 2, 1, (30, 4)) for i in range(4)}


@pytest.fixture
def picture(tmp_path):
    Image.fromarray(np.full((300, 400, 3), 240, np.uint8)).save(tmp_path / "slide.png")
    return tmp_path / "slide.png"


@pytest.fixture
def parts(tmp_path):
    (tmp_path / "fold").mkdir()
    for part, slides in {"train": list(BAGS)[:3], "test": list(BAGS)[3:]}.items():
        pd.DataFrame({"slide_id": slides, "kind": "aba"[: len(slides)]}).to_csv(tmp_path / "fold" / f"{part}.csv")
    return tmp_path / "fold"


def refused(function, *given, **more):
    """What is said; every parameter in it is one of the function's."""
    with pytest.raises(panther.InputError) as caught:
        function(*given, **more)
    named = re.findall(r"`([a-z_]+)=[^`]*`", str(caught.value))
    assert set(named) <= set(inspect.signature(function).parameters)
    return str(caught.value)


def test_a_slide_without_a_resolution(picture):
    assert "`mpp=0.25`" in refused(panther.open_slide, picture)
    assert "`slide_mpp=0.25`" in refused(panther.extract, picture)
    assert "`mpp=0.25`" not in refused(panther.open_slide, picture.with_name("none.png"))


def test_a_folder_in_the_place_of_a_table(parts):
    assert "expected one of its tables (*.csv: test.csv, train.csv)" in refused(panther.load_cohort, parts, "kind")
    assert "`split=train`" in refused(panther.train, BAGS, parts, label="kind")
    assert "`split=train`" in refused(panther.fit_prototypes, BAGS, 2, table=parts)
    assert "expected one of its tables" in refused(
        panther.retrieval, panther.embed_cohort(BAGS, method="mean"), parts, "kind"
    )
