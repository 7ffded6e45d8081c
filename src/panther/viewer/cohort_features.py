"""Features of a cohort: one file a slide, of one encoder, from the folders that hold them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from panther.encoder_names import same_encoder
from panther.engine import Work, collect
from panther.explain.jobs import is_slide
from panther.storage.bags import BagRef, list_bags
from panther.storage.names import as_text, not_text
from panther.storage.survey import survey
from panther.types import Openable, Prototypes

LOOKED_INTO = 5  # files of a folder, spread over it; the others are taken to be like them


class _Kind(NamedTuple):
    """What features are made of; one kind is shown."""

    encoder: str | None = None
    dim: int = 0  # 0: none of the files can be read
    mpp: float | None = None

    def suits(self, prototypes: Prototypes | None) -> bool:
        if prototypes is None or self.dim != prototypes.dim_in or not same_encoder(self.encoder, prototypes.encoder):
            return False
        return self.mpp is None or prototypes.spec.mpp is None or abs(self.mpp / prototypes.spec.mpp - 1) < 0.1

    def __str__(self) -> str:
        return f"{self.encoder or f'{self.dim} dimensions'}{f' at {self.mpp:g} um/px' if self.mpp else ''}"


def find_features(
    place: Path,
    given: Path | None,
    folders: Mapping[Path, Sequence[Path]],
    prototypes: Prototypes | None,
    work: Work,
    notes: list[str],
) -> dict[str, Openable]:
    """Features by slide: those given, else of the kind that the prototypes were made of, else that most slides have."""
    if given is not None or place.is_file():
        if given is None and is_slide(place):
            return {}
        listing = list_bags(given or place)
        notes += list(listing.problems.values())[:3]
        return {ref.sample: ref for ref in listing.refs}
    by_kind: dict[_Kind, dict[Path, bool]] = defaultdict(dict)  # kind -> its folders, and whether they have coordinates
    for folder, (kind, placed) in _looked_into(folders, work).items():
        by_kind[kind][folder] = placed
    if not by_kind:
        return {}
    bags = {kind: _bags(folders, found, notes) for kind, found in by_kind.items()}
    chosen = max(bags, key=lambda kind: (kind.dim > 0, kind.suits(prototypes), len(bags[kind])))
    others = [kind for kind in bags if kind != chosen and kind.dim]
    if others:
        notes.append(
            f"Features of {chosen} are shown; there are others of {', '.join(map(str, others))}: `panther view FOLDER --features OTHER` shows them."
        )
    return bags[chosen]


def _looked_into(folders: Mapping[Path, Sequence[Path]], work: Work) -> dict[Path, tuple[_Kind, bool]]:
    """Kind of each folder that holds features, by a few of its files."""
    samples = {folder: _spread(files) for folder, files in folders.items()}
    files = [file for some in samples.values() for file in some]
    about, _failures = collect(survey, files, "looking", work)
    found = {}
    for folder, some in samples.items():
        seen = [about.get(str(file), {"kind": "problem"}) for file in some]
        bags = [one for one in seen if one["kind"] == "bag"]
        if bags:
            first = bags[0]
            kind = _Kind(first["encoder"], first["dim"], (first["patch_spec"] or {}).get("mpp"))
            found[folder] = kind, bool(first["coords"])
        elif all(one["kind"] == "problem" for one in seen):
            found[folder] = _Kind(), False  # damaged: the page says so, slide by slide
    return found


def _spread(files: Sequence[Path]) -> list[Path]:
    step = max(1, (len(files) - 1) // (LOOKED_INTO - 1)) if len(files) > LOOKED_INTO else 1
    return list(files)[::step][:LOOKED_INTO]


def _bags(folders: Mapping[Path, Sequence[Path]], of: Mapping[Path, bool], notes: list[str]) -> dict[str, Openable]:
    """One file a slide; CLAM keeps each twice, once without coordinates."""
    bags: dict[str, Openable] = {}
    for folder in sorted(of, key=lambda folder: (not of[folder], -len(folders[folder]), folder)):
        for file in folders[folder]:
            name = as_text(file.stem)
            if name is None:
                notes.append(not_text(file))
            else:
                bags.setdefault(name, BagRef(name, (file,)))
    return bags
