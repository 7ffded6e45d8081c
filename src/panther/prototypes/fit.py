"""From cohorts of bags to prototypes: scan, sample, K-means on the sample, Lloyd passes over everything, measure."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from panther.engine import HERE, Work
from panther.errors import InputError, value_of, warn_left_out
from panther.machine import cores, give_freed_memory_back
from panther.prototypes.centre import AlignedBags, Sites, align_fits, sites_by
from panther.prototypes.draw import Draw, PatchSample, check_enough, draw_patches, plan_draw
from panther.prototypes.groups import Plan, Plans, groups
from panther.prototypes.kmeans import Sample, kmeans_many
from panther.prototypes.passes import CohortPass, PassRequest, pass_over
from panther.prototypes.patches import scan_cohorts
from panther.prototypes.progress import FitProgress, project
from panther.prototypes.settings import KMeansSettings, kmeans_settings
from panther.storage.bags import BagsLike
from panther.storage.clinical import USUAL, ColumnsLike, select_training_slides
from panther.store import hash_contents
from panther.types import Openable, Projection, Prototypes

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
    columns: ColumnsLike = USUAL,
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
    columns : Columns or dict
        Names of the table's slide and patient columns, where they are not the usual ones.
    seed : int
        Same seed and features: same prototypes.
    work : Work
        How work is run.
    **settings
        Further settings of :class:`panther.prototypes.KMeansSettings`: `sample`, `share`, `restarts`, `passes`, `normalise`, `pca`,
        `centre` ("slide" or "site"; by site it needs a table).

    Returns
    -------
    Prototypes
        The most common first. Slides that could not be read, or have no patches, are left out, with a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import fit_prototypes
    >>> tissues = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    >>> bags = [np.repeat(tissues, 50, axis=0) for _ in range(4)]
    >>> fit_prototypes(bags, n_prototypes=3).occupancy.tolist()
    [200.0, 200.0, 200.0]
    """
    how = kmeans_settings(settings, n_prototypes=n_prototypes, seed=seed)
    chosen = select_training_slides(features, table, split, columns=columns)
    sites = sites_by(chosen.table) if how.centre == "site" else None
    found = fit_bags(chosen.refs, how, sites=sites, work=work)
    empty = {name: f"{name}: zero patches." for name in found.empty}
    warn_left_out("Left out of the prototypes", {**chosen.problems, **found.failures, **empty})
    return found.prototypes


def fit_bags(
    bags: Sequence[Openable], settings: KMeansSettings, *, sites: Sites | None = None, work: Work = HERE
) -> PrototypeFit:
    """Fit prototypes on the bags of training slides or patients; one that fails is left out and listed."""
    (fitted,) = fit_many([(bags, settings)], sites=sites, work=work)
    return value_of(fitted)


@torch.no_grad()
def fit_many(
    fits: Sequence[tuple[Sequence[Openable], KMeansSettings]], *, sites: Sites | None = None, work: Work = HERE
) -> list[PrototypeFit | InputError]:
    """Many fits (folds, seeds, numbers of prototypes) from the same walks over their bags.

    Every bag is opened once to look at it, once to sample from it, and once in each pass, whatever the number of fits that learn from it.
    Each result is, byte for byte, what the fit gives alone. What samples have in common is held once; fits whose samples do not fit into
    ``memory_gb`` together, or into the memory that is free, walk one group after the other.

    Parameters
    ----------
    fits : sequence of (bags, settings)
        The training bags of each fit, and how it is done. Bags that are equal are one bag.
    sites : Sites, optional
        Sites of the samples, for fits that centre them by site; each learns from its training bags alone.
    work : Work
        How work is run.

    Returns
    -------
    list of PrototypeFit or InputError
        In the order of ``fits``. An impossible fit (no patches, too few of them) does not stop the others: its error stands in its place.
    """
    found: dict[int, PrototypeFit | InputError] = {}
    planned: dict[Draw, list[Plan]] = {}
    scans = scan_cohorts([bags for bags, _ in fits], work)
    aligned = align_fits(fits, scans, sites, work)
    for number, ((bags, settings), scan) in enumerate(zip(fits, scans, strict=True)):
        try:
            usable, moved = value_of(scan), value_of(aligned[number])
            bags = bags if moved is None else moved.bags
            planned.setdefault(plan_draw(bags, usable, settings), []).append(Plan(number, settings, usable))
        except InputError as error:
            found[number] = error
    for group in groups(planned):
        found |= _fit_group(group, work)
        give_freed_memory_back()  # of samples
    return [_with_alignment(found[number], aligned[number]) for number in range(len(fits))]


def _with_alignment(
    fitted: PrototypeFit | InputError, aligned: AlignedBags | InputError | None
) -> PrototypeFit | InputError:
    """What was fitted on aligned bags, with how they were aligned; its parents are the features as they were."""
    if isinstance(fitted, InputError) or not isinstance(aligned, AlignedBags):
        return fitted
    found = fitted.prototypes
    own = replace(
        found,
        alignment=aligned.alignment,
        diagnostics={**found.diagnostics, "alignment": dict(aligned.about)},
        parents=hash_contents({name: aligned.contents[name] for name in found.slides}),
    )
    return replace(fitted, prototypes=own)


def _fit_group(planned: Plans, work: Work) -> dict[int, PrototypeFit | InputError]:
    """Fits that walk together, each as far as it gets."""
    found: dict[int, PrototypeFit | InputError] = {}
    running: dict[int, FitProgress] = {}
    for number, started in _start(planned, work).items():
        if isinstance(started, InputError):
            found[number] = started
        else:
            running[number] = started
    last = max((fit.settings.passes for fit in running.values()), default=-1)
    for step in range(last + 1):
        what = f"pass {step + 1} of {last} over all patches" if step < last else "measuring"
        requests = {number: fit.request(step) for number, fit in running.items()}
        asked = {number: (running[number].bags, request) for number, request in requests.items()}
        passed = pass_over(asked, work, what, backwards=step % 2 == 0)  # the sample was drawn forwards
        with ThreadPoolExecutor(cores()) as pool:  # what is measured on a sample takes a while
            learned = list(pool.map(_learned, running.values(), [passed[n] for n in running], requests.values()))
        for (number, fit), error in zip(list(running.items()), learned, strict=True):
            if error is not None:
                found[number] = error
            elif fit.prototypes is not None:
                found[number] = PrototypeFit(fit.prototypes, fit.failures, fit.empty)
            if number in found:
                del running[number]
    return found


@torch.no_grad()
def _learned(fit: FitProgress, passed: CohortPass, request: PassRequest) -> InputError | None:
    """Let a fit learn from a pass; returns why it cannot go on."""
    try:
        fit.take(passed, request)
    except InputError as error:
        return error
    return None


def _start(planned: Plans, work: Work) -> dict[int, FitProgress | InputError]:
    """K-means of every fit on its sample, all restarts side by side."""
    samples = draw_patches(list(planned), work)
    found: dict[int, FitProgress | InputError] = {}
    for draw, plans in planned.items():
        found |= _prepared(draw, plans, samples.pop(0), work.device, hold=len(planned) == 1)
    ready = {number: fit for number, fit in found.items() if isinstance(fit, FitProgress)}
    solved = kmeans_many([fit.problem for fit in ready.values()], work.track)
    for (number, fit), run in zip(ready.items(), solved, strict=True):
        if isinstance(run, InputError):
            found[number] = run
        else:
            fit.start(run)
    return found


def _prepared(
    draw: Draw, plans: Sequence[Plan], sample: PatchSample, device: str, *, hold: bool
) -> dict[int, FitProgress | InputError]:
    """Fits on one sample, each as it sees it; the sample itself is held no longer where nobody gathers it again."""
    found: dict[int, FitProgress | InputError] = {}
    projected: dict[tuple[bool, int | None], tuple[Projection, Sample]] = {}
    for number, settings, (infos, failures) in plans:
        failures = {**failures, **sample.failures}
        how = settings.normalise, settings.pca
        try:
            check_enough(sample, failures, settings)
            if how not in projected:
                projected[how] = _projected(sample, settings, device, hold=hold)
        except InputError as error:
            found[number] = error
        else:
            bags = [bag for bag in draw.bags if bag.sample not in failures]
            found[number] = FitProgress(settings, infos, bags, failures, *projected[how])
    return found


def _projected(sample: PatchSample, settings: KMeansSettings, device: str, *, hold: bool) -> tuple[Projection, Sample]:
    """How a fit sees features, and its sample: gathered whenever it is asked for, or held where it is computed or there is no other."""
    if not (settings.projects or hold):
        return Projection(), lambda: sample.gathered().to(device)
    projection, x = project(sample.gathered(), settings)
    x = x.to(device)
    return projection, lambda: x
