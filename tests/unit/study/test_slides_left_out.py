"""Samples that a study cannot use are listed, whatever reads the features first, and numbers of samples are right."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from panther.errors import LeftOutWarning
from panther.storage.bags import list_bags
from panther.verbs.study import run_study

NAMES = [f"s{i}" for i in range(24)]
TABLE = pd.DataFrame({"slide_id": NAMES, "case_id": NAMES, "subtype": list("abc") * 8})
STUDY = {
    "name": "x",
    "table": TABLE,
    "task": {"label": "subtype"},
    "heads": ["probe"],
    "n_prototypes": [3],
    "prototypes": {"restarts": 1},
    "splits": {"k": 2},
    "bootstrap": 5,
    "mil_training": {"epochs": 1},
}
NAN = np.full((5, 6), np.nan, "f4")


def bags() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: (rng.normal(size=(20 + i, 6)) + i % 3).astype("f4") for i, name in enumerate(NAMES)}


@pytest.fixture
def folder(tmp_path):
    """Features of all as files."""
    (tmp_path / "F").mkdir()
    for name, x in bags().items():
        np.save(tmp_path / "F" / f"{name}.npy", x)
    return tmp_path


@pytest.mark.parametrize("methods", [["mean"], ["abmil"], ["panther", "mean", "abmil"]])
def test_a_slide_with_nan_is_listed_whatever_the_method(folder, methods):
    np.save(folder / "F/s3.npy", NAN)
    for _ in range(2):  # from the cache, too
        with pytest.warns(
            LeftOutWarning, match=r"Left out of the study, or failed in it: 1, e\.g\. s3\.npy: row 0"
        ) as caught:
            results = run_study({**STUDY, "features": folder / "F", "methods": methods}, folder / "out")
        assert {one.filename for one in caught} == {__file__}  # the line of the user's code
        assert set(results.predictions["sample"]) == set(NAMES) - {"s3"}
        assert set(results.predictions["method"]) == set(methods)
        assert results.failures == json.loads((folder / "out/run.json").read_text())["failures"]
        (sentence,) = results.failures.values()
        assert sentence == "s3.npy: row 0 of the features holds NaN or an infinite number; extract this slide again."
        message = "The features of 1 of these 24 samples cannot be used, e.g. s3: 23 are in the study."
        assert message in results.run.population.notes
        assert "s3" not in set(pd.read_csv(folder / "out/cohort.csv")["sample"])  # which the report counts


def test_bfloat16_in_memory_is_stored_as_it_is_and_nothing_of_an_earlier_call_is_taken_for_it(tmp_path):
    run_study({**STUDY, "features": bags(), "methods": ["mean"]}, tmp_path)
    narrow = {name: torch.from_numpy(x).bfloat16() for name, x in bags().items() if name != "s3"}
    with pytest.warns(LeftOutWarning, match=r"Left out of the study, or failed in it: 1, e\.g\. s3"):
        results = run_study({**STUDY, "features": narrow, "methods": ["mean"]}, tmp_path)
    assert set(results.predictions["sample"]) == set(NAMES) - {"s3"}
    assert list(results.failures) == ["s3"]
    stored = list_bags(tmp_path / "inputs/features")
    assert not stored.problems
    for ref in stored.refs:
        assert torch.equal(ref.open().features[:], narrow[ref.sample])


def test_samples_that_a_method_cannot_embed_are_listed_also_from_the_cache(folder):
    np.save(folder / "F/s3.npy", bags()["s3"] * 1e20)  # numbers, but their squares are none
    for _ in range(2):
        with pytest.warns(
            LeftOutWarning, match=r"Left out of the study, or failed in it: 1, e\.g\. embeddings by panther"
        ):
            results = run_study({**STUDY, "features": folder / "F", "methods": ["panther", "mean"]}, folder / "out")
        tested = results.predictions.groupby("method")["sample"].nunique()
        assert tested.to_dict() == {"panther": 23, "mean": 24}
        (sentence,) = results.failures.values()
        assert sentence.startswith("embeddings by panther of features: s3.npy: features are too large to square")
        assert results.failures == json.loads((folder / "out/run.json").read_text())["failures"]
        message = "embeddings by panther of features: 1 of 24 samples could not be embedded, e.g. s3; its results are of the others."
        assert message in results.run.population.notes
