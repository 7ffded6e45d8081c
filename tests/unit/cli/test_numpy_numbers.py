"""Numbers of numpy are numbers: notebooks have them from `np.arange`, `len` of a column, or a grid search."""

import json

import numpy as np
import pandas as pd
import pytest

import panther
from panther.errors import InputError, check_whole, plain

TISSUES = np.random.default_rng(0).normal(size=(3, 4)) * 3
BAGS = {
    f"s{i}": np.random.default_rng(i).normal(size=(40, 4)) + TISSUES[[0, 1, 1 + i % 2, i % 2] * 10] for i in range(16)
}
TABLE = pd.DataFrame({"slide_id": list(BAGS), "case_id": list(BAGS), "subtype": ["a", "b"] * 8})
N = np.int64


@pytest.fixture(scope="module")
def prototypes():
    return panther.fit_prototypes(BAGS, N(3), seed=N(1), sample=np.int32(500), memory_gb=np.float32(1))


def test_numpy_settings_become_python_numbers_and_can_be_saved(prototypes, tmp_path):
    json.dumps(dict(prototypes.settings))
    panther.save_prototypes(prototypes, tmp_path / "prototypes.safetensors")
    same = panther.fit_prototypes(BAGS, 3, seed=1, sample=500, memory_gb=1)
    assert same.content_hash() == prototypes.content_hash()


def test_embeddings(prototypes, tmp_path):
    one = panther.embed(BAGS["s0"], prototypes, steps=N(2), tau=np.float32(2))
    assert (one.vector == panther.embed(BAGS["s0"], prototypes, steps=2, tau=2.0).vector).all()
    table = panther.embed_cohort(BAGS, prototypes, steps=N(2))
    assert type(table.settings["steps"]) is int
    top = panther.embed(BAGS["s0"], method="top-k", k=N(3)).vector
    np.testing.assert_array_equal(top, panther.embed(BAGS["s0"], method="top-k", k=3).vector)
    assert len(panther.similar(table, "s0", k=N(2)).hits) == 2
    found = panther.retrieval(table, TABLE, "subtype", at=np.arange(1, 3), bootstrap=N(0), seed=N(0))
    assert set(found.summary["k"]) == {1, 2}


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float64(3), np.array(3), "3", None])
def test_values_that_are_no_whole_numbers_are_refused(value):
    with pytest.raises(InputError, match=r"k: found .*, expected a whole number from 1 to 9"):
        check_whole("k", value, 1, 9)


def test_plain_numbers_are_found_inside():
    given = {"a": [N(1), (np.float64(2),)], "b": np.arange(2), "c": "text", "d": np.ones((2, 2))}
    made = plain(given)
    assert json.dumps({key: made[key] for key in "abc"}) == '{"a": [1, [2.0]], "b": [0, 1], "c": "text"}'
    assert made["d"] is given["d"]
