"""Features of synthetic slides, five tissues in known proportions, two slides a patient: no images, no encoder."""

from pathlib import Path

import h5py
import numpy as np

SLIDES, DIM, TISSUES = 24, 64, 5


def generate(folder: Path, seed: int = 0) -> None:
    """Write `SLIDE.h5` in TRIDENT's layout and, beside the folder, `cohort.csv`."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    tissues = rng.normal(0, 2.0, (TISSUES, DIM))
    rows = []
    for number in range(SLIDES):
        subtype = number // 2 % 2
        proportions = rng.dirichlet(1.0 + 8.0 * (np.arange(TISSUES) == subtype) + 2.0 * (np.arange(TISSUES) > 1))
        count = int(rng.integers(300, 900))
        tissue = rng.choice(TISSUES, count, p=proportions)
        name = f"synthetic-{number:03d}"
        with h5py.File(folder / f"{name}.h5", "w") as file:
            features = (tissues[tissue] + rng.normal(size=(count, DIM))).astype("f4")
            file.create_dataset("features", data=features).attrs["encoder"] = "synthetic"
            side = int(np.ceil(np.sqrt(count)))
            grid = np.stack(np.divmod(np.arange(count), side), axis=1)[:, ::-1] * 512
            coords = file.create_dataset("coords", data=grid.astype("i8"))
            coords.attrs.update({"patch_size": 256, "patch_size_level0": 512, "overlap": 0, "name": name})
            coords.attrs.update({"level0_magnification": 40, "target_magnification": 20})
        rows.append(f"patient-{number // 2:02d},{name},{'AB'[subtype]},{'train' if number < 16 else 'test'}")
    (folder.parent / "cohort.csv").write_text("\n".join(["case_id,slide_id,subtype,split", *rows]) + "\n")
