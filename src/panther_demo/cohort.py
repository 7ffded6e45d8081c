"""A synthetic cohort: patients of several hospitals, with a subtype and survival that depend on the tissue of their slides."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from panther.engine import LOCAL, Work, map_all
from panther.errors import InputError
from panther.storage.tables import write_csv
from panther_demo.slide import DrawnSlide, write_slide
from panther_demo.stain import site_stain, slide_stain
from panther_demo.tissues import tissues

SUBTYPES = ("glandular", "solid")
# Dirichlet parameters of the share of each tissue, by subtype; they overlap, so that no share decides alone
MIX = {
    "glandular tumour": (3.4, 1.6),
    "solid tumour": (1.6, 3.4),
    "stroma": (3.0, 3.0),
    "lymphocytes": (2.2, 2.2),
    "adipose": (1.6, 1.6),
    "necrosis": (1.1, 1.8),
    "mucin": (2.0, 0.8),
}
# Log hazard ratios of the tissues' shares
HAZARD = {"glandular tumour": 4.0, "solid tumour": 5.0, "lymphocytes": -6.0, "necrosis": 2.0}
TUMOURS = 2  # the first two tissues
SMALLEST = 0.10  # share; less than about six patches is left out
LONGEST = 3650.0  # days of follow-up


@dataclass(frozen=True)
class CohortSettings:
    """Settings of a cohort."""

    patients: int = 60
    sites: int = 5
    side: int = 2816  # pixels of a slide's side, 0.5 um each
    seed: int = 0

    def __post_init__(self) -> None:
        if self.patients < 2 or self.sites < 1 or self.seed < 0:
            found = f"{self.patients} patients of {self.sites} sites with seed {self.seed}"
            raise InputError(f"cohort: found {found}, expected at least 2 patients, 1 site and a seed of 0")
        if self.side < 512 or self.side % 256:
            raise InputError(f"side: found {self.side} pixels, expected a multiple of 256 from 512 on")


@dataclass(frozen=True)
class Patient:
    """One patient and the plans of the slides."""

    name: str
    site: str
    subtype: str
    slides: tuple[DrawnSlide, ...]
    days: int
    censored: bool


def make_patients(settings: CohortSettings) -> list[Patient]:
    """All patients; each depends on the seed and its number only."""
    patients = [_patient(settings, number) for number in range(settings.patients)]
    return sorted(patients, key=lambda patient: patient.name)  # the order that folders are listed in


def write_cohort(folder: Path, settings: CohortSettings, work: Work = LOCAL) -> int:
    """Write `slides/`, `truth/` (masks and `shares.csv`) and `cohort.csv`; returns the number of slides."""
    patients = make_patients(settings)
    plans = [plan for patient in patients for plan in patient.slides]
    write: Callable[[DrawnSlide], np.ndarray] = partial(write_slide, slides=folder / "slides", truth=folder / "truth")
    drawn = map_all(write, plans, "drawing", work)
    rows = [[plan.name, *(round(float(s), 4) for s in shares)] for plan, shares in zip(plans, drawn, strict=True)]
    write_csv(folder / "truth" / "shares.csv", ["slide_id", *tissues.names()], rows)
    header = ["case_id", "slide_id", "tissue_source_site", "subtype", "os_survival_days", "os_censorship"]
    clinical = [[p.name, plan.name, p.site, p.subtype, p.days, int(p.censored)] for p in patients for plan in p.slides]
    write_csv(folder / "cohort.csv", header, clinical)
    return len(plans)


def _patient(settings: CohortSettings, number: int) -> Patient:
    rng = np.random.default_rng([settings.seed, 1, number])
    site = number % settings.sites
    subtype = (number // settings.sites + site) % 2  # every site has both
    site_mix = np.exp(np.random.default_rng([settings.seed, 4, site]).normal(0, 0.25, len(MIX)))  # (T,)
    centre = _shares(rng, np.array([mix[subtype] for mix in MIX.values()]) * site_mix)
    similar = 30 * centre + 1e-3  # two slides of one patient
    shares = [_shares(rng, similar), _shares(rng, similar)] if number % 6 == 0 else [centre]
    name = f"SYN-{chr(ord('A') + site)}{number:03d}"
    stain = site_stain(np.random.default_rng([settings.seed, 2, site]))
    slides = tuple(
        DrawnSlide(
            f"{name}-{index + 1}",
            tuple(map(float, slide_shares)),
            (settings.side, settings.side),
            slide_stain(rng, stain),
            (settings.seed, 3, number, index),
            fold=bool(rng.uniform() < 0.2),
            pen=bool(rng.uniform() < 0.15),
        )
        for index, slide_shares in enumerate(shares)
    )
    days, censored = _survival(rng, np.mean(shares, 0))
    return Patient(name, f"site-{chr(ord('A') + site)}", SUBTYPES[subtype], slides, days, censored)


def _shares(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    """Shares (T,) of a slide: at most four tissues without small ones, or most patches would lie on borders."""
    while True:
        shares = rng.dirichlet(concentration)
        kept = np.where(shares >= max(SMALLEST, float(np.sort(shares)[-4])), shares, 0.0)
        if kept[:TUMOURS].any():  # every slide shows the tumour
            return kept / kept.sum()


def _survival(rng: np.random.Generator, shares: np.ndarray) -> tuple[int, bool]:
    r"""Days and whether censored: Weibull times with hazard :math:`\exp(\sum_t \beta_t (s_t - \bar s_t))`, random censoring."""
    mean = np.mean(list(MIX.values()), 1)
    deviation = shares - mean / mean.sum()
    effect = sum(HAZARD.get(name, 0.0) * deviation[number] for number, name in enumerate(MIX))
    death = 1100 * np.exp(-effect) * rng.weibull(1.3)
    censoring = min(rng.exponential(1700), LONGEST)
    return max(1, round(min(death, censoring))), bool(censoring < death)
