"""Sites that came after the training: each is estimated from its own slides, without any label of theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from panther.alignment import Alignment
from panther.errors import InputError
from panther.execution import HERE, Work
from panther.prototypes.align.fit import as_tensor, moved
from panther.prototypes.align.moments import SlideMoments, log_variances, slide_moments
from panther.prototypes.align.origins import Origins, origins_of
from panther.statistics.site_effects import new_site_effect
from panther.storage.clinical import ClinicalTable
from panther.types import Openable, Prototypes


class AddedSites(NamedTuple):
    """Prototypes that know more sites, and what to say about it."""

    prototypes: Prototypes
    notes: list[str]
    failures: dict[str, str]  # slides and patients that say nothing about a site, and why


def add_sites(prototypes: Prototypes, bags: Sequence[Openable], origins: Origins, *, work: Work = HERE) -> AddedSites:
    """Prototypes that also know the sites of these bags; those that were fitted stay as they are.

    A site that is there already (of the training, or added before) keeps its estimate; its further slides are named. The estimate of a new
    site is shrunk towards no difference by what its number of slides leaves open.
    """
    alignment = prototypes.alignment
    if alignment is None or alignment.kind == "slide":
        return AddedSites(prototypes, [], {})
    without_site = [bag.sample for bag in bags if bag.sample not in origins.sites]
    failures = {name: f"{name}: {origins.source} does not name its site; fill it in." for name in without_site}
    new = [bag for bag in bags if bag.sample not in failures and origins.sites[bag.sample] not in alignment.sites]
    moments = slide_moments([bag for bag in new if _problem(prototypes, bag) is None], work) if new else {}
    failures |= {
        bag.sample: _problem(prototypes, bag) or f"{bag.sample}: {NOT_FINITE}" for bag in new if bag not in moments
    }
    notes = []
    for site in sorted({origins.sites[bag.sample] for bag in moments}):
        alignment, note = _with_site(
            alignment, site, [m for bag, m in moments.items() if origins.sites[bag.sample] == site]
        )
        notes.append(note)
    held = {name: site for name, site in origins.sites.items() if site in alignment.sites}
    clashes = [name for name, site in held.items() if alignment.members.get(name, site) != site]
    if clashes:
        raise InputError(
            f"{clashes[0]}: the table says site {held[clashes[0]]!r}, but the prototypes know it as of {alignment.members[clashes[0]]!r}; "
            "name the same column of sites, or fit the prototypes again."
        )
    alignment = replace(alignment, members=_ordered({**alignment.members, **held}))
    return AddedSites(replace(prototypes, alignment=alignment), notes, failures)


NOT_FINITE = "has no patches, or one with NaN or an infinite number; extract this slide again."


def _problem(prototypes: Prototypes, bag: Openable) -> str | None:
    """Why a bag cannot meet these prototypes."""
    try:
        prototypes.check(bag.open())
    except InputError as error:
        return str(error)
    return None


def with_sites_of(
    prototypes: Prototypes, bags: Sequence[Openable], table: ClinicalTable | None, work: Work = HERE
) -> AddedSites:
    """Prototypes that know the sites of these bags, where they ask for sites and a table names them."""
    alignment = prototypes.alignment
    if alignment is None or alignment.kind == "slide" or table is None:
        return AddedSites(prototypes, [], {})
    return add_sites(prototypes, bags, origins_of(table), work=work)


def _with_site(alignment: Alignment, site: str, slides: Sequence[SlideMoments]) -> tuple[Alignment, str]:
    means = np.stack([m.mean for m in slides])
    assert alignment.shift is not None
    mean = alignment.mean.double().numpy()
    many = f"{len(slides)} sample{'s' if len(slides) > 1 else ''}"
    if alignment.kind == "site":
        shift = means.mean(0) - mean
        grown = replace(alignment, sites=(*alignment.sites, site), shift=_grown(alignment.shift, shift))
        return grown, f"Site {site} is not among the training sites: its mean is taken from its {many} here."
    of = {name: tensor.double().numpy() for name, tensor in alignment.tensors().items()}
    spread = of["spread"]
    shift, kept = new_site_effect(means, mean, spread, alignment.slides)
    log_scale, kept_scale = new_site_effect(
        log_variances(slides), of["log_variance"], of["log_spread"], alignment.slides
    )
    grown = replace(
        alignment,
        sites=(*alignment.sites, site),
        shift=_grown(alignment.shift, shift),
        log_scale=as_tensor(np.concatenate([of["log_scale"], log_scale[None]])),
    )
    return grown, (
        f"Site {site} is not among the training sites: location and scale are estimated from its {many} here, of which {kept:.0%} and "
        f"{kept_scale:.0%} are believed; its slides are moved by {moved(shift, spread):.2f} standard deviations of slides."
    )


def _grown(rows: torch.Tensor, row: np.ndarray) -> torch.Tensor:
    return torch.cat([rows, as_tensor(row)[None]])


def _ordered(members: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(members.items()))
