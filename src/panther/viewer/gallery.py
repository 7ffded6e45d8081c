"""Prototypes over the whole cohort: from an atlas if there is one, otherwise computed in the background and kept in memory.

Slides are described one after the other in the worker processes (`explain.atlas.describe_slide`); results are shown as they come.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from panther.engine import stream
from panther.errors import InputError
from panther.explain.atlas import AtlasSettings, Kind, Pool, describe_slide, patients_of, summed_up
from panther.explain.atlas_files import to_dict
from panther.explain.scene import SlideJob
from panther.explain.shares import Proportions, as_proportions
from panther.storage.files import read_json
from panther.viewer.workbench import InProgressError, Workbench

KINDS: tuple[Kind, ...] = ("nearest", "borderline", "farthest")
EXEMPLARS = 12  # of each kind

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Findings:
    """Findings on the prototypes of a set so far."""

    content: Mapping[str, Any]  # as in atlas.json; empty at first
    proportions: Proportions | None = None  # of slides
    patients: Sequence[str] = ()  # of those slides
    done: int = 0  # slides
    total: int = 0
    running: bool = False
    can_look: bool = False  # an atlas is shown; the slides can be described on request
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


class Gallery:
    """Prototypes of one set in the cohort. Threads may share it."""

    def __init__(self, bench: Workbench, chosen: str | None) -> None:
        self._bench, self._prototypes = bench, bench.prototypes(chosen)
        self._settings = AtlasSettings(bench.settings, EXEMPLARS, kinds=KINDS)
        slides = bench.contents.slides
        patients = patients_in(bench, [name for name, slide in slides.items() if slide.features])
        self._jobs = [
            SlideJob(slide.features, slide.image, patient=patients[name])
            for name, slide in slides.items()
            if slide.features
        ]
        self._pool = Pool(len(self._prototypes), self._settings)
        self._failures: dict[str, str] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._problem = ""
        self._known: Findings | None = None  # for as many slides as are done
        self._atlas = _from_atlas(bench, self._prototypes.content_hash(), len(self._prototypes))

    def start(self, *, despite_atlas: bool = False) -> None:
        """Begin to describe the slides, once; where there is an atlas only ``despite_atlas``."""
        with self._lock:
            if self._thread is None and (despite_atlas or self._atlas is None):
                self._thread = threading.Thread(target=self._describe, name="gallery", daemon=True)
                self._thread.start()

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def findings(self) -> Findings:
        """Findings so far."""
        with self._lock:
            running, done, total = self._is_running, len(self._pool.slides) + len(self._failures), len(self._jobs)
            if self._atlas is not None and running:  # better than a part of the slides
                return replace(self._atlas, done=done, total=total, running=True)
            if self._atlas is not None and self._thread is None:
                return replace(self._atlas, can_look=bool(self._jobs))
            if self._known is None or self._known.done != done:
                self._known = self._summed_up(done, total)
            notes = (*self._known.notes, *([self._problem] if self._problem else []))
            return replace(self._known, running=running, notes=notes)

    def shares(self) -> tuple[Proportions | None, dict[str, str]]:
        """Pi of all slides, and why some failed; `InProgressError` while they are computed."""
        with self._lock:
            if self._atlas is not None:
                return self._atlas.proportions, {}
            slides, done = self._pool.slides, len(self._pool.slides) + len(self._failures)
            if self._is_running and done < len(self._jobs):
                raise InProgressError(done, len(self._jobs), "shares of the prototypes")
            if not slides:
                return None, dict(self._failures)
            patches = np.array([float(slide.members.sum()) for slide in slides])
            pi = np.stack([slide.weights for slide in slides])
            return Proportions([slide.slide for slide in slides], pi, patches), dict(self._failures)

    def _summed_up(self, done: int, total: int) -> Findings:
        if not self._pool.slides:
            return Findings({}, done=done, total=total, failures=dict(self._failures))
        atlas = summed_up(self._pool, self._prototypes, self._settings, (), dict(self._failures))
        pi = Proportions(list(atlas.slides), atlas.weights, atlas.members.sum(1).astype(float))
        content = to_dict(atlas)
        for row, exemplar in zip(content["exemplars"], atlas.exemplars, strict=True):
            place = exemplar.place
            if place is not None and place.side is not None:
                row["place"] = {"x": place.x, "y": place.y, "side": place.side, "unit": place.unit}
        return Findings(content, pi, atlas.patients, done, total, notes=atlas.notes, failures=atlas.failures)

    def _describe(self) -> None:
        describe = partial(describe_slide, prototypes=self._prototypes, settings=self._settings)
        readable, failures = self._bench.readable(self._jobs, lambda job: job.ref.files)
        try:
            # a short queue: other searches need not wait for the whole cohort
            for _, facts in stream(describe, readable, "", self._bench.long_work, failures, ahead=1):
                with self._lock:
                    self._pool.add(facts)
                    self._failures = dict(failures)
            with self._lock:
                self._failures = failures
        except Exception as error:
            self._problem = f"Not all slides could be described: {error}"
            if not isinstance(error, InputError):
                logger.exception("The description of the prototypes ended early.")


def gallery_of(bench: Workbench, chosen: str | None) -> Gallery:
    """The gallery of a set of prototypes, started; all pages share it."""
    name = bench.set_name(chosen)
    gallery: Gallery = bench.shared.get(name, lambda: Gallery(bench, name), bench.prototypes(name).content_hash())
    gallery.start()
    return gallery


def patients_in(bench: Workbench, slides: Sequence[str]) -> dict[str, str]:
    """Patient of each slide; a slide that is not in the table is its own patient."""
    table = bench.contents.table
    if table is None or not table.who.patients_known:
        return patients_of(None, slides)[0]
    return {slide: bench.contents.slides[slide].patient or slide for slide in slides}


def _from_atlas(bench: Workbench, prototypes_hash: str, count: int) -> Findings | None:
    """Content of an atlas of the same prototypes, if there is one; damaged ones are passed over."""
    for folder in bench.contents.artefacts.get("atlas", ()):
        try:
            content, pi = read_json(folder / "atlas.json"), as_proportions(folder / "pi.csv")
            shapes = {np.shape(content[name]) for name in ("neighbours", "cooccurrence")}
            exemplars = [
                {**row, "row": int(row["row"]), "prototype": int(row["prototype"]), "kind": str(row["kind"])}
                for row in content["exemplars"]
                if row["slide"] in bench.contents.slides
            ]
            is_same = content["prototypes_hash"] == prototypes_hash and content["method"] == bench.settings.method
            counts = {len(content["prototypes"]), pi.pi.shape[1]}
            if not (is_same and exemplars and counts == {count} and shapes == {(count, count)}):
                continue
            patients = patients_in(bench, [slide for slide in pi.samples if slide in bench.contents.slides])
        except (InputError, OSError, ValueError, KeyError, TypeError):
            continue
        note = f"From the atlas in {folder.parent.name}/{folder.name}; the page of a prototype adds borderline and atypical patches."
        content = {**content, "exemplars": exemplars}
        return Findings(content, pi, [patients.get(slide, slide) for slide in pi.samples], notes=(note,))
    return None
