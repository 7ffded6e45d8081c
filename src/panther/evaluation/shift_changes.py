"""Embeddings of the same patients before and after something was done to them: what became of site and label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panther.errors import InputError
from panther.evaluation.readable import Readable, SiteAndLabel, per_patient
from panther.storage.embedding_files.reading import read_vectors, read_weights

CHANGED = 0.05  # a smaller change of balanced accuracy is none


@dataclass(frozen=True, eq=False)
class PatientRows:
    """Mean embedding of each patient, with site and label."""

    names: Sequence[str]
    x: np.ndarray  # (n, D)
    sites: Sequence[str]
    labels: Sequence[str] | None

    def of(self, names: set[str]) -> "PatientRows":
        """Only those patients."""
        rows = [row for row, name in enumerate(self.names) if name in names]
        labels = None if self.labels is None else [self.labels[row] for row in rows]
        return PatientRows([self.names[r] for r in rows], self.x[rows], [self.sites[r] for r in rows], labels)


def patients_of(path: Path, names: Mapping[str, str | None], like: PatientRows | None = None) -> PatientRows:
    """Patients of an embeddings file, by the ``names`` of the columns of site, patient and label; only those that are in ``like`` too."""
    site, label = str(names["site"]), names["label"]
    samples, _, columns = read_weights(path, site, str(names["patient"]), *([label] if label else []))
    if label is not None and label not in columns:
        read_weights(path, label)  # refuses, naming the columns that there are
    ids, vectors, _ = read_vectors(path)
    if list(ids) != list(samples):
        raise InputError(f"{path}: its parts name other samples; write it again with `panther embed`.")
    patients = columns.get(str(names["patient"]), samples)
    kept = {site: columns[site]} | ({} if label is None else {label: columns[label]})
    x, found = per_patient(np.asarray(vectors, np.float64), patients, kept)
    rows = PatientRows(sorted(set(patients)), x, found[site], None if label is None else found[label])
    if like is None:
        return rows
    common = set(rows.names) & set(like.names)
    if not common:
        raise InputError(
            f"{path}: has no patient in common with the other embeddings; give embeddings of the same slides."
        )
    return rows.of(common)


def changes(before: SiteAndLabel, after: SiteAndLabel, label: str | None) -> list[str]:
    """What has become harder or easier to read."""
    pairs: list[tuple[str, Readable | None, Readable | None]] = [
        ("the site", before.site, after.site),
        (f"{label} among all sites", before.label, after.label),
        (f"{label} on sites that were not learned from", before.label_elsewhere, after.label_elsewhere),
    ]
    return [_change(what, one, other) for what, one, other in pairs if one is not None and other is not None]


def _change(what: str, before: Readable, after: Readable) -> str:
    difference = after.accuracy - before.accuracy
    word = "as well as before" if abs(difference) < CHANGED else "better" if difference > 0 else "less well"
    return (
        f"  {what} is read {word}: {before.accuracy:.2f} before, {after.accuracy:.2f} now (chance {after.chance:.2f})"
    )
