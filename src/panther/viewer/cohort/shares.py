"""Pi of all slides: of the embeddings where they were made with the same prototypes, else from the features, in the background."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from panther.explain.proportions import pooled
from panther.viewer.cohort.background import Background
from panther.viewer.cohort.units import Units
from panther.viewer.cohort.worker import EmbeddingsFile, Share, read_embeddings, slide_shares
from panther.viewer.workbench import Kept, Workbench

SETS = 8  # sets of prototypes whose shares are kept


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
        self._file: Kept[EmbeddingsFile | None] = Kept(1)
        self._running: Kept[Background[Share]] = Kept(SETS)

    def embeddings(self) -> EmbeddingsFile | None:
        """What the embeddings file holds; None without one. What is damaged is an error."""
        path = self._bench.contents.embeddings
        return None if path is None else self._file.get(path, lambda: self._bench.compute(read_embeddings, path))

    def known(self, name: str | None) -> tuple[Mapping[str, Share], Progress | None, Mapping[str, str]]:
        """Shares that there are under a set of prototypes, how far the others are, and why some will not come."""
        filed = self._filed(name)
        running = self._running_for(name, filed)
        if running is None:
            return filed, None, {}
        progress = None if running.finished else Progress(running.done, running.total, "shares of the prototypes")
        return {**filed, **running.values}, progress, dict(running.failures)

    def wait(self, name: str | None) -> None:
        """Until all shares are there."""
        running = self._running_for(name, self._filed(name))
        if running is not None:
            running.wait()

    def _running_for(self, name: str | None, filed: Mapping[str, Share]) -> Background[Share] | None:
        """What computes the shares that the file does not have; None where nothing is left to do."""
        contents = self._bench.contents
        left = [slide for slide, one in contents.slides.items() if one.features is not None and slide not in filed]
        if not contents.prototypes or not left:
            return None
        chosen = name or next(iter(contents.prototypes))
        return self._running.get(chosen, lambda: Background(partial(self._compute, chosen), left))

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

    def _compute(self, name: str, slides: list[str]) -> tuple[dict[str, Share], dict[str, str]]:
        entries = [self._bench.slide(slide) for slide in slides]
        return self._bench.compute(slide_shares, entries, self._bench.prototypes(name), self._bench.settings)


def unit_shares(units: Units, shares: Mapping[str, Share]) -> dict[str, np.ndarray]:
    """Pi (C,) of each slide or patient that has any."""
    found = {}
    for name, slides in zip(units.names, units.slides, strict=True):
        own = [shares[slide] for slide in slides if slide in shares]
        if own:
            found[name] = pooled(np.stack([one.pi for one in own]), np.array([one.patches for one in own]))
    return found
