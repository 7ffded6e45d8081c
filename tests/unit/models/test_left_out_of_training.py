"""Samples that cannot be trained on are left out and listed, in Python with a warning; the command reports them once."""

import numpy as np
import pandas as pd
import pytest

import panther
from commands import invoke
from panther.errors import LeftOutWarning

NAMES = [f"s{i}" for i in range(12)]
TABLE = pd.DataFrame({"slide_id": NAMES, "case_id": NAMES, "subtype": list("ab") * 6})


def bags() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {name: (rng.normal(size=(20, 4)) + i % 2).astype("f4") for i, name in enumerate(NAMES)}
    return {**found, "s3": np.full((5, 4), np.nan, "f4"), "s4": np.empty((0, 4), "f4")}


@pytest.mark.parametrize("method", ["panther", "mean", "abmil"])
def test_samples_with_nan_without_patches_or_features_are_left_out_with_a_warning(method):
    given = {name: bag for name, bag in bags().items() if name != "s5"}
    count = 2 if method == "panther" else None
    with pytest.warns(LeftOutWarning, match="Left out of the training: 3, e.g. s5: the table names it") as told:
        model = panther.train(given, TABLE, label="subtype", method=method, n_prototypes=count, epochs=1)
    assert [one.filename for one in told if one.category is LeftOutWarning] == [__file__]
    assert set(model.failures) == {"s3", "s4", "s5"}
    assert set(model.about["samples"]) == set(NAMES) - set(model.failures)
    with pytest.warns(LeftOutWarning, match="Left out of the predictions: 2, e.g. "):
        assert len(panther.predict(model, given).table) == 9


def test_a_network_without_readable_bags_is_refused():
    given = dict.fromkeys(NAMES, bags()["s3"])
    with pytest.raises(panther.InputError, match=r"None of the 12 samples can be trained on\. .*NaN"):
        panther.train(given, TABLE, label="subtype", method="abmil", epochs=1)


@pytest.mark.parametrize("words", [["train", "F", "--table", "t.csv", "--label", "subtype"], ["embed", "F"]])
def test_a_command_reports_each_failure_once(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "F").mkdir()
    for name, bag in bags().items():
        np.save(tmp_path / "F" / f"{name}.npy", bag)
    TABLE.to_csv("t.csv", index=False)
    output = ["-o", "m.safetensors" if words[0] == "train" else "e.npz"]
    ended = invoke(*words, "--method", "mean", *output, "-j", "1")
    assert ended.exit_code == 1, ended.output
    assert ended.output.count("s3.npy") == ended.output.count("zero patches") == 1
    assert "Warning" not in ended.output
