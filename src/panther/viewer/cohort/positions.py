"""Where the points lie: PCA of embeddings or of pi, and UMAP where it is installed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError
from panther.explain.projection import FEWEST_UMAP, Plane, umap_installed
from panther.store import version_of
from panther.viewer.cohort.units import CohortShares, Progress, Units, unit_shares
from panther.viewer.cohort.worker import EmbeddingsFile, plane, plane_of_file
from panther.viewer.kept import Kept
from panther.viewer.workbench import Workbench

PLANES = 16  # kept
METHODS = {"pca": "PCA", "umap": "UMAP"}
SOURCES = {"embeddings": "the embeddings", "pi": "π"}


@dataclass(frozen=True, eq=False)
class Placed:
    """Units that have a place."""

    names: list[str]
    position: np.ndarray  # (n, 2)
    axes: tuple[str, str]
    notes: tuple[str, ...] = ()
    progress: Progress | None = None  # not all are there yet: no places are computed before


class CohortPositions:
    """Planes of one workbench, each computed once."""

    def __init__(self, bench: Workbench, shares: CohortShares) -> None:
        self._bench, self._shares = bench, shares
        self._planes: Kept[Plane] = Kept(PLANES)

    def known(self, units: Units, set_name: str | None) -> tuple[list[tuple[str, str]], list[str]]:
        """Planes to choose from (id and words), and why some are not there."""
        notes: list[str] = []
        sources = []
        try:
            found = self._shares.embeddings()
            if found is not None and _with_vectors(units, found):
                sources.append("embeddings")
            elif found is not None:
                notes.append(self._strangers(found, units))
        except InputError as error:
            notes.append(str(error))
        if self._has_shares(set_name):
            sources.append("pi")
        if not sources and not notes:
            notes.append(
                "There are neither embeddings nor prototypes, so slides have no place beside each other; "
                "fit prototypes with `panther prototypes`, or name embeddings with `panther view FOLDER --embeddings FILE`."
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
        """Places of units in a plane that `known` named."""
        chosen = dict(self.known(units, set_name)[0])
        if plane_id not in chosen:
            raise InputError(f"There is no {plane_id!r} here to place points by; choose one of the list.")
        method, source = plane_id.split(":")
        return self._by_embeddings(method, units, set_name) if source == "embeddings" else self._by_pi(method, units, set_name)  # fmt: skip

    def _by_embeddings(self, method: str, units: Units, set_name: str | None) -> Placed:
        found, path = self._shares.embeddings(), self._bench.contents.embeddings
        assert found is not None
        assert path is not None
        chosen = _with_vectors(units, found)
        names = [name for name, _ in chosen]
        patches = {slide: share.patches for slide, share in found.shares.items()}
        key, version = (method, "embeddings", units.level), version_of([path])
        slides = [own for _, own in chosen]
        position, axes = self._planes.get(
            key, lambda: self._bench.compute_long(plane_of_file, path, slides, patches, method), version
        )
        notes = _left_out(units, names, "no embedding")
        if found.damaged:
            notes.append(f"{path.name}: {len(found.damaged)} embeddings hold NaN, e.g. that of {found.damaged[0]}; embed them again.")  # fmt: skip
        if any(len(own) > 1 for own in slides):
            notes.append("A patient lies at the mean of its slides' embeddings, weighted by patches.")
        return Placed(names, position, axes, tuple(notes))

    def _by_pi(self, method: str, units: Units, set_name: str | None) -> Placed:
        shares, progress, failures = self._shares.known(set_name)
        if progress is not None:
            return Placed([], np.zeros((0, 2)), ("", ""), progress=progress)
        own = unit_shares(units, shares)
        names = [name for name in units.names if name in own]
        if not names:
            raise InputError(next(iter(failures.values()), "No slide has features, so none has shares of prototypes."))
        x = np.stack([own[name] for name in names])
        position, axes = self._planes.get(
            (method, "pi", units.level, set_name), lambda: self._bench.compute_long(plane, x, method), hash(x.tobytes())
        )
        notes = _left_out(units, names, "no shares")
        if failures:
            notes.append(f"E.g. {next(iter(failures.values()))}")
        return Placed(names, position, axes, tuple(notes))

    def _strangers(self, embeddings_file: EmbeddingsFile, units: Units) -> str:
        path = self._bench.contents.embeddings
        assert path is not None
        example = f", e.g. {embeddings_file.samples[0]}" if embeddings_file.samples else ""
        return (
            f"{path.name}: none of its {len(embeddings_file.samples)} samples{example} is one of the {units.level} here; "
            "name others with `panther view FOLDER --embeddings FILE`."
        )


def _with_vectors(units: Units, embeddings_file: EmbeddingsFile) -> list[tuple[str, list[str]]]:
    """Units and the samples of the file that make them up: their slides, or the patient itself."""
    samples = set(embeddings_file.samples)
    chosen = []
    for name, slides in zip(units.names, units.slides, strict=True):
        own = [slide for slide in slides if slide in samples]
        if own or name in samples:
            chosen.append((name, own or [name]))
    return chosen


def _left_out(units: Units, names: Sequence[str], why: str) -> list[str]:
    missing = set(units.names) - set(names)
    if not missing:
        return []
    return [
        f"{len(missing)} of the {len(units.names)} {units.level} have {why} and are not drawn, e.g. {min(missing)}."
    ]
