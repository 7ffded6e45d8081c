"""A cohort of six slides in flat colours (`explain.known_regions`): three with images, all with features, prototypes, table and embeddings."""

from pathlib import Path

import numpy as np
import pandas as pd

import panther
from explain.known_regions import write_slide
from panther.storage.embeddings import write_embeddings

SLIDES = 6
WITH_IMAGE = 3
SECRET = b"nobody may read this"  # beside the cohort


def write_cohort(folder: Path) -> Path:
    """Write it below ``folder``: slides/, features/, prototypes.safetensors, cohort.csv, slides.h5ad, names.yaml."""
    images, features, made = folder / "slides", folder / "features", folder / "made"
    for place in (images, features, made):
        place.mkdir(parents=True)
    image, bag, prototypes = write_slide(made)
    rng = np.random.default_rng(0)
    whole = panther.open_bag(bag)
    for number in range(SLIDES):
        name = f"S{number}"
        if number < WITH_IMAGE:
            (images / f"{name}.tif").write_bytes(image.read_bytes())
        _write_part(features / f"{name}.h5", bag, whole, number, rng)
    prototypes.rename(folder / "prototypes.safetensors")
    for left in (image, bag):
        left.unlink()
    made.rmdir()
    table = pd.DataFrame(
        {
            "case_id": [f"P{i // 2}" if i < 4 else f"P{i}" for i in range(SLIDES)],
            "slide_id": [f"S{i}" for i in range(SLIDES)],
            "subtype": ["a", "a", "b", "b", "a", "b"],
            "os_survival_days": [100, 100, 900, 900, 400, 700],
            "os_censorship": [0, 0, 1, 1, 0, 0],
        }
    )
    table.to_csv(folder / "cohort.csv", index=False)
    write_embeddings(panther.embed_cohort(features, folder / "prototypes.safetensors"), folder / "slides.h5ad")
    (folder / "names.yaml").write_text("C0: stroma\nC1: tumour nest\n")
    return folder


def _write_part(path: Path, source: Path, whole: panther.Bag, number: int, rng: np.random.Generator) -> None:
    """The first slide has all patches, the others lose some of one tissue."""
    import h5py

    rows = np.arange(len(whole))
    if number:
        rows = np.sort(rng.choice(rows, len(rows) - 20 * number, replace=False))
    with h5py.File(source) as read, h5py.File(path, "w") as write:
        for name in ("features", "coords"):
            values = write.create_dataset(name, data=read[name][()][rows])
            values.attrs.update(dict(read[name].attrs))
