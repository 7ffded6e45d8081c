"""Positions of the points: PCA of embeddings or of pi, and UMAP if it is installed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError
from panther.explain.projection import FEWEST_UMAP, Plane, umap_installed
from panther.store import version_of
from panther.viewer.cohort.units import (
    CohortShares,
    EmbeddingsFile,
    Progress,
    Units,
    plane,
    plane_of_file,
    unit_shares,
)
from panther.viewer.workbench import LruCache, Workbench

PLANES = 16  # kept
METHODS = {"pca": "PCA", "umap": "UMAP"}
SOURCES = {"embeddings": "the embeddings", "pi": "π"}


@dataclass(frozen=True, eq=False)
class Placed:
    """Units that have a position."""

    names: list[str]
    position: np.ndarray  # (n, 2)
    axes: tuple[str, str]
    notes: tuple[str, ...] = ()
    progress: Progress | None = None  # of the shares; nothing is placed before


class CohortPositions:
    """Planes of one workbench, each computed once."""

    def __init__(self, bench: Workbench, shares: CohortShares) -> None:
        self._bench, self._shares = bench, shares
        self._planes: LruCache[Plane] = LruCache(PLANES)

    def known(self, units: Units, set_name: str | None) -> tuple[list[tuple[str, str]], list[str]]:
        """Planes to choose from (id and words), and why some are missing."""
        notes: list[str] = []
        sources = []
        try:
            file, path = self._shares.embeddings(), self._bench.contents.embeddings
            if file is not None and _with_vectors(units, file):
                sources.append("embeddings")
            elif file is not None and path is not None:
                example = f", e.g. {file.samples[0]}" if file.samples else ""
                notes.append(
                    f"{path.name}: none of its {len(file.samples)} samples{example} is among the {units.level} here."
                )
        except InputError as error:
            notes.append(str(error))
        if self._has_shares(set_name):
            sources.append("pi")
        if not sources and not notes:
            notes.append(
                "There are neither embeddings nor prototypes to place the slides by; fit some with `panther prototypes`, "
                "or name embeddings with `panther view FOLDER --embeddings FILE`."
            )
        methods = METHODS if umap_installed() and len(units.names) >= FEWEST_UMAP else {"pca": METHODS["pca"]}
        return [(f"{m}:{s}", f"{METHODS[m]} of {SOURCES[s]}") for m in methods for s in sources], notes

    def _has_shares(self, set_name: str | None) -> bool:
        """Whether pi of some slide is there, or will be."""
        contents = self._bench.contents
        if contents.prototypes and any(one.features is not None for one in contents.slides.values()):
            return True
        try:
            return bool(self._shares.known(set_name)[0])
        except InputError:
            return False

    def place(self, plane_id: str, units: Units, set_name: str | None) -> Placed:
        """Positions of units in a plane that `known` offers."""
        if plane_id not in dict(self.known(units, set_name)[0]):
            raise InputError(f"plane: found {plane_id!r}, expected one of the list")
        method, source = plane_id.split(":")
        by = self._by_embeddings if source == "embeddings" else self._by_pi
        return by(method, units, set_name)

    def _by_embeddings(self, method: str, units: Units, _: str | None) -> Placed:
        file, path = self._shares.embeddings(), self._bench.contents.embeddings
        assert file is not None
        assert path is not None
        chosen = _with_vectors(units, file)
        names, slides = [name for name, _ in chosen], [members for _, members in chosen]
        patches = {slide: share.patches for slide, share in file.shares.items()}
        position, axes = self._planes.get(
            (method, "embeddings", units.level),
            lambda: self._bench.compute_long(plane_of_file, path, slides, patches, method),
            version_of([path]),
        )
        notes = _left_out(units, names, "no embedding")
        if file.damaged:
            notes.append(
                f"{path.name}: {len(file.damaged)} embeddings hold NaN, e.g. {file.damaged[0]}; embed them again."
            )
        if any(len(members) > 1 for members in slides):
            notes.append("A patient lies at the mean of its slides' embeddings, weighted by patches.")
        return Placed(names, position, axes, tuple(notes))

    def _by_pi(self, method: str, units: Units, set_name: str | None) -> Placed:
        shares, progress, failures = self._shares.known(set_name)
        if progress is not None:
            return Placed([], np.zeros((0, 2)), ("", ""), progress=progress)
        pi = unit_shares(units, shares)
        names = [name for name in units.names if name in pi]
        if not names:
            raise InputError(next(iter(failures.values()), "No slide has features, so none has shares of prototypes."))
        x = np.stack([pi[name] for name in names])
        position, axes = self._planes.get(
            (method, "pi", units.level, set_name), lambda: self._bench.compute_long(plane, x, method), hash(x.tobytes())
        )
        notes = _left_out(units, names, "no shares")
        notes += [f"E.g. {reason}" for reason in list(failures.values())[:1]]
        return Placed(names, position, axes, tuple(notes))


def _with_vectors(units: Units, file: EmbeddingsFile) -> list[tuple[str, list[str]]]:
    """Units and their samples of the file: their slides, or the patient itself."""
    samples = set(file.samples)
    chosen = []
    for name, slides in zip(units.names, units.slides, strict=True):
        members = [slide for slide in slides if slide in samples]
        if members or name in samples:
            chosen.append((name, members or [name]))
    return chosen


def _left_out(units: Units, names: Sequence[str], why: str) -> list[str]:
    missing = set(units.names) - set(names)
    return (
        [f"{len(missing)} of the {len(units.names)} {units.level} have {why}, e.g. {min(missing)}."] if missing else []
    )
