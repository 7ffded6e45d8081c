"""Vectors of slide encoders: every layout gives the same numbers, and errors name the file."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from panther.errors import InputError
from panther.storage.slide_vectors import read_slide_vectors, vector_bags

NAMES = ["S1", "S2.svs", "S3"]
X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def one_each(write: Callable[[Path, np.ndarray], object], suffix: str) -> Callable[[Path], Path]:
    """A file for each slide."""

    def written(folder: Path) -> Path:
        for name, row in zip(NAMES, X, strict=True):
            write(folder / f"{name}{suffix}", row)
        return folder

    return written


def trident(path: Path, row: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["features"] = row
        file["coords"] = np.zeros((7, 2), int)  # TRIDENT keeps those of the patches


def stamp(path: Path, row: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["feats"] = row[None]
        file.attrs.update(encoder="cobra", feat_type="slide")


def npz(folder: Path) -> Path:
    np.savez(folder / "all.npz", X=X, samples=np.array(NAMES))
    return folder / "all.npz"


def table() -> pd.DataFrame:
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(4)])
    return frame.assign(slide_id=NAMES, case_id=["a", "b", "c"])


def csv(folder: Path) -> Path:
    table().to_csv(folder / "all.csv", index=False)
    return folder / "all.csv"


def parquet(folder: Path) -> Path:
    table().to_parquet(folder / "all.parquet")
    return folder / "all.parquet"


def h5ad(folder: Path) -> Path:
    import anndata

    anndata.AnnData(X=X, obs=pd.DataFrame(index=NAMES)).write_h5ad(folder / "all.h5ad")
    return folder / "all.h5ad"


LAYOUTS = {
    "trident": one_each(trident, ".h5"),
    "stamp": one_each(stamp, ".h5"),
    "tensors": one_each(lambda path, row: torch.save(torch.from_numpy(row), path), ".pt"),
    "arrays": one_each(lambda path, row: np.save(path, row[None]), ".npy"),
    **{write.__name__: write for write in (npz, csv, parquet, h5ad)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_vectors_under_the_same_names(layout, tmp_path):
    actual = read_slide_vectors(LAYOUTS[layout](tmp_path))
    order = np.argsort(actual.names)
    assert [actual.names[i] for i in order] == ["S1", "S2", "S3"]  # endings of slides are no part of their names
    np.testing.assert_allclose(actual.vectors[order], X, rtol=1e-6)
    assert not actual.problems
    assert (actual.encoder, actual.level) == (("cobra", "slide") if layout == "stamp" else (None, None))


def test_a_key_selects_any_obsm_of_an_h5ad(tmp_path):
    import anndata

    data = anndata.AnnData(X=X[:, :1], obs=pd.DataFrame(index=NAMES), obsm={"X_titan": X})
    data.write_h5ad(tmp_path / "a.h5ad")
    for key in ("obsm/X_titan", "X_titan"):
        np.testing.assert_array_equal(read_slide_vectors(tmp_path / "a.h5ad", key).vectors, X)
    with pytest.raises(InputError, match="X_prism"):
        read_slide_vectors(tmp_path / "a.h5ad", "X_prism")


def test_a_bad_vector_is_a_problem_and_the_others_are_kept(tmp_path):
    bad = X.copy()
    bad[1, 2] = np.nan
    frame = table().assign(**{f"f{j}": bad[:, j] for j in range(4)})
    pd.concat([frame, frame.iloc[:1]]).to_csv(tmp_path / "all.csv", index=False)
    actual = read_slide_vectors(tmp_path / "all.csv")
    assert actual.names == ["S3"]
    assert set(actual.problems) == {"S1", "S2"}  # two vectors, and NaN


def test_vectors_of_another_length_are_problems(tmp_path):
    LAYOUTS["trident"](tmp_path)
    np.save(tmp_path / "S4.npy", np.zeros(9, np.float32))
    actual = read_slide_vectors(tmp_path)
    assert set(actual.problems) == {"S4"}
    np.save(tmp_path / "S5.npy", np.zeros(9, np.float32))
    np.save(tmp_path / "S6.npy", np.zeros(9, np.float32))
    with pytest.raises(InputError, match="9"):
        read_slide_vectors(tmp_path)


@pytest.mark.parametrize(
    ("make", "culprit"),
    [
        (lambda f: f / "nowhere", "nowhere"),
        (lambda f: f, "."),
        (lambda f: np.save(f / "a.npy", X) or f / "a.npy", r"a\.npy"),
        (lambda f: np.save(f / "a.npy", X) or f, r"a\.npy: .*\(3, 4\)"),
        (lambda f: (f / "a.npy").write_bytes(b"\x93NUMPY") and f, r"a\.npy"),
        (lambda f: (f / "a.h5").write_bytes(b"no") and f, r"a\.h5"),
        (lambda f: (f / "a.h5ad").write_bytes(b"no") and f / "a.h5ad", r"a\.h5ad"),
        (lambda f: table().assign(site="x").to_csv(f / "a.csv") or f / "a.csv", "'site'"),
        (lambda f: table()[["f0", "f1"]].to_csv(f / "a.csv", index=False) or f / "a.csv", r"a\.csv"),
        (lambda f: table()[["slide_id"]].to_csv(f / "a.csv", index=False) or f / "a.csv", r"a\.csv"),
        (lambda f: (f / "a.xlsx").write_text("x") and f / "a.xlsx", r"a\.xlsx"),
    ],
)
def test_other_files_are_refused_as_vectors(make, culprit, tmp_path):
    with pytest.raises(InputError, match=culprit):
        read_slide_vectors(make(tmp_path))


def test_a_patients_vector_stands_for_all_their_slides(tmp_path):
    pd.DataFrame({"case_id": ["p"], "f0": [3.0]}).to_csv(tmp_path / "v.csv", index=False)
    clinical = pd.DataFrame({"slide_id": ["s1", "s2"], "case_id": ["p", "p"]})
    bags = vector_bags(tmp_path / "v.csv", clinical).refs
    assert [(bag.sample, float(bag.open().features[0:1][0, 0])) for bag in bags] == [("s1", 3.0), ("s2", 3.0)]
