"""Where each slide is from, and what is known of it that must not be taken for its site."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from panther.content import hash_of
from panther.errors import InputError, suggestion
from panther.storage.clinical import ClinicalTable
from panther.storage.tables import is_missing

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Origins:
    """Site of every sample, and its protected columns as numbers."""

    sites: Mapping[str, str]  # slide or patient -> site
    protected: Mapping[str, np.ndarray] = field(default_factory=dict)  # slide or patient -> (k,)

    def site_of(self, sample: str) -> str:
        """Site of a sample; one that has none is refused."""
        if sample not in self.sites:
            raise InputError(
                f"{sample}: its site is not known, but slides are aligned by site; fill in the site column of the table, or name the "
                "column with `columns.site`."
            )
        return self.sites[sample]

    def key(self) -> str:
        """Hash of all of it."""
        return hash_of([self.sites, {name: row.tolist() for name, row in self.protected.items()}])

    def matrix(self, samples: Sequence[str]) -> np.ndarray | None:
        """Protected columns of samples (n, k), None where there are none."""
        if not self.protected:
            return None
        for sample in samples:
            if sample not in self.protected:
                raise InputError(f"{sample}: the table has no row of it, so its protected columns are not known.")
        return np.stack([self.protected[sample] for sample in samples])


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
    return Origins(sites, dict(pairs))


def _agreed(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Site of each name; a patient with slides of two sites has none."""
    found: dict[str, set[str]] = {}
    for name, site in pairs:
        if site is not None:
            found.setdefault(name, set()).add(site)
    return {name: min(sites) for name, sites in found.items() if len(sites) == 1}


def encode(rows: "pd.DataFrame", columns: Sequence[str], source: str) -> np.ndarray:
    """Columns as numbers (n, k): one column of numbers as it is, one of words as 0 or 1 for every word but the first."""
    import pandas as pd

    parts = [np.zeros((len(rows), 0))]
    for column in columns:
        if column not in rows.columns:
            raise InputError(
                f"{source}: there is no column {column!r} to protect; {suggestion(column, [str(c) for c in rows.columns])}."
            )
        text = rows[column].astype(str).str.strip()
        missing = (rows[column].isna() | is_missing(text)).to_numpy()
        if missing.any():
            raise InputError(
                f"{source}: {int(missing.sum())} rows have no {column}, e.g. {rows.index[int(missing.argmax())]}; a protected column "
                "must be known for every training slide."
            )
        numbers = pd.to_numeric(text, errors="coerce").to_numpy(float)
        if np.isfinite(numbers).all():
            parts.append(numbers[:, None])
        else:
            parts.append((text.to_numpy()[:, None] == np.unique(text.to_numpy())[None, 1:]).astype(float))
    return np.concatenate(parts, 1)
