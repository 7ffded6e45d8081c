"""Positions of the points: PCA of embeddings or of pi, and UMAP if it is installed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from panther.errors import InputError
from panther.explain.projection import FEWEST_UMAP, Plane, umap_installed
from panther.store import version_of
from panther.viewer.cohort.units import (
    PLANES,
    CohortShares,
    EmbeddingsFile,
    Units,
    plane_of_file,
    unit_shares,
)
from panther.viewer.workbench import LruCache, Workbench

PLANES_KEPT = 16
METHODS = {"pca": "PCA", "umap": "UMAP"}


@dataclass(frozen=True, eq=False)
class Placed:
    """Units that have a position."""

    names: list[str]
    position: np.ndarray  # (n, 2)
    axes: tuple[str, str]
    notes: tuple[str, ...] = ()


Place = Callable[[], Placed]


class CohortPositions:
    """Planes of one workbench, each computed once."""

    def __init__(self, bench: Workbench, shares: CohortShares) -> None:
        self._bench, self._shares = bench, shares
        self._planes: LruCache[Plane] = LruCache(PLANES_KEPT)

    def choices(self, units: Units, set_name: str | None) -> tuple[dict[str, tuple[str, Place]], list[str]]:
        """Planes to choose from, each with its title, and why some are missing."""
        notes: list[str] = []
        sources: dict[str, tuple[str, Callable[[str], Placed]]] = {}
        contents = self._bench.contents
        has_pi = bool(contents.prototypes) and any(slide.features is not None for slide in contents.slides.values())
        try:
            has_pi = has_pi or bool(self._shares.of_file(set_name))
            file, path = self._shares.embeddings(), contents.embeddings
            if file is not None and path is not None:
                if _with_vectors(units, file):
                    sources["embeddings"] = "the embeddings", partial(self._by_embeddings, units, file, path)
                else:
                    example = f", e.g. {file.samples[0]}" if file.samples else ""
                    notes.append(f"{path.name}: {len(file.samples)} samples{example}, none of the {units.level} here.")
        except InputError as error:
            notes.append(str(error))
        if has_pi:
            sources["pi"] = "π", partial(self._by_pi, units, set_name)
        if not sources and not notes:
            notes.append("No positions without embeddings or prototypes; `panther prototypes` fits some.")
        methods = METHODS if umap_installed() and len(units.names) >= FEWEST_UMAP else {"pca": METHODS["pca"]}
        return {
            f"{method}:{source}": (f"{title} of {words}", partial(place, method))
            for method, title in methods.items()
            for source, (words, place) in sources.items()
        }, notes

    def _by_embeddings(self, units: Units, file: EmbeddingsFile, path: Path, method: str) -> Placed:
        chosen = _with_vectors(units, file)
        slides = list(chosen.values())
        patches = {slide: share.patches for slide, share in file.shares.items()}
        position, axes = self._planes.get(
            (method, "embeddings", units.level),
            lambda: self._bench.compute(plane_of_file, path, slides, patches, method, is_long=True),
            version_of([path]),
        )
        notes = _left_out(units, chosen, "no embedding")
        if file.damaged:
            notes.append(f"{path.name}: {len(file.damaged)} embeddings hold NaN, e.g. {file.damaged[0]}.")
        if any(len(members) > 1 for members in slides):
            notes.append("A patient lies at the mean of its slides' embeddings, weighted by patches.")
        return Placed(list(chosen), position, axes, tuple(notes))

    def _by_pi(self, units: Units, set_name: str | None, method: str) -> Placed:
        shares, failures = self._shares.read(set_name)
        pi = unit_shares(units, shares)
        if not pi:
            raise InputError(next(iter(failures.values()), "No slide has features, so none has shares of prototypes."))
        x = np.stack(list(pi.values()))
        position, axes = self._planes.get(
            (method, "pi", units.level, set_name),
            lambda: self._bench.compute(PLANES[method], x, is_long=True),
            hash(x.tobytes()),
        )
        notes = _left_out(units, pi, "no shares")
        notes += [f"E.g. {reason}" for reason in list(failures.values())[:1]]
        return Placed(list(pi), position, axes, tuple(notes))


def _with_vectors(units: Units, file: EmbeddingsFile) -> dict[str, list[str]]:
    """Units and their samples of the file: their slides, or the patient itself."""
    samples = set(file.samples)
    members = {}
    for name, slides in zip(units.names, units.slides, strict=True):
        embedded = [slide for slide in slides if slide in samples]
        if embedded or name in samples:
            members[name] = embedded or [name]
    return members


def _left_out(units: Units, names: Iterable[str], why: str) -> list[str]:
    missing = set(units.names) - set(names)
    note = f"{len(missing)} of the {len(units.names)} {units.level} have {why}, e.g. {min(missing, default='')}."
    return [note] if missing else []
