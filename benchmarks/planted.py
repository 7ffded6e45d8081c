"""Slides with something planted: lymphocytes inside the tumour or beside it, a small lesion, another laboratory's stain.

`python benchmarks/planted.py FOLDER --task space` draws a cohort (`slides/`, `truth/`, `cohort.csv`) for the product's commands. For many cohorts
`benchmarks/blind_spots.py` composes slides of encoded tiles instead.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from _planted_arrangements import Arrangement, of_shares, with_guests, with_needle
from panther.engine import LOCAL, Work, map_all, open_work
from panther.errors import InputError
from panther.storage.tables import write_csv
from panther.store import check_writable_folder
from panther_demo.cohort import MIX
from panther_demo.layout import SCALE, Layout, smooth_noise
from panther_demo.slide import DrawnSlide, painted, write_drawn
from panther_demo.stain import Stain, site_stain, slide_stain, usual_stain
from panther_demo.tissues import tissues

CELL = 256 // SCALE  # pixels of the mask across a patch
BEND = 0.14  # of a patch, by which borders are bent
STRONG = 2.5  # spread of stains that differ strongly

Plan = Callable[[np.random.Generator, int, int], Arrangement]  # rng, class, patches


@dataclass(frozen=True)
class PlantedTask:
    """What the class of a patient changes."""

    classes: tuple[str, str]
    plan: Plan
    stains: bool = False  # sites with stains that differ strongly
    confounded: bool = False  # nine in ten patients of a site are of one class


def infiltration(rng: np.random.Generator, label: int, patches: int) -> Arrangement:
    """Glandular tumour in stroma, with lymphocytes in it or beside it."""
    shares = _shares({"glandular tumour": 0.40, "stroma": 0.37, "lymphocytes": 0.15, "adipose": 0.08}, rng)
    names = tissues.names()
    kind = ("excluded", "infiltrated")[label]
    return with_guests(rng, patches, shares, names.index("lymphocytes"), names.index("glandular tumour"), kind)


def lesion(share: float, rng: np.random.Generator, label: int, patches: int) -> Arrangement:
    """A lymph node, with a metastasis of ``share`` or without."""
    shares = _shares({"lymphocytes": 0.6, "stroma": 0.2, "adipose": 0.2}, rng)
    return with_needle(rng, patches, shares, tissues.names().index("glandular tumour"), share * label)


def subtype(rng: np.random.Generator, label: int, patches: int) -> Arrangement:
    """The demo's subtypes: proportions that overlap."""
    return of_shares(rng, patches, rng.dirichlet([mix[label] for mix in MIX.values()]))


TASKS: Mapping[str, PlantedTask] = {
    "space": PlantedTask(("excluded", "infiltrated"), infiltration),
    "needle-0.3": PlantedTask(("benign", "metastasis"), partial(lesion, 0.003)),
    "needle-1": PlantedTask(("benign", "metastasis"), partial(lesion, 0.01)),
    "needle-3": PlantedTask(("benign", "metastasis"), partial(lesion, 0.03)),
    "stain": PlantedTask(("glandular", "solid"), subtype, stains=True),
    "stain-confounded": PlantedTask(("glandular", "solid"), subtype, stains=True, confounded=True),
}


def write_planted(
    folder: Path, task: str, patients: int = 24, patches: int = 120, seed: int = 0, work: Work = LOCAL
) -> int:
    """Draw one slide of each patient of four sites; returns their number."""
    if task not in TASKS:
        raise InputError(f"There is no planted task {task!r}; known are {', '.join(TASKS)}.")
    if patients < 2 or patches < 20:
        raise InputError(f"{patients} patients with {patches} patches: at least 2 patients with 20 patches are needed.")
    check_writable_folder(folder)
    numbers = range(patients)
    rows = map_all(partial(_write_patient, folder, task, patches, seed), numbers, "drawing", work)
    write_csv(folder / "cohort.csv", ["case_id", "slide_id", "tissue_source_site", "label"], rows)
    return patients


def planted_layout(rng: np.random.Generator, arrangement: Arrangement) -> Layout:
    """Layout whose patches are the arrangement's cells, with a margin of glass and borders that are a little bent."""
    grid = np.pad(arrangement.grid() + 1, 1)  # glass on all sides
    grid = np.pad(grid, [(0, side % 2) for side in grid.shape])
    shape = grid.shape[0] * CELL, grid.shape[1] * CELL
    row, column = np.mgrid[: shape[0], : shape[1]]
    bent = [line + BEND * CELL * smooth_noise(rng, shape, CELL / 2) for line in (row, column)]
    places = [np.clip(line // CELL, 0, side - 1).astype(int) for line, side in zip(bent, grid.shape, strict=True)]
    return Layout(grid[places[0], places[1]].astype(np.uint8))


def _write_patient(folder: Path, task: str, patches: int, seed: int, number: int) -> list[object]:
    asked = TASKS[task]
    rng = np.random.default_rng([seed, 9, number])
    label = number % 2
    layout = planted_layout(rng, asked.plan(rng, label, patches))
    site = _site(asked, rng, number, label)
    name = f"PLANT-{chr(ord('A') + site)}{number:03d}"
    shares = layout.shares(len(tissues.names()))
    plan = DrawnSlide(name, tuple(map(float, shares)), layout.shape, _stain(asked, rng, seed, site), (seed, 9, number))
    write_drawn(plan, painted(layout, plan, rng), layout, folder / "slides", folder / "truth")
    return [name, name, f"site-{chr(ord('A') + site)}", asked.classes[label]]


def _site(task: PlantedTask, rng: np.random.Generator, number: int, label: int) -> int:
    site = number // 2 % 4
    if not task.confounded:
        return site
    own = label if rng.uniform() < 0.9 else 1 - label
    return 2 * (site // 2) + own


def _stain(task: PlantedTask, rng: np.random.Generator, seed: int, site: int) -> Stain:
    at_site = site_stain(np.random.default_rng([seed, 2, site]), STRONG) if task.stains else usual_stain()
    return slide_stain(rng, at_site)


def _shares(usual: Mapping[str, float], rng: np.random.Generator) -> np.ndarray:
    """Shares (T,) around the usual ones."""
    found = np.array([usual.get(name, 0.0) for name in tissues.names()])
    found *= rng.uniform(0.6, 1.4, len(found))
    return found / found.sum()


def main() -> None:
    """Draw a cohort."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=list(TASKS), default="space")
    parser.add_argument("--patients", type=int, default=24)
    parser.add_argument("--patches", type=int, default=120, help="of a slide, 256 pixels of 0.5 um each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with open_work() as work:
        count = write_planted(given.folder, given.task, given.patients, given.patches, given.seed, work)
    print(f"{given.folder}: {count} synthetic slides (slides/, truth/, cohort.csv) of the task {given.task}.")


if __name__ == "__main__":
    main()
