"""A synthetic cohort of features (no slides, no encoder): regions of tissue on a grid, a subtype, survival, sites, a second cohort.

`python -m panther_demo.features FOLDER` writes it in a second; the tutorials stand on it. Nothing in it is biology.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter

from panther.storage.files import write_text
from panther.store import atomic_write, h5_writer

TISSUES = ("tumour, glandular", "tumour, solid", "stroma", "lymphocytes", "adipose", "necrosis")
PATCH, LEVEL0 = 256, 512  # pixels at 0.5 um/px, and at level 0 (0.25 um/px)


@dataclass(frozen=True)
class World:
    """Settings of all slides."""

    dim: int = 64
    side: int = 24  # patches along a slide
    separation: float = 1.5  # of tissues, in standard deviations of a feature
    seed: int = 0

    def centres(self) -> np.ndarray:
        """Mean features of the tissues (T, d)."""
        return np.random.default_rng(self.seed).normal(0, self.separation, (len(TISSUES), self.dim))


@dataclass(frozen=True)
class FeaturePatient:
    """A patient."""

    name: str
    site: str
    shares: np.ndarray  # (T,), proportions of the tissues
    days: float
    censored: bool

    @property
    def subtype(self) -> str:
        """Subtype of the larger share."""
        return "glandular" if self.shares[0] > self.shares[1] else "solid"


def write_feature_cohort(
    folder: Path, patients: int = 60, world: World | None = None, prefix: str = "SYN", seed: int = 0
) -> None:
    """Write `features/SLIDE.h5` in TRIDENT's layout and `cohort.csv`; every fourth patient has two slides."""
    world = world or World()
    (folder / "features").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([world.seed, seed])
    rows = ["case_id,slide_id,tissue_source_site,subtype,os_survival_days,os_censorship"]
    for number in range(patients):
        patient = draw_patient(f"{prefix}-{number:03d}", rng)
        for slide in range(2 if number % 4 == 0 else 1):
            name = f"{patient.name}-{slide}"
            write_features(folder / "features" / f"{name}.h5", patient, world, rng)
            known = (patient.site, patient.subtype, f"{patient.days:.0f}", int(patient.censored))
            rows.append(",".join(map(str, (patient.name, name, *known))))
    write_text(folder / "cohort.csv", "\n".join(rows) + "\n")


def draw_patient(name: str, rng: np.random.Generator) -> FeaturePatient:
    """Mixture of tissues, and a survival that tumour shortens and lymphocytes lengthen."""
    kind = rng.integers(2)
    shares = rng.dirichlet(np.array([4.0 - 2.5 * kind, 1.5 + 2.5 * kind, 3.0, 1.5, 1.0, 1.0]))
    hazard = np.exp(3.0 * (shares[0] + shares[1] - 0.45) - 4.0 * (shares[3] - 0.12) + 2.0 * (shares[5] - 0.08))
    death, leaving = rng.exponential(900 / hazard), rng.exponential(2000)
    return FeaturePatient(name, f"S{rng.integers(8)}", shares, max(1.0, min(death, leaving)), bool(leaving < death))


def write_features(path: Path, patient: FeaturePatient, world: World, rng: np.random.Generator) -> None:
    """Features and coordinates of one slide."""
    tissue, cells = tissue_grid(patient.shares, world.side, rng)
    features = world.centres()[tissue] + rng.normal(size=(len(tissue), world.dim))
    with atomic_write(path) as temporary, h5_writer(temporary) as file:
        file.create_dataset("features", data=features.astype("f4")).attrs["encoder"] = "synthetic"
        coords = file.create_dataset("coords", data=cells.astype("i8") * LEVEL0)
        geometry = {"patch_size": PATCH, "patch_size_level0": LEVEL0, "overlap": 0, "name": path.stem}
        coords.attrs.update({**geometry, "level0_magnification": 40, "target_magnification": 20})


def tissue_grid(shares: np.ndarray, side: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Tissue (N,) and cell (N, 2) as x, y of a round piece of tissue: the largest of smooth random fields, biased until shares are about right."""
    fields = gaussian_filter(rng.normal(size=(len(shares), side, side)), (0, 2.5, 2.5))
    fields /= fields.std((1, 2), keepdims=True)
    edge = gaussian_filter(rng.normal(size=(side, side)), 3.0)
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    inside = np.hypot(x, y) / (side / 2) + edge / edge.std() * 0.08 < 0.92
    bias = np.zeros(len(shares))
    for _ in range(40):  # proportions follow the bias monotonically, so small corrections arrive
        shown = np.bincount((fields + bias[:, None, None]).argmax(0)[inside], minlength=len(shares)) / inside.sum()
        bias += shares - shown
    tissue = (fields + bias[:, None, None]).argmax(0)
    rows, columns = np.nonzero(inside)
    return tissue[inside], np.stack([columns, rows], 1)


def main(folder: Path) -> None:
    """Write a cohort of 60 patients and, from another hospital, one of 30."""
    write_feature_cohort(folder)
    write_feature_cohort(folder / "external", 30, prefix="EXT", seed=1)
    print(f"{folder}: 60 synthetic patients (features/, cohort.csv) and 30 of an external cohort (external/).")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "tutorial"))
