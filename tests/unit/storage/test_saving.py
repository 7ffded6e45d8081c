"""What a notebook has made can be kept, and is short where it is printed."""

import numpy as np
import pandas as pd
import pytest

import panther
from panther.errors import InputError

BAGS = {f"s{i}": np.random.default_rng(i).normal(i % 2, 1, (30, 4)) for i in range(12)}
TABLE = pd.DataFrame({"slide_id": list(BAGS), "case_id": list(BAGS), "kind": ["a", "b"] * 6, "age": np.arange(12.0)})
CORNERS = np.arange(60).reshape(30, 2) * 256


def test_a_model_predicts_the_same_from_its_file_and_is_short(tmp_path):
    model = panther.train(BAGS, TABLE, label="kind", n_prototypes=2)
    panther.save_model(model, str(tmp_path / "model.safetensors"))
    again = panther.load_model(str(tmp_path / "model.safetensors"))
    assert panther.predict(again, BAGS).table.equals(panther.predict(model, BAGS).table)
    about = panther.inspect([tmp_path / "model.safetensors"]).files[str(tmp_path / "model.safetensors")]
    assert (about["kind"], about["method"], about["outputs"], about["samples"]) == ("model", "panther", ["a", "b"], 12)
    assert repr(again) == repr(model) == "<Model panther (2 prototypes), probe: classification of a, b; trained on 12 samples>"  # fmt: skip
    other = panther.train(BAGS, TABLE, value="age", method="mean")
    assert repr(other) == "<Model mean, probe: regression; trained on 12 samples>"


def test_a_bag_comes_back_with_all_that_it_has(tmp_path):
    spec = panther.PatchSpec(mpp=0.5, size=256, size_level0=512, mpp_level0=0.25)
    bag = panther.Bag("s", BAGS["s0"].astype("f4"), CORNERS, spec, "uni")
    for name in ("s.h5", "s.safetensors"):
        panther.save_bag(bag, tmp_path / name)
        again = panther.open_bag(tmp_path / name)
        assert again.fingerprint() == bag.fingerprint()
        assert (again.encoder, again.spec.mpp, again.spec.size_level0) == ("uni", 0.5, 512)
        np.testing.assert_array_equal(again.coords, CORNERS)
    panther.save_bag(BAGS["s0"], str(tmp_path / "s.npy"), dtype="float32")
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), BAGS["s0"].astype("f4"))


@pytest.mark.parametrize(
    ("bag", "name", "more", "culprit"),
    [
        (BAGS["s0"], "s.csv", {}, r"s\.csv"),
        (panther.Bag("s", BAGS["s0"], CORNERS), "s.npy", {}, r"s\.npy"),
        (panther.Bag("s", BAGS["s0"], CORNERS, panther.PatchSpec(coords_unit="um")), "s.h5", {}, "slide s"),
        (BAGS["s0"], "s.h5", {"dtype": "int8"}, "dtype"),
        (np.full((2, 3), np.nan), "s.h5", {}, "row 0"),
    ],
)
def test_a_bag_that_cannot_be_saved_is_refused_and_leaves_nothing(tmp_path, bag, name, more, culprit):
    with pytest.raises(InputError, match=culprit):
        panther.save_bag(bag, tmp_path / name, **more)
    assert list(tmp_path.iterdir()) == []
