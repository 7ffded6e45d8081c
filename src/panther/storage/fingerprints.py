"""Hashes of samples' features, kept in a file and taken again only where a sample's files have changed."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from panther.engine import HERE, Work, stream
from panther.errors import not_finite
from panther.statistics import first_bad_row
from panther.store import HashedRows, atomic_write, stamp_of
from panther.types import Openable

Fingerprint = tuple[
    str, str
]  # stamp of the files, empty where they cannot be recognised later, and hash of the features


def fingerprint(sample: Openable, known: Fingerprint | None = None) -> Fingerprint:
    """Stamp and hash of a sample; its features are read where its stamp is not the ``known`` one."""
    stamp = stamp_of(sample.files)
    if known is not None and stamp and stamp == known[0]:
        return known
    content = finite_content(sample)
    return (stamp if stamp == stamp_of(sample.files) else "", content)


def finite_content(sample: Openable) -> str:
    """Hash of a sample's features, read once; NaN and infinite numbers are refused."""
    bag = sample.open()
    rows = HashedRows(bag.features)
    bad = first_bad_row(rows)  # which reads them in order
    if bad is None:
        return rows.digest()
    for part in bag.slides or (bag,):  # of a patient: the slide with that row
        if bad < len(part):
            raise not_finite(part.source, bad)
        bad -= len(part)
    raise not_finite(bag.source, bad)


def fingerprint_all(
    samples: Mapping[str, Openable], file: Path, work: Work = HERE
) -> tuple[dict[str, str], dict[str, str]]:
    """Hash of the features behind every name, and the reason of each that cannot be read or holds NaN.

    Hashes are kept in ``file``. Losing it costs reading, never truth.
    """
    kept = _read(file)
    before = dict(kept)
    contents: dict[str, str] = {}
    failures: dict[str, str] = {}
    names = list(samples)[::-1]  # the next reader begins with the first, which are in the page cache then
    jobs = [(samples[name], kept.get(name)) for name in names]
    try:
        for index, (stamp, content) in stream(_fingerprint, jobs, "looking for changed features", work, failures):
            contents[names[index]] = content
            if stamp:
                kept[names[index]] = stamp, content
    finally:
        if kept != before:
            with atomic_write(file) as temporary:
                temporary.write_text(json.dumps(kept), encoding="ascii")
    return dict(reversed(contents.items())), dict(reversed(failures.items()))


def _fingerprint(job: tuple[Openable, Fingerprint | None]) -> Fingerprint:
    return fingerprint(*job)


def _read(file: Path) -> dict[str, Fingerprint]:
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):  # missing, or damaged
        return {name: (str(stamp), str(content)) for name, (stamp, content) in json.loads(file.read_bytes()).items()}
    return {}
