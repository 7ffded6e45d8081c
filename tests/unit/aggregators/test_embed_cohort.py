"""A cohort of bags becomes one table."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from panther.aggregators import build
from panther.errors import InputError, LeftOutWarning
from panther.storage.prototypes import save_prototypes
from panther.types import Prototypes
from panther.verbs.embed import embed_cohort

PROTOTYPES = Prototypes(torch.eye(3))


@pytest.fixture
def bags():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(40, 3)).astype("f4") for name in ("a", "b", "c")}


def test_bags_in_memory_in_files_and_by_workers_give_the_same_table(bags, tmp_path):
    for name, bag in bags.items():
        np.save(tmp_path / f"{name}.npy", bag)
    save_prototypes(PROTOTYPES, tmp_path / "p.safetensors")
    here = embed_cohort(bags, PROTOTYPES, steps=2)
    there = embed_cohort([tmp_path / f"{n}.npy" for n in bags], tmp_path / "p.safetensors", steps=2, workers=1)
    assert here.samples == there.samples == ["a", "b", "c"]
    np.testing.assert_array_equal(here.vectors, there.vectors)
    assert here.contents == there.contents
    one = build("panther", PROTOTYPES, steps=2)(torch.from_numpy(bags["b"])).vector
    np.testing.assert_array_equal(here.vectors[1], one.numpy())


def test_a_bad_bag_is_left_out_and_named(bags):
    bags["b"][3, 1] = np.nan
    with pytest.warns(LeftOutWarning, match="slide b: row 3 .* NaN") as warned:
        table = embed_cohort(bags, PROTOTYPES)
    assert [w.filename for w in warned if w.category is LeftOutWarning] == [__file__]  # once, at the caller's line
    assert table.samples == ["a", "c"]
    assert list(table.failures) == ["b"]
    assert json.loads(table.to_anndata().uns["panther"]["failures"]) == table.failures
    with pytest.raises(InputError, match="None of the 1 samples could be embedded"):
        embed_cohort({"b": bags["b"]}, PROTOTYPES)


def test_a_table_is_a_frame_and_opens_in_scanpy(bags):
    table = embed_cohort(bags, PROTOTYPES)
    frame, data = table.to_frame(), table.to_anndata()
    assert list(frame.index) == list(data.obs_names) == ["a", "b", "c"]
    assert list(frame.columns) == list(data.var_names)
    assert frame.columns[:2].tolist() == ["C0:pi", "C0:mu:0"]
    np.testing.assert_array_equal(frame.to_numpy(), data.X)
    np.testing.assert_allclose(frame.filter(regex=":pi$").to_numpy(), data.obsm["pi"], atol=1e-6)
    assert data.obs["n_patches"].tolist() == [40, 40, 40]
    assert isinstance(frame, pd.DataFrame)


def test_the_mean_is_finite_where_the_sum_overflows():
    bag = np.full((2, 3), 3e38, "f4")
    assert embed_cohort({"large": bag}, method="mean").vectors.tolist() == [bag[0].tolist()]
