"""Centring: the mean of every slide, or of every site's slides, moved onto that of the training slides before prototypes see them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.engine import LOCAL, Work, run
from panther.errors import InputError
from panther.prototypes.patches import in_order
from panther.rows import Alignment, Move
from panther.storage.clinical import ClinicalTable
from panther.store import HashedRows
from panther.types import Bag, Openable, Prototypes

BLOCK = 4096  # patches read at once


@dataclass(frozen=True, eq=False)
class Sites:
    """Site of every slide, and of every patient with slides of one site only."""

    of: Mapping[str, str]
    source: str = "The table"

    def of_all(self, samples: Sequence[str]) -> list[str]:
        """Sites of samples; all must have one."""
        missing = [sample for sample in samples if sample not in self.of]
        if missing:
            raise InputError(
                f"{self.source}: {len(missing)} of {len(samples)} training samples have no site, e.g. {missing[0]}"
            )
        return [self.of[sample] for sample in samples]


def sites_by(table: ClinicalTable | None) -> Sites:
    """Sites of slides and patients by a clinical table."""
    if table is None:
        raise InputError("table: is missing; centring by site requires a table with a site column")
    of: dict[str, str] = {}
    for names in (table.who.patient, table.who.slide):
        sites_of: dict[str, set[str]] = {}
        for name, site in zip(names, table.who.site, strict=True):
            if site is not None:
                sites_of.setdefault(name, set()).add(site)
        of |= {name: min(sites) for name, sites in sites_of.items() if len(sites) == 1}
    if not of:
        raise InputError(f"{table.source}: no slide has a site; name the site column, e.g. tissue_source_site.")
    return Sites(of, table.source)


@dataclass(frozen=True, eq=False)
class AlignedRef:
    """A bag that is centred as it is opened. Equal to itself alone: other folds centre the same bag differently."""

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
    diagnostics: Mapping[str, Any]


class SlideMean(NamedTuple):
    """Mean of a slide's patches."""

    mean: np.ndarray  # (d,) float64
    content: str  # hash of its features


def align(
    bags: Sequence[Openable], means: Mapping[Openable, SlideMean], centre: str | None, sites: Sites | None
) -> AlignedBags:
    """Training bags moved by the means of those that can be read."""
    by_name = {bag.sample: m for bag, m in sorted(means.items(), key=lambda item: item[0].sample)}
    if not by_name:
        raise InputError("No slide has finite features to align.")
    x = np.stack([m.mean for m in by_name.values()])  # (n, d)
    diagnostics: dict[str, Any] = {"slides": len(x)}
    alignment = Alignment("slide", _as_tensor(x.mean(0)))
    if centre == "site":
        if sites is None:
            raise InputError("table: is missing; centring by site requires a table with a site column")
        names, site, count = np.unique(sites.of_all(list(by_name)), return_inverse=True, return_counts=True)
        shift = np.eye(len(names))[site].T @ x / count[:, None] - x.mean(0)
        site_names = tuple(map(str, names))
        # every sample of these sites that the table names: a slide that comes later belongs to a site all the same
        members = {name: site_of for name, site_of in sorted(sites.of.items()) if site_of in site_names}
        alignment = Alignment("site", alignment.mean, site_names, _as_tensor(shift), members, len(site_names))
        diagnostics["sites"] = {name: {"slides": int(n)} for name, n in zip(site_names, count, strict=True)}
    contents = {name: m.content for name, m in by_name.items()}
    # what cannot be read, or is not finite, is reported where patches are drawn; it need not be moved for that
    moved = [AlignedRef(bag, alignment.move_of(bag.sample, bag.sample)) if bag in means else bag for bag in bags]
    return AlignedBags(moved, alignment, contents, diagnostics)


def add_sites(
    prototypes: Prototypes, bags: Sequence[Openable], sites: Sites | ClinicalTable | None, *, work: Work = LOCAL
) -> tuple[Prototypes, list[str]]:
    """Prototypes that also know the sites of these bags, each centred on the mean of its slides here; and a note for each.

    A site that is there already keeps its mean; its further slides are named. No label is read. Prototypes that are not centred by
    site, or whose bags have no table of sites, are returned as they are.
    """
    alignment = prototypes.alignment
    if alignment is None or alignment.kind == "slide" or sites is None:
        return prototypes, []
    if isinstance(sites, ClinicalTable):
        sites = sites_by(sites)
    new = [bag for bag in bags if sites.of.get(bag.sample, alignment.sites[0]) not in alignment.sites]
    suitable = []
    for bag in new:
        with suppress(InputError):  # the reason is reported where it is embedded
            prototypes.check(bag.open())
            suitable.append(bag)
    means = slide_means(suitable, work) if suitable else {}
    notes = []
    for site in sorted({sites.of[bag.sample] for bag in means}):
        x = np.stack([m.mean for bag, m in means.items() if sites.of[bag.sample] == site])
        assert alignment.shift is not None
        shift = _as_tensor(x.mean(0) - alignment.mean.double().numpy())
        alignment = replace(alignment, sites=(*alignment.sites, site), shift=torch.cat([alignment.shift, shift[None]]))
        notes.append(f"Site {site} is not among the training sites: its mean is that of these samples ({len(x)}).")
    held = {name: site for name, site in sites.of.items() if site in alignment.sites}
    clashes = [name for name, site in held.items() if alignment.members.get(name, site) != site]
    if clashes:
        raise InputError(
            f"{clashes[0]}: found the site {held[clashes[0]]!r} in the table, expected {alignment.members[clashes[0]]!r} as in the prototypes"
        )
    alignment = replace(alignment, members=dict(sorted({**alignment.members, **held}.items())))
    return replace(prototypes, alignment=alignment), notes


def slide_means(bags: Sequence[Openable], work: Work) -> dict[Openable, SlideMean]:
    """Mean of every bag that can be read, has patches and is finite; the others are reported where they are used."""
    bags = in_order([bags])
    results = zip(bags, run(_slide_mean, bags, "measuring slides", work), strict=True)
    return {bag: result.value for bag, result in results if result.value is not None and result.value.mean.size}


@torch.no_grad()
def _slide_mean(ref: Openable) -> SlideMean:
    """Mean of a bag; an empty one where it has none."""
    bag = ref.open()
    rows = HashedRows(bag.features)
    total, origin = (torch.zeros(bag.dim, dtype=torch.float64) for _ in range(2))
    for start in range(0, len(bag), BLOCK):
        x = rows[start : start + BLOCK].double()
        origin = x[0].clone() if start == 0 else origin  # near the patches, sums keep their digits
        total += (x - origin).sum(0)
    mean = total / max(len(bag), 1)
    usable = len(bag) and bool(torch.isfinite(mean).all())
    return SlideMean((mean + origin).numpy() if usable else np.empty(0), rows.digest())


def _as_tensor(values: np.ndarray) -> Tensor:
    """Float32, as all that is stored beside prototypes."""
    return torch.as_tensor(values, dtype=torch.float32)
