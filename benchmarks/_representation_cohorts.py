"""The cohorts of `representation.py`: mosaics of real tiles, drawn slides, generated bags, generated worlds."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import scaling
from _mil_worlds import QUESTIONS, world
from panther.cohort.targets import Classes, Survival, Target
from panther.prototypes.kmeans import kmeans
from panther.storage.readers import open_bag
from small_bags import TASKS, tiles_by_class

LOOKS = {  # seeds; the second look is at cohorts that nobody had seen when the rule was fixed (docs/decisions/0009)
    "first": {"lung": range(4), "generated": range(3), "world": range(5), "drawn": range(0)},
    "second": {"lung": range(4, 8), "generated": range(3, 6), "world": range(5, 10), "drawn": range(1, 5)},
}
CLUSTERS, OWN = 8, 2  # looks of a tissue, and how many of them one patient has


@dataclass(frozen=True)
class Cohort:
    """Bags, their outcome, and who is trained on and tested."""

    kind: str
    name: str
    bags: list[Tensor]
    target: Target
    folds: list[tuple[np.ndarray, np.ndarray]]


Make = Callable[[], list[Cohort]]  # a cohort is made where it is judged


def cohorts(tiles: Path | None, drawn: Path | None, look: str, quick: bool) -> Iterator[Make]:
    seeds = {kind: list(numbers)[: 1 if quick else None] for kind, numbers in LOOKS[look].items()}
    if tiles is not None:
        for size, alike, task, seed in itertools.product((35, 125, 1000), (False, True), TASKS, seeds["lung"]):
            yield partial(lung, tiles, size, alike, task, seed)
    if drawn is not None:
        for seed in seeds["drawn"]:
            yield partial(drawn_slides, drawn / f"cohort-{seed}")
    for shape, signal, site, size in itertools.product(
        scaling.COHORTS, scaling.SIGNALS, scaling.SITES, scaling.PATCHES
    ):
        if shape[1] == 48 or size < 1000:  # minutes, for nothing that the smaller ones do not show
            for seed in seeds["generated"]:
                yield partial(generated, shape, signal, site, size, seed)
    for name, seed in itertools.product([n for n, q in QUESTIONS.items() if not q.only], seeds["world"]):
        yield partial(generated_world, name, seed)


def lung(tiles: Path, patches: int, alike: bool, task: str, seed: int) -> list[Cohort]:
    """60 training patients from one half of the tiles, 60 test patients from the other."""
    features = tiles_by_class(tiles)
    rng = np.random.default_rng([seed, patches, alike, task == "share of tumour"])
    order = {kind: rng.permutation(len(x)) for kind, x in features.items()}
    bags: list[Tensor] = []
    for half in (0, 1):
        pool = {kind: x[order[kind][half::2]] for kind, x in features.items()}
        looks = {kind: _clusters(x, seed) for kind, x in pool.items()}
        first, second = (kind for kind in pool if kind != "normal")
        for number in range(60):
            share = np.clip(np.array(TASKS[task][number % 2]) * rng.uniform(0.7, 1.3), 0, 1)
            kinds = rng.choice([first, second, "normal"], patches, p=[*share, 1 - share.sum()])
            own = {
                kind: np.flatnonzero(np.isin(found, rng.choice(CLUSTERS, OWN, replace=False)) | (not alike))
                for kind, found in looks.items()
            }
            bags.append(torch.from_numpy(np.stack([pool[kind][rng.choice(own[kind])] for kind in kinds])))
    labels = np.arange(120) % 2
    name = f"{task}, {patches} tiles{', patients alike' if alike else ''}"
    return [Cohort("lung", name, bags, Classes(("0", "1"), labels), [(np.arange(60), np.arange(60, 120))])]


def _clusters(x: np.ndarray, seed: int) -> np.ndarray:
    centroids = kmeans(torch.from_numpy(x), CLUSTERS, seed, 2)[0].centroids
    return torch.cdist(torch.from_numpy(x), centroids).argmin(1).numpy()


def drawn_slides(folder: Path) -> list[Cohort]:
    """Patients of the demo, one site after the other left out (`claims.py` draws them)."""
    table = pd.read_csv(folder / "cohort.csv")
    features = folder / "job" / "20x_256px_0px_overlap" / "features_lite0"
    slides = table.groupby("case_id", sort=False)["slide_id"].agg(list)
    bags = [torch.cat([open_bag(features / f"{s}.h5").features[:].float() for s in own]) for own in slides]
    first = table.drop_duplicates("case_id")
    sites = first["tissue_source_site"].to_numpy()
    every = np.arange(len(bags))
    folds = [(every[sites != site], every[sites == site]) for site in sorted(set(sites))]
    subtype = Classes(("glandular", "solid"), (first["subtype"] == "solid").to_numpy().astype(int))
    survival = Survival(first["os_survival_days"].to_numpy(float), first["os_censorship"].to_numpy() == 0)
    return [Cohort("drawn", "subtype", bags, subtype, folds), Cohort("drawn", "survival", bags, survival, folds)]


def generated(shape: tuple[int, int], signal: str, site: str, patches: int, seed: int) -> list[Cohort]:
    trained, dim = shape
    test = np.arange(trained + scaling.TESTED) >= trained
    rng = np.random.default_rng(seed + 1000)
    labels = np.concatenate([rng.permutation(np.arange(n) % 2) for n in (trained, scaling.TESTED)])
    bags = list(scaling.bags(patches, dim, labels, test, (signal, site), seed))
    name = f"{signal}, {site}, {trained} x {dim}, {patches:,} patches"
    folds = [(np.flatnonzero(~test), np.flatnonzero(test))]
    return [Cohort("generated", name, bags, Classes(("0", "1"), labels), folds)]


def generated_world(name: str, seed: int) -> list[Cohort]:
    parts = world(QUESTIONS[name], seed)
    bags = [*parts["train"].bags, *parts["test"].bags]
    labels = torch.cat([parts["train"].labels, parts["test"].labels]).numpy()
    train = len(parts["train"].bags)
    return [Cohort("world", name, bags, Classes(("0", "1"), labels), [(np.arange(train), np.arange(train, len(bags)))])]
