"""A study with PANTHER's block `space`: one row beside the mixture's, made anew where patches have moved."""

from pathlib import Path

import h5py
import numpy as np

from panther.study.file import parse_study
from panther.study.training import StudyRun, train_all

DIM, SIDE = 5, 6


def write_slides(folder: Path, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    (folder / "feats").mkdir(exist_ok=True)
    corners = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), -1).reshape(-1, 2) * 256
    lines = ["slide_id,case_id,subtype"]
    for number in range(12):
        features = np.random.default_rng(number).normal(size=(SIDE * SIDE, DIM)).astype("f4")
        with h5py.File(folder / "feats" / f"s{number}.h5", "w") as file:
            file["features"], file["coords"] = features, corners if seed == 0 else rng.permutation(corners)
            file["coords"].attrs["patch_size_level0"] = 256
        lines.append(f"s{number},p{number},{'ab'[number % 2]}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


def run(folder: Path) -> StudyRun:
    study = parse_study(
        {
            "name": "space",
            "table": folder / "table.csv",
            "features": {"made": folder / "feats"},
            "task": {"label": "subtype"},
            "splits": {"scheme": "kfold", "k": 2},
            "methods": ["panther", {"name": "panther", "blocks": ["space"], "label": "with space"}],
            "heads": ["probe", "structured"],
            "n_prototypes": [2],
            "bootstrap": 0,
        }
    )
    return train_all(study, folder / "out")


def test_rows_with_blocks_have_no_structured_head_and_notice_moved_patches(tmp_path: Path) -> None:
    write_slides(tmp_path)
    first = run(tmp_path)
    heads = {(one.cell.method.title, one.cell.head.name) for one in first.trained}
    assert heads == {("panther", "probe"), ("panther", "structured"), ("with space", "probe")}
    assert first.failures == {}
    write_slides(tmp_path, seed=1)
    second = run(tmp_path)
    for one, other in zip(first.trained, second.trained, strict=True):
        assert (one.embeddings == other.embeddings) == (one.cell.method.title == "panther")
