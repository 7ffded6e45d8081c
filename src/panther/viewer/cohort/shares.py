"""Pi of all slides: of the embeddings where they were made with the same prototypes, else as the gallery finds it in the background."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from panther.explain.proportions import Proportions, pooled
from panther.storage.fingerprints import version_of
from panther.viewer.cohort.units import Units
from panther.viewer.cohort.worker import EmbeddingsFile, Share, read_embeddings
from panther.viewer.gallery import gallery_of
from panther.viewer.kept import Kept
from panther.viewer.workbench import Workbench


@dataclass(frozen=True)
class Progress:
    """How far something is."""

    done: int
    total: int
    what: str


class CohortShares:
    """How much of each prototype every slide has, by set of prototypes."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._file: Kept[EmbeddingsFile] = Kept(1)

    def embeddings(self) -> EmbeddingsFile | None:
        """What the embeddings file holds; None without one. What is damaged is an error."""
        path = self._bench.contents.embeddings
        if path is None:
            return None

        def read() -> EmbeddingsFile:
            self._bench.refuse_links([path])
            return self._bench.compute(read_embeddings, path)

        return self._file.get(path, read, version_of([path]))

    def known(self, name: str | None) -> tuple[Mapping[str, Share], Progress | None, Mapping[str, str]]:
        """Shares that there are under a set of prototypes, how far the others are, and why some will not come."""
        filed = self._filed(name)
        contents = self._bench.contents
        left = [slide for slide, one in contents.slides.items() if one.features is not None and slide not in filed]
        if not contents.prototypes or not left:
            return filed, None, {}
        looked, done, total, failures = gallery_of(self._bench, name).shares()
        progress = None if done >= total else Progress(done, total, "shares of the prototypes")
        return {**_by_slide(looked), **filed}, progress, failures

    def count(self, name: str | None) -> int:
        """How many prototypes there are."""
        if self._bench.contents.prototypes:
            return len(self._bench.prototypes(name))
        filed = self._filed(name)
        return len(next(iter(filed.values())).pi) if filed else 0

    def _filed(self, name: str | None) -> Mapping[str, Share]:
        """Those of the file, where they are of the same prototypes, or of the only ones that anybody knows."""
        found = self.embeddings()
        if found is None:
            return {}
        contents = self._bench.contents
        if contents.prototypes and found.prototypes_hash != self._bench.prototypes(name).content_hash():
            return {}
        return {slide: share for slide, share in found.shares.items() if slide in contents.slides}


def _by_slide(found: Proportions | None) -> dict[str, Share]:
    if found is None:
        return {}
    patches = np.ones(len(found.samples)) if found.patches is None else found.patches
    return {slide: Share(pi, float(n)) for slide, pi, n in zip(found.samples, found.pi, patches, strict=True)}


def unit_shares(units: Units, shares: Mapping[str, Share]) -> dict[str, np.ndarray]:
    """Pi (C,) of each slide or patient that has any."""
    found = {}
    for name, slides in zip(units.names, units.slides, strict=True):
        own = [shares[slide] for slide in slides if slide in shares]
        if own:
            found[name] = pooled(np.stack([one.pi for one in own]), np.array([one.patches for one in own]))
    return found
