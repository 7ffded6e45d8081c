"""From a cohort of bags to prototypes: scan, sample, k-means on the sample, Lloyd passes over everything, measure."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from panther.content import HashedRows, hash_contents
from panther.errors import InputError, not_finite
from panther.execution import HERE, Work, stream
from panther.patch_spec import in_common
from panther.prototypes.diagnostics import diagnose
from panther.prototypes.kmeans import kmeans, update, worst_served
from panther.prototypes.patches import BagInfo, example, sample_patches
from panther.prototypes.settings import KMeansSettings
from panther.statistics import Statistics, accumulate, first_bad_row, nearest
from panther.storage.bags import BagsLike
from panther.storage.clinical import USUAL, Columns, select_slides
from panther.types import Openable, Projection, Prototypes
from panther.version import __version__

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PrototypeFit:
    """Fitted prototypes and what could not be used."""

    prototypes: Prototypes
    failures: dict[str, str]  # slide or patient -> sentence
    empty: list[str]  # slides or patients with zero patches: fine, but worth saying


def fit_prototypes(
    features: BagsLike,
    n_prototypes: int = 16,
    *,
    table: "Path | str | pd.DataFrame | None" = None,
    split: str | None = None,
    columns: Columns = USUAL,
    seed: int = 0,
    work: Work = HERE,
    **settings: Any,
) -> Prototypes:
    """Find prototypes by K-means in the patches of the training slides.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Features, as :func:`panther.storage.bags.as_bags` takes them.
    n_prototypes : int
        Number of prototypes, C; see `choose_c`.
    table : path or DataFrame, optional
        Clinical table: only its slides are used.
    split : str, optional
        Part of the table, e.g. "train".
    columns : Columns
        Names of the table's slide and patient columns, where they are not the usual ones.
    seed : int
        Same seed and features: same prototypes.
    work : Work
        How work is run.
    **settings
        Further settings of :class:`panther.prototypes.KMeansSettings`: `sample`, `share`, `restarts`, `passes`, `normalise`, `pca`.

    Returns
    -------
    Prototypes
        The most common first. Slides that could not be read are left out, with a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import fit_prototypes
    >>> tissues = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    >>> bags = [np.repeat(tissues, 50, axis=0) for _ in range(4)]
    >>> fit_prototypes(bags, n_prototypes=3).occupancy.tolist()
    [200.0, 200.0, 200.0]
    """
    chosen = select_slides(features, table, split, columns=columns)
    found = fit_bags(chosen.refs, KMeansSettings(n_prototypes, seed, **settings), work=work)
    failures = {**chosen.problems, **found.failures}
    if failures:
        warnings.warn(f"Left out: {' '.join(failures.values())}", stacklevel=2)
    return found.prototypes


@torch.no_grad()
def fit_bags(bags: Sequence[Openable], settings: KMeansSettings, *, work: Work = HERE) -> PrototypeFit:
    """Fit prototypes on the bags of training slides or patients; one that fails is left out and listed."""
    patches = sample_patches(bags, settings, work)
    infos, failures, x = patches.infos, dict(patches.failures), patches.x
    usable = [bag for bag in bags if bag.sample in infos and bag.sample not in failures]
    empty = [bag.sample for bag in usable if infos[bag.sample].patches == 0]
    usable = [bag for bag in usable if infos[bag.sample].patches]

    projection, x = _project(x, settings)
    x = x.to(work.device)
    best, inertias = kmeans(x, settings.n_prototypes, settings.seed, settings.restarts, track=work.track)
    centroids, measured = best.centroids, None
    for number in range(settings.passes + 1):
        what = f"pass {number + 1} of {settings.passes} over all patches" if number < settings.passes else "measuring"
        measured = _cohort_pass(usable, centroids, projection, work, what, squares=number == settings.passes)
        failures |= measured.failures
        usable = [bag for bag in usable if bag.sample not in failures]
        if not usable:
            raise InputError(f"No slide could be read to the end. {example(failures)}")
        if number < settings.passes:
            centroids = _moved(measured, centroids, x)
    assert measured is not None
    return PrototypeFit(_finished(measured, centroids, projection, inertias, infos, settings), failures, empty)


def _project(x: Tensor, settings: KMeansSettings) -> tuple[Projection, Tensor]:
    projection = Projection(normalise=settings.normalise)
    x = projection(x)
    if settings.pca is None:
        return projection, x
    if settings.pca > min(x.shape):
        raise InputError(
            f"PCA to {settings.pca} dimensions needs as many patches and features; the sample has {tuple(x.shape)}."
        )
    mean = x.mean(0, dtype=torch.float64)
    centred = x.double() - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    basis = vectors.flip(-1)[:, : settings.pca]
    basis = basis * torch.sign(
        basis.gather(0, basis.abs().argmax(0, keepdim=True))
    )  # a sign that does not depend on the solver
    projection = replace(projection, mean=mean.float(), basis=basis.float().contiguous())
    return projection, (centred @ basis).float()


@dataclass(frozen=True)
class _Pass:
    sums: Statistics
    origin: Tensor
    slide_mass: dict[str, Tensor]
    contents: dict[str, str]  # slide or patient -> hash of its features, where squares were asked for
    failures: dict[str, str]


class _BagSums(NamedTuple):
    statistics: Statistics
    content: str | None


def _cohort_pass(
    bags: Sequence[Openable],
    centroids: Tensor,
    projection: Projection,
    work: Work,
    what: str,
    *,
    squares: bool,
) -> _Pass:
    """Statistics of all patches, added up in the bags' order so that the sum does not depend on who computed it."""
    origin = centroids.mean(0)
    function = partial(
        _bag_statistics,
        centroids=centroids.cpu(),  # sent from the CPU; each worker moves them to the device itself
        origin=origin.cpu(),
        device=str(centroids.device),
        projection=projection,
        squares=squares,
    )
    total: Statistics | None = None
    slide_mass: dict[str, Tensor] = {}
    contents: dict[str, str] = {}
    failures: dict[str, str] = {}
    for index, (sums, content) in stream(function, bags, what, work, failures):
        name = bags[index].sample
        slide_mass[name] = sums.mass
        if content is not None:
            contents[name] = content
        total = sums if total is None else total.merge(sums)
    if total is None:
        raise InputError(f"No slide could be read to the end. {example(failures)}")
    return _Pass(total, origin, slide_mass, contents, failures)


@torch.no_grad()
def _bag_statistics(
    ref: Openable, *, centroids: Tensor, origin: Tensor, device: str, projection: Projection, squares: bool
) -> _BagSums:
    bag = ref.open()
    read = HashedRows(bag.features) if squares else bag.features  # the last pass also says what the bags were
    rows = projection.view(read)
    assign = nearest((centroids - origin).to(device))
    sums = accumulate(rows, assign, origin.to(device), squares=squares).statistics
    if not bool(torch.isfinite(sums.total).all()):
        bad = first_bad_row(bag.features)
        raise (
            InputError(f"{bag.source}: features are too large to add up.")
            if bad is None
            else not_finite(bag.source, bad)
        )
    return _BagSums(Statistics(*(t.cpu() for t in sums)), read.digest() if isinstance(read, HashedRows) else None)


def _moved(measured: _Pass, centroids: Tensor, x: Tensor) -> Tensor:
    sums = Statistics(*(t.to(centroids.device) for t in measured.sums))
    moved = update(sums, centroids, measured.origin)
    empty = (sums.mass == 0).nonzero().flatten()
    if len(empty):
        moved[empty] = worst_served(x, moved, measured.origin, len(empty))
    return moved


def _finished(
    measured: _Pass,
    centroids: Tensor,
    projection: Projection,
    inertias: list[float],
    infos: Mapping[str, BagInfo],
    settings: KMeansSettings,
) -> Prototypes:
    sums, slides = measured.sums, tuple(measured.slide_mass)
    order = torch.argsort(-sums.mass, stable=True)  # C0 is the most common pattern
    centres = centroids.cpu().double() - measured.origin.cpu().double()
    about = (
        sums.square - 2 * centres * sums.total + sums.mass.unsqueeze(-1) * centres * centres
    )  # (C, d), about the centroids
    within = (about.clamp_min(0).sum(0) / sums.patches).float()
    centroids, occupancy = centroids.cpu()[order].contiguous(), sums.mass[order]
    slide_mass = {slide: mass[order] for slide, mass in measured.slide_mass.items()}
    return Prototypes(
        centroids,
        within,
        occupancy,
        projection,
        encoder=next((infos[s].encoder for s in slides if infos[s].encoder), None),
        slides=slides,
        settings={**asdict(settings), "patches": int(sums.patches)},
        diagnostics={
            "inertia": float(f"{float(about.sum()):.6g}"),
            **diagnose(centroids, within, occupancy, slide_mass, inertias),
        },
        parents=hash_contents(measured.contents),
        version=__version__,
        spec=in_common([infos[s].spec for s in slides]),
    )
