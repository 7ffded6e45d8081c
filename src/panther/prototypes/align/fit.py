"""Alignment of training slides, for many fits from one walk over their bags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.alignment import Alignment, Move
from panther.errors import InputError
from panther.execution import Work
from panther.prototypes.align.moments import SlideMoments, log_variances, slide_moments
from panther.prototypes.align.origins import Origins
from panther.prototypes.patches import Scan
from panther.prototypes.settings import KMeansSettings
from panther.statistics.site_effects import site_effects
from panther.types import Bag, Openable


@dataclass(frozen=True, eq=False)
class AlignedRef:
    """A bag that is opened already moved. Equal to itself alone: bags of other folds are moved elsewhere."""

    ref: Openable
    move: Move

    @property
    def sample(self) -> str:
        """Name of the slide or patient."""
        return self.ref.sample

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that hold the patches."""
        return self.ref.files

    def open(self) -> Bag:
        """Patches, moved as they are read."""
        bag = self.ref.open()
        return replace(bag, features=self.move.view(bag))


@dataclass(frozen=True, eq=False)
class AlignedBags:
    """Training bags of a fit and how they were aligned."""

    bags: Sequence[Openable]
    alignment: Alignment
    contents: Mapping[str, str]  # sample -> hash of its features as they are
    about: Mapping[str, Any]  # for the diagnostics


def align_fits(
    fits: Sequence[tuple[Sequence[Openable], KMeansSettings]],
    scans: Sequence[Scan | InputError],
    origins: Origins | None,
    work: Work,
) -> list[AlignedBags | InputError | None]:
    """Aligned bags of each fit that asks for it, from its own training bags alone; None where it does not.

    Fits on the same bags with the same alignment share it, and with it their samples and walks.
    """
    usable = [
        [bag for bag in bags if bag.sample in scan[0] and scan[0][bag.sample].patches]
        if settings.aligned_by and not isinstance(scan, InputError)
        else []
        for (bags, settings), scan in zip(fits, scans, strict=True)
    ]
    everyone = list(dict.fromkeys(bag for bags in usable for bag in bags))
    moments = slide_moments(everyone, work) if everyone else {}
    known: dict[Any, AlignedBags | InputError] = {}
    found: list[AlignedBags | InputError | None] = []
    for (bags, settings), own in zip(fits, usable, strict=True):
        if not own:
            found.append(None)
            continue
        key = frozenset(bags), settings.aligned_by, settings.protect
        if key not in known:
            known[key] = _aligned(bags, {bag: moments[bag] for bag in own if bag in moments}, settings, origins)
        found.append(known[key])
    return found


def _aligned(
    bags: Sequence[Openable],
    moments: Mapping[Openable, SlideMoments],
    settings: KMeansSettings,
    origins: Origins | None,
) -> AlignedBags | InputError:
    by_name = {bag.sample: m for bag, m in sorted(moments.items(), key=lambda item: item[0].sample)}
    try:
        if not by_name:
            raise InputError("No slide has finite features to align.")
        alignment, about = ALIGN[str(settings.aligned_by)](by_name, origins, bool(settings.protect))
        contents = {name: m.content for name, m in by_name.items()}
        # what cannot be read, or is not finite, is reported where patches are drawn; it need not be moved for that
        moved = [AlignedRef(bag, alignment.move_of(bag.sample, bag.sample)) if bag in moments else bag for bag in bags]
        return AlignedBags(moved, alignment, contents, about)
    except InputError as error:
        return error


def _by_slide(
    moments: Mapping[str, SlideMoments], origins: Origins | None, protect: bool
) -> tuple[Alignment, dict[str, Any]]:
    means = np.stack([m.mean for m in moments.values()])
    return Alignment("slide", as_tensor(means.mean(0)), len(means)), {"slides": len(means)}


def _by_site(
    moments: Mapping[str, SlideMoments], origins: Origins | None, protect: bool
) -> tuple[Alignment, dict[str, Any]]:
    means = np.stack([m.mean for m in moments.values()])
    sites, site = _numbered(list(moments), origins)
    count = np.bincount(site)
    shift = np.eye(len(sites))[site].T @ means / count[:, None] - means.mean(0)
    about = {name: {"slides": int(n)} for name, n in zip(sites, count, strict=True)}
    alignment = Alignment(
        "site",
        as_tensor(means.mean(0)),
        len(means),
        sites,
        as_tensor(shift),
        None,
        _members(moments, sites, origins),
        len(sites),
    )
    return alignment, {"slides": len(means), "sites": about}


def _harmonised(
    moments: Mapping[str, SlideMoments], origins: Origins | None, protect: bool
) -> tuple[Alignment, dict[str, Any]]:
    means, logs = np.stack([m.mean for m in moments.values()]), log_variances(list(moments.values()))
    sites, site = _numbered(list(moments), origins)
    assert origins is not None
    protected = origins.matrix(list(moments)) if protect else None
    location, scale = (site_effects(y, site, protected) for y in (means, logs))
    alignment = Alignment(
        "harmonise",
        as_tensor(location.mean),
        len(means),
        sites,
        as_tensor(location.effects),
        as_tensor(scale.effects),
        _members(moments, sites, origins),
        len(sites),
        as_tensor(location.spread),
        as_tensor(scale.mean),
        as_tensor(scale.spread),
    )
    about = {
        name: {
            "slides": int((site == row).sum()),
            "location_kept": round(float(location.kept[row]), 4),
            "scale_kept": round(float(scale.kept[row]), 4),
            "moved": moved(location.effects[row], location.spread),
        }
        for row, name in enumerate(sites)
    }
    return alignment, {"slides": len(means), "sites": about}


ALIGN = {"slide": _by_slide, "site": _by_site, "harmonise": _harmonised}


def _numbered(samples: Sequence[str], origins: Origins | None) -> tuple[tuple[str, ...], np.ndarray]:
    if origins is None:
        raise InputError("Slides are aligned by site, so a table that names their sites is needed; give `table=`.")
    names = origins.sites_of(samples)
    sites = tuple(sorted(set(names)))
    return sites, np.searchsorted(sites, names)


def _members(moments: Mapping[str, SlideMoments], sites: Sequence[str], origins: Origins | None) -> dict[str, str]:
    """Every sample of these sites that the table names: a slide that comes later belongs to a site all the same."""
    assert origins is not None
    return {name: site for name, site in sorted(origins.sites.items()) if site in sites}


def moved(shift: np.ndarray, spread: np.ndarray) -> float:
    """How far a site is moved, in standard deviations of slides' means, over the columns that have one."""
    moving = spread > 0
    return round(float(np.sqrt(np.mean((shift[moving] / spread[moving]) ** 2))) if moving.any() else 0.0, 4)


def as_tensor(values: np.ndarray) -> Tensor:
    """Float32, as all that is stored beside prototypes."""
    return torch.as_tensor(values, dtype=torch.float32)
