"""The tissue classifier: its fit, its evaluation, its file, and tiles that cannot be used."""

import h5py
import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, recall_score

from panther.errors import InputError
from panther.explain.concordance.tissue_classifier import (
    LabelledTiles,
    fit_classifier,
    load_classifier,
    read_features,
    save_classifier,
)
from panther.types import Bag
from panther.verbs.concordance import train_tissue_classifier


def tiles(n=40, d=10, k=3, spread=2.0, seed=0):
    """n tiles per class around k centres; the last feature is constant."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(k), n)
    x = rng.normal(size=(k, d))[labels] * spread + rng.normal(size=(n * k, d))
    x[:, -1] = 3.0
    return LabelledTiles(x.astype(np.float32), labels, tuple("abcdef"[:k]), encoder="mean")


def test_cross_validation_measures_held_out_tiles():
    noise = LabelledTiles(np.random.default_rng(0).normal(size=(120, 30)).astype(np.float32), np.arange(120) % 3, ("a", "b", "c"))  # fmt: skip
    classifier = fit_classifier(noise)
    assert classifier.evaluation["accuracy"] < 0.5  # chance is 1/3; on its own tiles the classifier would do far better
    good = fit_classifier(tiles())
    table = np.array(good.evaluation["confusion"])
    truth, predicted = (np.repeat(axis.ravel(), table.ravel()) for axis in np.indices(table.shape))
    assert good.evaluation["accuracy"] == pytest.approx(accuracy_score(truth, predicted))
    assert list(good.evaluation["recall"].values()) == pytest.approx(
        recall_score(truth, predicted, average=None).tolist()
    )
    assert good.evaluation["accuracy"] > 0.9


def test_slides_stay_together_so_that_a_slides_look_does_not_pass_for_tissue():
    rng = np.random.default_rng(0)
    slide = np.repeat(np.arange(20), 10)
    labels = slide % 2
    # slides differ, classes do not
    x = (rng.normal(size=(20, 40))[slide] * 3 + rng.normal(size=(200, 40))).astype(np.float32)
    alone = fit_classifier(LabelledTiles(x, labels, ("a", "b")))
    together = fit_classifier(LabelledTiles(x, labels, ("a", "b"), groups=slide))
    assert alone.evaluation["accuracy"] > 0.95
    assert together.evaluation["accuracy"] < 0.75


def test_a_file_keeps_the_classifier_and_one_that_is_damaged_is_refused(tmp_path):
    classifier = fit_classifier(tiles())
    for name in "ab":
        save_classifier(fit_classifier(tiles()), tmp_path / f"{name}.safetensors")
    content = bytearray((tmp_path / "a.safetensors").read_bytes())
    assert content == (tmp_path / "b.safetensors").read_bytes()
    loaded = load_classifier(tmp_path / "a.safetensors")
    x = torch.randn(5, 10)
    torch.testing.assert_close(loaded.probabilities(x), classifier.probabilities(x))
    assert (loaded.classes, loaded.encoder, loaded.evaluation) == (classifier.classes, "mean", classifier.evaluation)
    content[-3] ^= 0xFF
    (tmp_path / "q.safetensors").write_bytes(content)
    (tmp_path / "r.safetensors").write_bytes(content[:200])
    for name, problem in (("q", "damaged"), ("r", "not a readable"), ("none", "not a readable")):
        with pytest.raises(InputError, match=rf"{name}\.safetensors: {problem}"):
            load_classifier(tmp_path / f"{name}.safetensors")


def test_bags_of_another_encoder_or_with_nan_are_refused():
    classifier, x = fit_classifier(tiles()), torch.ones(3, 10)
    x[1, 2] = torch.nan
    for culprit, bag in (
        ("'uni'", Bag("s", torch.ones(2, 10), encoder="uni")),
        ("9", Bag("s", torch.ones(2, 9), encoder="mean")),
        ("row 1", Bag("s", x)),
    ):
        with pytest.raises(InputError, match=culprit):
            classifier.label(bag)


def test_features_are_read_from_class_folders_and_class_files_whose_slides_stay_together(tmp_path):
    labelled = tiles(n=6, k=2)
    (tmp_path / "files").mkdir()
    (tmp_path / "encoded").mkdir()
    for k, name in enumerate("ab"):
        rows = labelled.features[labelled.labels == k]
        np.save(tmp_path / "files" / f"{name}.npy", rows)
        (tmp_path / "folders" / name).mkdir(parents=True)
        np.save(tmp_path / "folders" / name / "s1.npy", rows[:3])
        np.save(tmp_path / "folders" / name / "s2.npy", rows[3:])
        with h5py.File(tmp_path / "encoded" / f"{name}.h5", "w") as file:  # of CLASS/SLIDE/TILE
            file["features"] = rows
            file["tiles"] = [f"s{1 + n // 3}/{n}.png" for n in range(len(rows))]
    for place in ("files", "folders", "encoded"):
        read = read_features(tmp_path / place, 500, 0)
        np.testing.assert_array_equal(read.features, labelled.features)
        assert (read.labels.tolist(), read.classes) == (labelled.labels.tolist(), ("a", "b"))
        assert (read.groups is not None) == (place != "files")
    assert np.bincount(read_features(tmp_path / "files", 4, 0).labels).tolist() == [4, 4]


def test_tiles_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_features(tmp_path / "none", 500, 0)
    (tmp_path / "images" / "aca").mkdir(parents=True)
    (tmp_path / "images" / "aca" / "1.png").touch()
    with pytest.raises(InputError, match="aca: no feature files"):
        read_features(tmp_path / "images", 500, 0)
    with pytest.raises(InputError, match="a class has 1 tile"):
        fit_classifier(LabelledTiles(np.ones((3, 2), np.float32), np.array([0, 0, 1]), ("a", "b")))
    with pytest.raises(InputError, match=r"^folds: found 1"):
        train_tissue_classifier(tmp_path, folds=1)
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f" / "a.npy", np.ones((3, 2), np.float32))
    with pytest.raises(InputError, match="the class a alone"):
        read_features(tmp_path / "f", 500, 0)
    np.save(tmp_path / "f" / "b.npy", np.ones((3, 4), np.float32))
    with pytest.raises(InputError, match=r"b\.npy has 4"):
        read_features(tmp_path / "f", 500, 0)
