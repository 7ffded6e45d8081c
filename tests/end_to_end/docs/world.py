"""A small cohort under the names that the documentation uses, so that its blocks run as they are written."""

import csv
import shutil
from pathlib import Path

import h5py
import numpy as np
import yaml
from PIL import Image

from hostile.judging import run_here
from slides.phantoms import write_pyramid

SIDE, ACROSS, DOWN, DIM = 256, 6, 5, 16
TISSUES = np.array([(200, 90, 140), (120, 70, 160), (225, 150, 180)], np.uint8)
SLIDES = ("a", "slide", *(f"s{number:02d}" for number in range(2, 18)))
SITES = (*["T0"] * 5, *["T1"] * 5, *["T2", "T3", "T4"] * 2)  # of the patients: two large ones, three small ones
WITH_IMAGE = SLIDES[:2]
STUDY = {
    "name": "kirc",
    "table": "cohort.csv",
    "features": {"uni": "features"},
    "task": {"survival": "dss"},
    "splits": {"scheme": "kfold", "k": 2, "seed": 0},
    "methods": ["panther", "protocounts"],
    "heads": ["probe"],
    "n_prototypes": [4],
    "prototypes": {"restarts": 1, "passes": 1},
    "bootstrap": 20,
}
MADE = (
    "prototypes features -C 4 -o protos.safetensors -j 1",
    "prototypes features -C 3 -o b.safetensors -j 1",
    "embed features -p protos.safetensors -o slides.h5ad --table cohort.csv -j 1",
    "train features --table cohort.csv --label subtype -p protos.safetensors -o model.safetensors -j 1",
    "train features --table cohort.csv --label subtype --method abmil --epochs 1 -o abmil.safetensors -j 1",
    "tissue-classifier tiles -o tissue.safetensors",
    "atlas features -p protos.safetensors -o atlas --table cohort.csv --exemplars 2 -j 1",
    "map features/a.h5 -p protos.safetensors -o maps --max-side 256",
    "attribute model.safetensors features/a.h5 -o attribution --no-maps -j 1",
    "kaplan-meier slides.h5ad --table cohort.csv --survival os -o km",
    "concordance features -p protos.safetensors --patch-labels patches.csv -o agreement --no-maps",
    "run kirc.yaml -o kirc -j 1",
)
COPIES = {
    "feats": "features",
    "new_features": "features",
    "labelled/tiles/features_uni": "tiles",
    "SLIDES": "slides",
    "a.h5": "features/a.h5",
    "slide.h5": "features/slide.h5",
    "a.svs": "slides/a.svs",
    "slide.svs": "slides/slide.svs",
    "p.safetensors": "protos.safetensors",
    "a.safetensors": "protos.safetensors",
    "kirc/cache/prototypes-0123abcd.safetensors": "protos.safetensors",
    "kirc.csv": "cohort.csv",
    "run": "kirc",
}


def make_world(folder: Path) -> Path:
    """Slides, features, a table and everything that the commands make of them."""
    for name in ("slides", "features", "tiles/TUM", "tiles/NORM", "TILES/TUM", "TILES/NORM"):
        (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    tissue = {slide: rng.integers(0, 3, ACROSS * DOWN) for slide in SLIDES}
    for number, slide in enumerate(SLIDES):
        tissue[slide][: 4 + 10 * (number % 2)] = number % 2  # the subtype depends on it
        write_features(folder / "features" / f"{slide}.h5", tissue[slide], number)
    for slide in WITH_IMAGE:
        write_pyramid(folder / "slides" / f"{slide}.svs", painted(tissue[slide], rng), 0.5, levels=2)
    for number, name in enumerate(("NORM", "TUM")):
        write_features(folder / "tiles" / name / "tiles.h5", np.full(24, number), 100 + number)
        Image.fromarray(np.full((64, 64, 3), TISSUES[number])).save(folder / "TILES" / name / "0.png")
    write_table(folder / "cohort.csv")
    classes = ("NORM", "TUM", "STR")
    rows = [f"{s},{x},{y},{classes[t]}" for s in SLIDES for (x, y), t in zip(corners(), tissue[s], strict=True)]
    (folder / "patches.csv").write_text("slide_id,x,y,label\n" + "\n".join(rows) + "\n")
    (folder / "names.yaml").write_text("C0: stroma\nC2: tumour\n")
    (folder / "kirc.yaml").write_text(yaml.safe_dump(STUDY))
    for line in MADE:
        done = run_here(line.split(), folder)
        assert done.code == 0, done.text
    for name, source in COPIES.items():
        copy = shutil.copytree if (folder / source).is_dir() else shutil.copy
        copy(folder / source, folder / name)
    return folder


def corners() -> np.ndarray:
    """Upper left corners of the patches, (30, 2)."""
    return np.stack(np.meshgrid(np.arange(ACROSS), np.arange(DOWN)), -1).reshape(-1, 2) * SIDE


def write_features(path: Path, tissue: np.ndarray, seed: int) -> None:
    """A file of TRIDENT; each tissue has one direction."""
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        rows = 6 * np.eye(DIM)[tissue] + rng.normal(size=(len(tissue), DIM))
        file.create_dataset("features", data=rows.astype(np.float32)).attrs["encoder"] = "uni"
        if len(tissue) == ACROSS * DOWN:
            geometry = {"patch_size": SIDE, "patch_size_level0": SIDE, "level0_magnification": 20}
            file.create_dataset("coords", data=corners()).attrs.update({**geometry, "target_magnification": 20})


def painted(tissue: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A slide of stained squares with some grain."""
    squares = TISSUES[tissue].reshape(DOWN, ACROSS, 3).repeat(SIDE, 0).repeat(SIDE, 1)
    return np.clip(squares + rng.normal(0, 8, squares.shape), 0, 255).astype(np.uint8)


def write_table(path: Path) -> None:
    """One row per slide, two patients with two slides; what a clinical table of the field has, and no column `split`."""
    names = ["case_id", "slide_id", "subtype", "tissue_source_site", "stage", "grade", "data_provider"]
    ends = [f"{end}_{what}" for end in ("os", "dss") for what in ("survival_days", "censorship")]
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow([*names, *ends])
        for number, slide in enumerate(SLIDES):
            patient = number if number < len(SLIDES) - 2 else number - 2  # the last two are second slides
            kind = patient % 2
            about = [f"p{patient:02d}", slide, ("LUAD", "LUSC")[kind], SITES[patient], f"S{patient % 3}"]
            times = [300 - 120 * kind + 17 * patient, int(patient in (3, 8))]
            writer.writerow([*about, f"G{patient % 2}", "here", *times, *times])
