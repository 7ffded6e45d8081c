"""Where each slide is from, and what is known of it that must not be taken for its site."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from panther.content import hash_of
from panther.errors import InputError, suggestion
from panther.storage.clinical import ClinicalTable
from panther.storage.tables import is_missing, with_points

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Origins:
    """Site of every sample, and its protected columns as numbers."""

    sites: Mapping[str, str]  # slide or patient -> site
    protected: Mapping[str, np.ndarray] = field(
        default_factory=dict
    )  # slide or patient -> (k,); who lacks a value is not in it
    source: str = "The table"  # who says so

    def sites_of(self, samples: Sequence[str]) -> list[str]:
        """Sites of samples; all must have one."""
        self._refuse_missing(samples, self.sites, "no site", "fill in the site column, or name it with `columns.site`")
        return [self.sites[sample] for sample in samples]

    def key(self) -> str:
        """Hash of all of it."""
        return hash_of([self.sites, {name: row.tolist() for name, row in self.protected.items()}])

    def matrix(self, samples: Sequence[str]) -> np.ndarray:
        """Protected columns of samples (n, k); all must have values in them."""
        self._refuse_missing(samples, self.protected, "no value in a protected column", "fill it in, or leave them out")
        return np.stack([self.protected[sample] for sample in samples])

    def _refuse_missing(self, samples: Sequence[str], known: Mapping[str, object], what: str, remedy: str) -> None:
        missing = [sample for sample in samples if sample not in known]
        if missing:
            raise InputError(
                f"{self.source}: {len(missing)} of {len(samples)} training slides or patients have {what}, e.g. {missing[0]}; {remedy}."
            )


def origins_of(table: ClinicalTable | None, protect: Sequence[str] = ()) -> Origins:
    """Sites and protected columns of slides, and of patients all whose slides agree, by a clinical table."""
    if table is None:
        raise InputError("Slides are aligned by site, so a table that names their sites is needed; give `table=`.")
    who = table.who
    sites: dict[str, str] = {}
    for names in (who.patient, who.slide):
        sites |= _agreed(zip(names, who.site, strict=True))
    if not sites:
        raise InputError(
            f"{table.source}: no slide has a site; name the site column with `columns.site`, e.g. tissue_source_site."
        )
    rows = encode(table.rows, protect, table.source)
    pairs = [*zip(who.patient, rows, strict=True), *zip(who.slide, rows, strict=True)] if protect else []
    return Origins(sites, known_rows(pairs), table.source)


def _agreed(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Site of each name; a patient with slides of two sites has none."""
    found: dict[str, set[str]] = {}
    for name, site in pairs:
        if site is not None:
            found.setdefault(name, set()).add(site)
    return {name: min(sites) for name, sites in found.items() if len(sites) == 1}


def known_rows(pairs: Iterable[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Encoded rows of those who have a value in every column."""
    return {name: row for name, row in pairs if np.isfinite(row).all()}


def encode(rows: "pd.DataFrame", columns: Sequence[str], source: str) -> np.ndarray:
    """Columns as numbers (n, k): one column of numbers as it is, one of words as 0 or 1 for every word but the first; NaN where it is empty."""
    import pandas as pd

    parts = [np.zeros((len(rows), 0))]
    for column in columns:
        if column not in rows.columns:
            raise InputError(
                f"{source}: there is no column {column!r} to protect; {suggestion(column, [str(c) for c in rows.columns])}."
            )
        text = with_points(rows[column].astype(str).str.strip(), column, source)
        missing = (rows[column].isna() | is_missing(text)).to_numpy()
        if missing.all():
            raise InputError(
                f"{source}: no row has a value in {column!r}, so it cannot be protected; fill it in, or leave it out."
            )
        numbers = pd.to_numeric(text, errors="coerce").to_numpy(float)
        if np.isfinite(numbers[~missing]).all():
            part = numbers[:, None]
        else:
            words = text.to_numpy()
            part = (words[:, None] == np.unique(words[~missing])[None, 1:]).astype(float)
        parts.append(np.where(missing[:, None], np.nan, part))
    return np.concatenate(parts, 1)
